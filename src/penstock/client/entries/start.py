"""The start position of a consumer: brokers begin with whole entries, and earlier messages of them are skipped here."""

from __future__ import annotations

from penstock.client.message_id import MessageId as WireId
from penstock.model.message_id import EARLIEST, LATEST, MessageId

from .arrived import Arrived


class Start:
    """After `at`, or at it if `inclusive`; None: the position of the subscription."""

    def __init__(self, at: MessageId | None, *, inclusive: bool, durable: bool) -> None:
        self._at = at
        self._inclusive = inclusive
        self._durable = durable

    @property
    def wire_id(self) -> WireId | None:
        """The position sent to a broker, which knows those of durable subscriptions."""
        return None if self._durable or self._at is None else WireId._of(self._at)

    def wanted(self, entry: Arrived) -> int:
        """The messages of an entry that do not come before it."""
        at = self._at
        if at is None or at in (EARLIEST, LATEST):
            return entry.mask
        place, first = entry.place, (at.ledger, at.entry)
        if place != first:  # of one that is durable, the cursor decides
            return entry.mask if self._durable or place > first else 0
        index = at.batch_index
        if index < 0 or (entry.count == 1 and index == 0):
            return entry.mask if self._inclusive else 0
        passed = index + (not self._inclusive)
        return entry.mask >> passed << passed

    @property
    def passes_over(self) -> bool:
        """Whether a durable subscription that was moved here would keep a whole entry that no consumer gets."""
        at = self._at
        if at is None or self._inclusive or not self._durable or at in (EARLIEST, LATEST):
            return False
        return at.batch_index < 0 or at.batch_index + 1 == at.batch_size

    def after(self, entry: Arrived) -> Start:
        """The position at which a subscription that is not durable continues."""
        return Start(MessageId(entry.ledger, entry.entry_id), inclusive=False, durable=False)

    def sought(self, to: MessageId | int, *, inclusive: bool) -> Start:
        """The position of a seek; of one by time only the broker knows it."""
        if not isinstance(to, MessageId):
            to_id = None if self._durable else EARLIEST
            return Start(to_id, inclusive=False, durable=self._durable)
        return Start(to, inclusive=inclusive, durable=self._durable)
