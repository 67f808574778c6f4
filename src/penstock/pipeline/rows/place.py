"""Whose entries rows are made of. By itself: drivers plan tasks without what decodes them."""

import msgspec


class Place(msgspec.Struct, frozen=True):
    """Whose entries they are."""

    topic: str
    partition: int
    ledger: int
    partitioned: bool = True  # whether message ids name the partition
