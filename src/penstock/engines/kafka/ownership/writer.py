"""The journal as the store of subscriptions: `CursorWriter` over `Cursors`."""

from collections.abc import Sequence

from penstock.engines.subscription.store import CursorChange
from penstock.model.errors import ErrorKind, PenstockError

from .cursors import Cursors
from .records import CursorKey, CursorRecord


class JournalWriter:
    """`CursorWriter`. A log is bound while its subscriptions are served here."""

    def __init__(self, cursors: Cursors) -> None:
        self._cursors = cursors
        self._logs: dict[int, tuple[str, int, str]] = {}

    def bind(self, ledger: int, topic: str, partition: int, topic_id: str) -> None:
        """A ledger is this partition of the Kafka topic with this id."""
        self._logs[ledger] = topic, partition, topic_id

    def unbind(self, ledger: int) -> None:
        """Its subscriptions are not served here any more."""
        self._logs.pop(ledger, None)

    async def save_cursors(self, changes: Sequence[CursorChange]) -> None:
        """As `CursorWriter`, but if it fails a part of the changes may be stored: saving them again is harmless. Raises
        Replaced if another process owns one of the logs, UNAVAILABLE if the outcome is unknown."""
        records: list[CursorRecord] = []
        for one in changes:
            topic, partition, topic_id = self._log(one.ledger)
            names = topic, partition, one.subscription
            records.append(CursorRecord(*names, topic_id, one.mark, one.chunks, one.properties))
        await self._cursors.save(records)

    async def delete_cursor(self, ledger: int, subscription: str) -> None:
        """As `CursorWriter`; raises as `save_cursors`."""
        topic, partition, topic_id = self._log(ledger)
        await self._cursors.delete(CursorKey(topic, partition, subscription), topic_id)

    def _log(self, ledger: int) -> tuple[str, int, str]:
        found = self._logs.get(ledger)
        if found is None:
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"ledger {ledger} is not served here")
        return found
