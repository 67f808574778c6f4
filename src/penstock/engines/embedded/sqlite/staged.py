"""What a transaction is about to change in memory; it comes into force with the commit."""

from collections.abc import Mapping
from typing import Any

from penstock.model.errors import ErrorKind, PenstockError

from .extent import Extent
from .work import Work

Changes = dict[int, Extent | None]  # by ledger; None: deleted


class Staged:
    """The logs as they will be, room to be freed, and the outcomes of the works."""

    def __init__(self, extents: Mapping[int, Extent], next_ledger: int) -> None:
        self._extents = extents
        self.next_ledger = next_ledger
        self.changed: Changes = {}
        self.sweeps: list[tuple[int, int]] = []
        self.outcomes: list[tuple[Work, Any]] = []  # a PenstockError is one, too

    def extent(self, ledger: int) -> Extent | None:
        """A log with the changes so far, or None when it is not open."""
        return self.changed[ledger] if ledger in self.changed else self._extents.get(ledger)

    def refuse(self, work: Work, ledger: int) -> None:
        """`work` fails, alone, for want of its log."""
        error = PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"there is no log with ledger {ledger}")
        self.outcomes.append((work, error))
