"""Requests on their way: which reply is for whom (PIP-371).

A reply may overtake the receipt that tells the request's id, so it is found by sequence id; a broker that does
not tell that is understood by the message id.
"""

from __future__ import annotations

from typing import Protocol


class Waiting(Protocol):
    """A token that waits for a reply, too."""

    is_request: bool


class PendingRequests:
    """The requests of one producer that wait for a reply."""

    def __init__(self) -> None:
        self._by_sequence: dict[int, Waiting] = {}
        self._by_id: dict[tuple[int, int], int] = {}

    def sent(self, sequence_id: int, tokens: list[Waiting]) -> None:
        """A request went out. It went alone: what goes with others waits for nothing."""
        if len(tokens) == 1 and getattr(tokens[0], "is_request", False):
            self._by_sequence[sequence_id] = tokens[0]

    def placed(self, sequence_id: int, ledger: int, entry: int) -> None:
        """The broker has stored it."""
        if sequence_id in self._by_sequence:
            self._by_id[ledger, entry] = sequence_id

    def answered(self, sequence_id: int | None, ledger: int, entry: int) -> Waiting | None:
        """Whose reply this is; None when its request does not wait (any more)."""
        if sequence_id is None:
            sequence_id = self._by_id.get((ledger, entry))
        token = None if sequence_id is None else self._by_sequence.get(sequence_id)
        if token is not None:
            self.forget(token)
        return token

    def forget(self, token: Waiting) -> None:
        """It waits no more."""
        gone = [
            number
            for number, other in self._by_sequence.items()
            if token in (other, getattr(other, "inner", None))
        ]
        for number in gone:
            del self._by_sequence[number]
        if gone:
            self._by_id = {place: number for place, number in self._by_id.items() if number not in gone}

    def all(self) -> list[Waiting]:
        """Who waits."""
        return list(self._by_sequence.values())

    def __len__(self) -> int:
        return len(self._by_sequence)
