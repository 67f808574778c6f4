"""Subscriptions over the journal of cursors: the next owner goes on where the answered acknowledgements of the last one end."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.cursor_journal import Log, Process
from tests.support.skipping_log import LEDGER, Host, SkippingLog

from penstock.engines.kafka.naming import Place
from penstock.engines.kafka.serving.state import CursorKey, CursorRecord, Replaced, StoredCursor, slot_of
from penstock.engines.kafka.serving.stored import JournalCursors, Misfit
from penstock.engines.subscription import Consumer, Subscription
from penstock.engines.subscription.compaction import Compaction
from penstock.engines.subscription.offsets import OffsetSet
from penstock.engines.subscription.store import CursorChange
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.testing.clock import ManualClock, settle
from penstock.wire import entry as wire

KEY = CursorKey("t", 0, "s")
SLOT = slot_of("t", 0, 2)


def log_of(begin: int, end: int) -> Any:
    """A topic whose log has these bounds."""
    place = Place("t", 0, "id")
    return SimpleNamespace(
        place=place, ledger=LEDGER, first_offset=begin, next_offset=end, cut_at=None, name="t"
    )


class Owner:
    """A process that serves one subscription of a log once it owns the slot."""

    def __init__(self, journal: Log, name: str, log: SkippingLog) -> None:
        self.process = Process(journal, name)
        self.log = log
        self.stored = JournalCursors(self.process.cursors)

    async def serve(self) -> set[int]:
        """Own the slot, and return the offsets that a consumer gets."""
        self.process.journal.read_on(999)
        await self.process.cursors.claim([SLOT])
        topic = log_of(self.log.first_offset, self.log.next_offset)
        found = await self.stored.open(topic, "s", refreshed=True)
        cursor = OffsetSet() if found is None else found.cursor
        log: Any = self.log
        host: Any = Host()
        self.subscription = Subscription(
            log,
            "s",
            cursor=cursor,
            durable=True,
            keys=wire.keys,
            tasks=self.process.tasks,
            cursors=self.stored.writer(topic),
            compaction=Compaction(),
            host=host,
        )
        self.consumer = Consumer("c", "s", ConsumerOptions(type=SubscriptionType.SHARED, window=100))
        self.subscription.add(self.consumer)
        await settle()
        return {one.entry.offset for one in self.consumer.take()}

    async def acknowledge(self, *offsets: int) -> None:
        for offset in offsets:
            await self.consumer.acknowledge(MessageId(LEDGER, offset, -1))
        await self.subscription.flush()

    async def close(self) -> None:
        self.subscription.close()
        await self.process.close()


async def test_a_subscription_moves_between_processes() -> None:
    journal, log = Log(), SkippingLog(ManualClock())
    log.grow(0, 10)
    a, b = Owner(journal, "a", log), Owner(journal, "b", log)
    assert await a.serve() == set(range(10))
    await a.acknowledge(0, 1, 5)
    await a.subscription.set_properties({"team": "x"})
    assert await b.serve() == {2, 3, 4, 6, 7, 8, 9}
    with pytest.raises(Replaced):
        await a.acknowledge(2)
    await b.acknowledge(2, 3, 9)
    a.subscription.close()
    assert await a.serve() == {4, 6, 7, 8}
    found = await a.stored.open(log_of(0, 10), "s", refreshed=True)
    assert found is not None
    assert found.properties == {"team": "x"}
    await a.subscription.move(1)
    with pytest.raises(Replaced):
        await b.acknowledge(4)
    b.subscription.close()
    assert await b.serve() == set(range(1, 10)), "the position was moved back"
    await b.subscription.delete()
    assert await b.stored.open(log_of(0, 10), "s", refreshed=True) is None
    await a.close()
    await b.close()


async def test_a_cursor_that_does_not_fit_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    a = Process(Log(), "a")
    await a.cursors.claim([SLOT])
    stored = JournalCursors(a.cursors)
    await a.cursors.save([CursorRecord("t", 0, "s", "id", 9, {0: b"\x00\x08", 1: b"\x01"}, b"{}")])
    assert await stored.open(log_of(0, 9), "other", refreshed=True) is None
    found = await stored.open(log_of(0, 9999), "s", refreshed=True)
    assert found is not None
    assert (found.cursor.mark, list(found.cursor.ranges()), found.properties) == (
        9,
        [(11, 11), (4096, 4096)],
        {},
    )
    assert not stored.misfits
    found = await stored.open(log_of(2, 8), "s", refreshed=True)
    assert found is not None
    assert (found.cursor.mark, found.properties) == (2, {})
    assert stored.misfits == {Misfit.BEYOND_END: 1}
    (line,) = [one for one in caplog.records if one.message == "a cursor does not fit its log"]
    assert (line.__dict__["why"], line.__dict__["begins_at"]) == ("beyond_end", 2)
    assert a.cursors.load(SLOT)[KEY] == StoredCursor("id", 2, {}, b"{}"), "also when the log has grown"


async def test_the_store_of_subscriptions() -> None:
    a = Process(Log(), "a")
    await a.cursors.claim([SLOT])
    stored = JournalCursors(a.cursors)
    changes: Sequence[CursorChange] = [CursorChange(LEDGER, "s", 4, {0: b"\x80"}, b"{}")]
    with pytest.raises(PenstockError) as caught:
        await stored.save_cursors(changes)
    assert caught.value.kind is ErrorKind.TOPIC_NOT_FOUND
    stored.writer(log_of(0, 9))
    await stored.save_cursors(changes)
    await stored.save_cursors([CursorChange(LEDGER, "s", 5, {})])
    found = await stored.open(log_of(0, 9), "s", refreshed=True)
    assert found is not None
    assert (found.cursor.mark, list(found.cursor.ranges()), found.properties) == (5, [(7, 7)], {})
    await stored.delete_cursor(LEDGER, "s")
    assert await stored.open(log_of(0, 9), "s", refreshed=True) is None
    stored.unbind(LEDGER)
    with pytest.raises(PenstockError):
        await stored.delete_cursor(LEDGER, "s")
