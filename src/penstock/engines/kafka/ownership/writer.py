"""The journal as the store of subscriptions: `CursorWriter` over `Cursors`."""

from collections import Counter
from collections.abc import Sequence

from penstock.engines.subscription.offsets import OffsetSet
from penstock.engines.subscription.store import CursorChange
from penstock.model.errors import ErrorKind, PenstockError

from .cursors import Cursors
from .fitting import Misfit, fitted, log_misfit
from .records import CursorKey, CursorRecord


class JournalWriter:
    """`CursorWriter`. A log is bound while its subscriptions are served here; `cursors` is set before that."""

    cursors: Cursors

    def __init__(self) -> None:
        self.misfits: Counter[Misfit] = Counter()  # cursors that did not fit their logs, since the start
        self._logs: dict[int, tuple[str, int, str]] = {}

    def bind(self, ledger: int, topic: str, partition: int, topic_id: str) -> None:
        """A ledger is this partition of the Kafka topic with this id."""
        self._logs[ledger] = topic, partition, topic_id

    def unbind(self, ledger: int) -> None:
        """Its subscriptions are not served here any more."""
        self._logs.pop(ledger, None)

    async def load(
        self, key: CursorKey, topic_id: str, begin: int, end: int
    ) -> tuple[OffsetSet, bytes | None] | None:
        """A cursor and its properties, for a log with the offsets `begin` up to, not with, `end`; None if there is none.

        A cursor that does not fit the log begins at the earliest place at which no message is missed, which is saved, logged
        and counted. Raises as `Cursors.load` and `Cursors.save`.
        """
        stored = self.cursors.load(self.cursors.slot(key.topic, key.partition)).get(key)
        if stored is None:
            return None
        cursor, misfit = fitted(stored, topic_id, begin, end)
        if misfit is not None:
            self.misfits[misfit] += 1
            log_misfit(key, misfit, stored.mark, cursor.mark)
            # Now: once the log has grown, the stored cursor would seem to fit. What it has beyond the mark goes, too.
            cursor.touch({**stored.chunks})
            names = key.topic, key.partition, key.subscription
            await self.cursors.save((CursorRecord(*names, topic_id, cursor.mark, cursor.take_changes()),))
        return cursor, stored.properties

    async def save_cursors(self, changes: Sequence[CursorChange]) -> None:
        """As `CursorWriter`, but if it fails a part of the changes may be stored: saving them again is harmless. Raises
        Replaced if another process owns one of the logs, UNAVAILABLE if the outcome is unknown."""
        records: list[CursorRecord] = []
        for one in changes:
            topic, partition, topic_id = self._log(one.ledger)
            names = topic, partition, one.subscription
            records.append(CursorRecord(*names, topic_id, one.mark, one.chunks, one.properties))
        await self.cursors.save(records)

    async def delete_cursor(self, ledger: int, subscription: str) -> None:
        """As `CursorWriter`; raises as `save_cursors`."""
        topic, partition, topic_id = self._log(ledger)
        await self.cursors.delete(CursorKey(topic, partition, subscription), topic_id)

    def _log(self, ledger: int) -> tuple[str, int, str]:
        found = self._logs.get(ledger)
        if found is None:
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"ledger {ledger} is not served here")
        return found
