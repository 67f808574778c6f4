"""Journals: small durable records of a log of a cluster, in one order that every process before it sees."""

from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.model.names import TopicName


class Journal(Protocol):
    """Records that never change and are never deleted: all processes that have read them know the same."""

    async def read_on(self) -> Sequence[bytes]:
        """The records that any process appended since the last call, in their order; the first call gives all.

        Raises JournalLostError if those are gone that were read before, UNAVAILABLE, and what the cluster refuses.
        """

    async def append(self, record: bytes) -> None:
        """Append a record; completes when it is durable. The next `read_on` brings it, behind what others appended before.
        Raises UNAVAILABLE, and what the cluster refuses."""


class JournalLostError(Exception):
    """A journal was deleted, or emptied, by someone else."""


# Opens the journal of a kind for the log of a topic or partition, from its first record on. It is created with the first
# record, and stays when the log is deleted.
OpenJournal = Callable[[TopicName, str], Journal]
