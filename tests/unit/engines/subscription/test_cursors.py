"""When a cursor counts as saved: what a request was answered for is stored, whoever else saves the cursor meanwhile."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.engines.subscription.cursors import CursorFlusher, StoredCursor
from penstock.engines.subscription.offsets import OffsetSet
from penstock.engines.subscription.store import CursorChange
from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.tasks import Tasks
from penstock.testing.clock import ManualClock, settle

FAILED = PenstockError(ErrorKind.STORAGE_FAILED, "the disk failed")


class Store:
    """Saves when it is told to, one call after the other."""

    def __init__(self) -> None:
        self.mark = 0
        self.chunks: dict[int, bytes | None] = {}
        self.calls: list[tuple[Sequence[CursorChange], asyncio.Future[None]]] = []

    async def save_cursors(self, changes: Sequence[CursorChange]) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.calls.append((changes, future))
        await future

    async def delete_cursor(self, ledger: int, subscription: str) -> None:
        raise AssertionError

    async def end(self, error: PenstockError | None = None) -> None:
        """Let the first call succeed, or fail."""
        changes, future = self.calls.pop(0)
        if error is not None:
            future.set_exception(error)
        else:
            for change in changes:
                self.mark = change.mark
                self.chunks |= change.chunks
            future.set_result(None)
        await settle()

    def holds(self, offset: int) -> bool:
        return bool(OffsetSet.load(self.mark, self.chunks).mask(offset, 1))


class Story:
    def __init__(self) -> None:
        self.clock, self.tasks = ManualClock(), Tasks()
        self.flusher = CursorFlusher(self.clock, 100, self.tasks.spawn)

    def cursor(self, name: str, store: Store) -> StoredCursor:
        kept: Any = store
        made: StoredCursor = StoredCursor(
            1, name, OffsetSet(), kept, {}, tasks=self.tasks, moved=lambda: self.flusher.dirty(made)
        )
        return made

    def acknowledge(self, cursor: StoredCursor, offset: int) -> None:
        cursor.cursor.add(offset, 1)
        self.flusher.dirty(cursor)


async def test_a_request_is_not_answered_for_what_an_earlier_save_lost() -> None:
    story, store = Story(), Store()
    cursor = story.cursor("s", store)
    story.acknowledge(cursor, 5)
    await story.clock.advance(100)  # the flusher takes it to the store
    asked = story.tasks.spawn(cursor.flush(), "a request")
    await settle()
    await store.end(FAILED)
    await store.end()
    assert not asked.done()
    await store.end()
    assert asked.done()
    assert store.holds(5)


async def test_a_save_counts_once_no_earlier_one_can_have_failed() -> None:
    story, store = Story(), Store()
    cursor = story.cursor("s", store)
    story.acknowledge(cursor, 5)
    await story.clock.advance(100)
    assert (cursor.saves, cursor.saves_done) == (1, 0)
    asked = story.tasks.spawn(cursor.flush(), "a request")
    await settle()
    await store.end(FAILED)
    await store.end()
    assert (cursor.saves, cursor.saves_done) == (3, 0)
    await store.end()
    assert asked.done()
    assert cursor.saves_done == 3
    story.acknowledge(cursor, 6)
    await story.clock.advance(200)
    await store.end()
    assert cursor.saves == cursor.saves_done == 4


async def test_a_request_fails_with_its_own_save_and_the_flusher_tries_again() -> None:
    story, store = Story(), Store()
    cursor = story.cursor("s", store)
    story.acknowledge(cursor, 5)
    asked = story.tasks.spawn(cursor.flush(), "a request")
    await settle()
    await store.end(FAILED)
    with pytest.raises(PenstockError):
        await asked
    await story.clock.advance(100)
    await story.clock.advance(100)
    await store.end()
    assert store.holds(5)


async def test_a_request_saves_what_the_flusher_has_not_reached() -> None:
    """Two stores are saved one after the other: what waits for the first is not taken from the second."""
    story, slow, quick = Story(), Store(), Store()
    first, second = story.cursor("a", slow), story.cursor("b", quick)
    story.acknowledge(first, 5)
    story.acknowledge(second, 5)
    await story.clock.advance(100)
    assert len(slow.calls) == 1
    asked = story.tasks.spawn(second.flush(), "a request")
    await settle()
    await quick.end()
    assert asked.done()
    assert quick.holds(5)
    await slow.end()
    assert slow.holds(5)


async def test_a_flush_at_the_end_saves_what_an_unfinished_one_has_not_reached_and_waits_for_it() -> None:
    story, slow, quick = Story(), Store(), Store()
    first, second = story.cursor("a", slow), story.cursor("b", quick)
    story.acknowledge(first, 5)
    story.acknowledge(second, 5)
    await story.clock.advance(100)
    story.flusher.close()
    ended = story.tasks.spawn(story.flusher.flush(), "the end")
    await settle()
    await quick.end()
    assert quick.holds(5)
    assert not ended.done()
    await slow.end()
    assert ended.done()
    assert slow.holds(5)


async def test_a_flush_waits_for_a_save_that_fails_and_then_for_no_other() -> None:
    story, store = Story(), Store()
    cursor = story.cursor("s", store)
    story.acknowledge(cursor, 5)
    await story.clock.advance(100)
    flushing = story.tasks.spawn(story.flusher.flush(), "a flush")
    await settle()
    assert not flushing.done()
    await store.end(FAILED)
    assert flushing.done()
    await story.clock.advance(100)
    await store.end()
    assert store.holds(5)
