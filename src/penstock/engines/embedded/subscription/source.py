"""What a subscription is given: a log, which may be another than a topic of this engine, and room to read it."""

from typing import Protocol

from penstock.broker.log import Log
from penstock.model.entry import Entry


class SubscribedLog(Log, Protocol):
    """The log that a subscription reads. Who appends to it wakes the subscription."""

    def peek(self, entry_id: int) -> Entry | None:
        """An entry that is in memory."""
        ...
