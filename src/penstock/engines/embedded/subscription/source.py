"""The log that a subscription reads: a topic of this engine, or another one."""

from typing import Protocol

from penstock.broker.log import Log
from penstock.model.entry import Entry


class SubscribedLog(Log, Protocol):
    """The log that a subscription reads. Who appends to it wakes the subscription."""

    def peek(self, entry_id: int) -> Entry | None:
        """An entry that is in memory."""
        ...
