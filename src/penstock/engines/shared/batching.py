"""Which messages share an entry, whatever the log."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final, TypeVar

from penstock.model.message import REQUEST_TIMEOUT_PROPERTY, OutMessage

BATCH_MESSAGES_MAX: Final = 1000  # Pulsar's batchingMaxMessages
BATCH_BYTES_MAX: Final = 1 << 20  # keeps one entry a reasonable unit of reading and delivery

T = TypeVar("T")


def batch_sizes(messages: Sequence[OutMessage]) -> list[int]:
    """How many messages each batch has: cut where the schema version changes, round one that goes alone, at the bounds."""
    counts: list[int] = []
    size = 0
    last: OutMessage | None = None
    for message in messages:
        alone = _goes_alone(message)
        joins = (
            last is not None
            and not alone
            and message.schema_version == last.schema_version
            and message.replicate_to == last.replicate_to
            and counts[-1] < BATCH_MESSAGES_MAX
            and size + len(message.payload) <= BATCH_BYTES_MAX
        )
        if joins:
            counts[-1] += 1
            size += len(message.payload)
        else:
            counts.append(1)
            size = len(message.payload)
        last = None if alone else message
    return counts


def cut(items: Sequence[T], counts: Sequence[int]) -> list[Sequence[T]]:
    """`items` in runs of so many each."""
    return [items[start:end] for start, end in pairwise(accumulate(counts, initial=0))]


def _goes_alone(message: OutMessage) -> bool:
    properties = message.properties
    return (
        message.deliver_at != 0
        or message.encryption is not None
        or (properties is not None and REQUEST_TIMEOUT_PROPERTY in properties)
    )
