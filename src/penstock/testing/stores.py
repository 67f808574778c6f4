"""The suite that every store must pass, for the stores of this project and for those of others.

Subclass it where pytest finds it, and say how a store is made; pytest and its plugin `anyio` are needed:

    class TestMyStore(StoreSuite):
        def make(self, folder: Path) -> Store:
            return MyStore(folder / "data")

`make` is called again with the same folder after a store was closed: what was durable must be there then.
A store that keeps nothing sets `durable = False`.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import pytest

from penstock.core.ports import CursorChange, LogState, Store
from penstock.model.entry import Entry, NewEntry, Placed
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.stage import Commit, Span, StagedRun, StageKey, StageRun

TOPIC = "persistent://public/default/suite"
ALL = 1 << 30  # a bound that bounds nothing here


def entry(data: bytes = b"data", count: int = 1, publish_time: int = 1000, **more: object) -> NewEntry:
    """An entry to append."""
    return NewEntry(data, count, publish_time, **more)  # type: ignore[arg-type]


class Bench:
    """A running store that can be stopped and started."""

    def __init__(self, suite: "StoreSuite", folder: Path) -> None:
        self._suite = suite
        self._folder = folder
        self.store = suite.make(folder)

    async def reopen(self) -> None:
        """Close the store and start one over what it left; one that leaves nothing goes on as it is."""
        if not self._suite.durable:
            return
        await self.store.close()
        self.store = self._suite.make(self._folder)
        await self.store.start()

    async def log(self, topic: str = TOPIC) -> int:
        """The ledger of a topic."""
        return (await self.store.open(topic)).ledger

    async def read(self, ledger: int, start: int = 0) -> list[Entry]:
        """All entries from `start` on."""
        found: list[Entry] = []
        while True:
            more = await self.store.read(ledger, start, 1000, ALL)
            if not more:
                return found
            found += more
            start = more[-1].entry_id + 1

    async def stage(
        self,
        stage: str,
        part: int,
        ledger: int,
        *entries: NewEntry,
        topic: str = TOPIC,
        writer: str = "w",
        batch: int = 0,
    ) -> None:
        """Stage entries for one log."""
        key = StageKey(writer, batch, stage)
        await self.store.stage(key, part, 0, 1, [StageRun(ledger, topic, entries)])

    async def refused(self, ledger: int, entries: Sequence[NewEntry]) -> ErrorKind:
        """The kind of error that an append raises."""
        with pytest.raises(PenstockError) as caught:
            await self.store.append(ledger, entries)
        return caught.value.kind


class StoreSuite:
    """The tests of a store; see the module."""

    pytestmark = pytest.mark.anyio
    durable: ClassVar[bool] = True

    def make(self, folder: Path) -> Store:
        """A store over `folder`, not yet started."""
        raise NotImplementedError

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncIterator[Bench]:
        bench = Bench(self, tmp_path)
        await bench.store.start()
        yield bench
        await bench.store.close()

    # --- logs ------------------------------------------------------------------------------------

    async def test_a_new_log_is_empty(self, bench: Bench) -> None:
        state = await bench.store.open(TOPIC)

        assert state == LogState(
            ledger=0,
            first_entry=0,
            next_entry=0,
            first_offset=0,
            next_offset=0,
            size_bytes=0,
            producers={},
        )
        assert await bench.store.read(0, 0, 10, ALL) == []
        assert await bench.store.find_offset(0, 0) is None
        assert await bench.store.find_time(0, 0) is None

    async def test_entries_come_back_as_they_went_in(self, bench: Bench) -> None:
        ledger = await bench.log()
        one = entry(b"one", 1, 10)
        two = entry(bytes(range(256)) * 100, 3, 20, deliver_at=30, producer="p", sequence_id=7)
        three = entry(b"", 1, 25)

        assert await bench.store.append(ledger, [one, two]) == Placed(0, 0)
        assert await bench.store.append(ledger, [three]) == Placed(2, 4)

        expected = [
            Entry(ledger, 0, 0, 1, 10, 0, b"one"),
            Entry(ledger, 1, 1, 3, 20, 30, two.data),
            Entry(ledger, 2, 4, 1, 25, 0, b""),
        ]
        assert await bench.read(ledger) == expected
        await bench.reopen()
        assert await bench.log() == ledger
        assert await bench.read(ledger) == expected

    async def test_ledgers_count_from_0_and_belong_to_their_topics(self, bench: Bench) -> None:
        assert [await bench.log(f"t{n}") for n in range(3)] == [0, 1, 2]
        assert await bench.log("t1") == 1
        await bench.reopen()
        assert [await bench.log(topic) for topic in ("t2", "t3", "t0")] == [2, 3, 0]

    async def test_one_topic_opened_by_many_at_once_has_one_log(self, bench: Bench) -> None:
        states = await asyncio.gather(*(bench.store.open(TOPIC) for _ in range(20)))

        assert {state.ledger for state in states} == {0}

    async def test_thousands_of_topics_open_at_once(self, bench: Bench) -> None:
        topics = [f"topic-{n}" for n in range(3000)]
        states = await asyncio.gather(*(bench.store.open(topic) for topic in topics))

        assert sorted(state.ledger for state in states) == list(range(3000))
        await bench.reopen()
        again = await asyncio.gather(*(bench.store.open(topic) for topic in topics))
        assert again == states

    async def test_appends_keep_the_order_of_the_calls(self, bench: Bench) -> None:
        ledger = await bench.log()
        calls = [bench.store.append(ledger, [entry(b"%d" % n)]) for n in range(500)]
        places = [await call for call in reversed(calls)]

        assert [place.entry_id for place in reversed(places)] == list(range(500))
        assert [e.data for e in await bench.read(ledger)] == [b"%d" % n for n in range(500)]

    async def test_an_append_of_nothing_says_where_the_next_would_be(self, bench: Bench) -> None:
        ledger = await bench.log()
        await bench.store.append(ledger, [entry(count=5)])

        assert await bench.store.append(ledger, []) == Placed(1, 5)
        assert await bench.store.append(ledger, [entry()]) == Placed(1, 5)

    async def test_many_logs_appended_to_at_once_have_no_gaps(self, bench: Bench) -> None:
        ledgers = [await bench.log(f"t{n}") for n in range(20)]
        dice = random.Random(1)
        sent: dict[int, list[NewEntry]] = {ledger: [] for ledger in ledgers}

        async def publish(name: int) -> None:
            for number in range(30):
                ledger = dice.choice(ledgers)
                entries = [
                    entry(b"%d:%d" % (name, number), dice.randint(1, 9)) for _ in range(dice.randint(1, 3))
                ]
                sent[ledger] += entries
                placed = await bench.store.append(ledger, entries)
                found = await bench.store.read(ledger, placed.entry_id, len(entries), ALL)
                assert [e.data for e in found] == [e.data for e in entries]
                assert found[0].offset == placed.offset

        await asyncio.gather(*(publish(name) for name in range(10)))
        for _ in range(2):
            for ledger in ledgers:
                found = await bench.read(ledger)
                assert [(e.data, e.count) for e in found] == [(e.data, e.count) for e in sent[ledger]]
                assert [e.entry_id for e in found] == list(range(len(found)))
                assert all(before.end == after.offset for before, after in pairwise(found))
            await bench.reopen()
            assert [await bench.log(f"t{n}") for n in range(20)] == ledgers

    async def test_a_refused_append_leaves_nothing_and_spares_its_neighbours(self, bench: Bench) -> None:
        ledger = await bench.log()
        bad = entry(b"bad", publish_time=1 << 70)  # no store can keep this time
        calls = [bench.store.append(ledger, [entry(b"%d" % n)]) for n in range(3)]
        calls.append(bench.store.append(ledger, [entry(b"3"), bad, entry(b"5")]))
        calls += [bench.store.append(ledger, [entry(b"%d" % n)]) for n in range(6, 9)]
        results = await asyncio.gather(*calls, return_exceptions=True)

        if self.durable:
            assert isinstance(results[3], PenstockError)
            assert [e.data for e in await bench.read(ledger)] == [b"0", b"1", b"2", b"6", b"7", b"8"]
        found = await bench.read(ledger)
        assert [e.entry_id for e in found] == list(range(len(found)))

    async def test_an_unknown_ledger_reads_as_empty_and_takes_nothing(self, bench: Bench) -> None:
        assert await bench.store.read(7, 0, 10, ALL) == []
        assert await bench.store.find_offset(7, 0) is None
        assert await bench.store.find_time(7, 0) is None
        assert await bench.store.trim(7, 3) == 0
        assert await bench.store.find_size(7, 10) is None
        assert await bench.store.size_since(7, 0) == 0
        await bench.store.forget_producers(7, ["p"])
        await bench.store.delete(7)
        await bench.store.delete_cursor(7, "s")
        assert await bench.store.load_cursors(7) == []
        assert await bench.refused(7, [entry()]) is ErrorKind.TOPIC_NOT_FOUND

    # --- reading ---------------------------------------------------------------------------------

    async def test_read_keeps_within_its_bounds_but_gives_one(self, bench: Bench) -> None:
        ledger = await bench.log()
        await bench.store.append(ledger, [entry(bytes(100)) for _ in range(10)])

        async def ids(start: int, entries_max: int, bytes_max: int) -> list[int]:
            return [e.entry_id for e in await bench.store.read(ledger, start, entries_max, bytes_max)]

        assert await ids(0, 3, ALL) == [0, 1, 2]
        assert await ids(4, 100, 300) == [4, 5, 6]
        assert await ids(4, 100, 299) == [4, 5]
        assert await ids(4, 100, 1) == [4]
        assert await ids(4, 1, 0) == [4]
        assert await ids(8, 100, ALL) == [8, 9]
        assert await ids(10, 100, ALL) == []
        assert await ids(11, 100, ALL) == []
        assert await ids(-5, 2, ALL) == [0, 1]

    async def test_find_offset(self, bench: Bench) -> None:
        ledger = await bench.log()
        counts = [1, 3, 1, 10, 2] * 20
        for count in counts:
            await bench.store.append(ledger, [entry(count=count)])
        holder = [number for number, count in enumerate(counts) for _ in range(count)]

        async def found(offset: int) -> int | None:
            at = await bench.store.find_offset(ledger, offset)
            return None if at is None else at.entry_id

        assert [await found(offset) for offset in range(len(holder))] == holder
        assert await found(len(holder)) is None
        assert await found(len(holder) + 1000) is None
        assert await found(-1) == 0
        await bench.store.trim(ledger, 2)
        assert [await found(offset) for offset in range(6)] == [2, 2, 2, 2, 2, 3]

    async def test_find_time(self, bench: Bench) -> None:
        ledger = await bench.log()
        await bench.log("another")
        times = [10, 10, 20, 30, 30, 30, 40]
        await bench.store.append(ledger, [entry(publish_time=time) for time in times])

        async def found(time: int) -> int | None:
            at = await bench.store.find_time(ledger, time)
            return None if at is None else at.entry_id

        asked = (0, 10, 11, 20, 29, 30, 31, 40, 41)
        assert [await found(time) for time in asked] == [0, 0, 2, 2, 3, 3, 6, 6, None]
        await bench.store.trim(ledger, 4)
        assert [await found(time) for time in asked] == [4, 4, 4, 4, 4, 4, 6, 6, None]

    async def test_find_time_stops_at_a_step_up_where_times_are_out_of_order(self, bench: Bench) -> None:
        ledger = await bench.log()
        dice = random.Random(2)
        times = [dice.randint(0, 50) for _ in range(100)]
        await bench.store.append(ledger, [entry(publish_time=time) for time in times])

        for time in range(51):
            at = await bench.store.find_time(ledger, time)
            if at is not None:
                assert at.publish_time >= time
                assert at.entry_id == 0 or times[at.entry_id - 1] < time

    # --- trimming and deleting -------------------------------------------------------------------

    async def test_trim_lets_go_of_what_is_before(self, bench: Bench) -> None:
        ledger = await bench.log()
        await bench.store.append(ledger, [entry(bytes(10 + n), n + 1) for n in range(5)])
        assert await bench.store.trim(ledger, 2) == 10 + 11
        assert await bench.store.trim(ledger, 1) == 0  # has been

        expected = LogState(
            ledger=ledger,
            first_entry=2,
            next_entry=5,
            first_offset=3,
            next_offset=15,
            size_bytes=12 + 13 + 14,
            producers={},
        )
        assert await bench.store.open(TOPIC) == expected
        assert [e.entry_id for e in await bench.read(ledger)] == [2, 3, 4]
        await bench.reopen()
        assert await bench.store.open(TOPIC) == expected
        assert [e.offset for e in await bench.read(ledger)] == [3, 6, 10]

    async def test_how_much_lies_behind_an_entry(self, bench: Bench) -> None:
        ledger = await bench.log()
        assert await bench.store.find_size(ledger, 100) is None
        assert await bench.store.size_since(ledger, 0) == 0
        await bench.store.append(ledger, [entry(bytes(size)) for size in (10, 0, 20, 30, 0)])

        async def sizes() -> list[int]:
            return [await bench.store.size_since(ledger, n) for n in range(6)]

        async def found() -> list[int | None]:
            entries = [await bench.store.find_size(ledger, n) for n in (1000, 60, 59, 50, 49, 30, 29, 0)]
            return [None if e is None else e.entry_id for e in entries]

        assert await sizes() == [60, 50, 50, 30, 0, 0]
        assert await found() == [0, 0, 1, 1, 3, 3, 4, 4]
        await bench.store.trim(ledger, 2)
        assert await sizes() == [50, 50, 50, 30, 0, 0]
        assert await found() == [2, 2, 2, 2, 3, 3, 4, 4]
        await bench.reopen()
        ledger = await bench.log()
        assert await sizes() == [50, 50, 50, 30, 0, 0]
        await bench.store.append(ledger, [entry(b"12345")])
        assert await bench.store.find_size(ledger, 4) is None
        assert await bench.store.size_since(ledger, 4) == 5

    async def test_forgotten_producers_count_anew(self, bench: Bench) -> None:
        ledger, other = await bench.log(), await bench.log("other")
        for log in (ledger, other):
            entries = [entry(producer=name, sequence_id=9) for name in ("a", "b", "c'")]
            await bench.store.append(log, entries)
        await bench.store.forget_producers(ledger, ["a", "c'", "never"])
        await bench.store.forget_producers(ledger, [])

        assert (await bench.store.open(TOPIC)).producers == {"b": 9}
        await bench.store.append(ledger, [entry(producer="a", sequence_id=3)])
        await bench.reopen()
        assert (await bench.store.open(TOPIC)).producers == {"a": 3, "b": 9}
        assert (await bench.store.open("other")).producers == {"a": 9, "b": 9, "c'": 9}

    async def test_trim_of_everything_keeps_counting(self, bench: Bench) -> None:
        ledger = await bench.log()
        await bench.store.append(ledger, [entry(count=2), entry(count=3)])
        await bench.store.trim(ledger, 1 << 39)

        expected = LogState(
            ledger=ledger,
            first_entry=2,
            next_entry=2,
            first_offset=5,
            next_offset=5,
            size_bytes=0,
            producers={},
        )
        assert await bench.store.open(TOPIC) == expected
        assert await bench.store.find_offset(ledger, 0) is None
        assert await bench.store.find_time(ledger, 0) is None
        await bench.reopen()
        assert await bench.store.open(TOPIC) == expected
        assert await bench.store.append(ledger, [entry(b"new")]) == Placed(2, 5)
        assert [e.data for e in await bench.read(ledger)] == [b"new"]
        await bench.reopen()
        assert (await bench.store.open(TOPIC)).next_offset == 6

    async def test_trims_while_appending(self, bench: Bench) -> None:
        ledger = await bench.log()
        for number in range(50):
            calls: list[asyncio.Future[object]] = [
                bench.store.append(ledger, [entry(b"%d" % (number * 10 + n)) for n in range(10)]),  # type: ignore[list-item]
                bench.store.trim(ledger, number * 10 - 15),  # type: ignore[list-item]
            ]
            await asyncio.gather(*calls)
        found = await bench.read(ledger)

        assert [e.data for e in found] == [b"%d" % n for n in range(475, 500)]
        await bench.reopen()
        assert (await bench.store.open(TOPIC)).first_entry == 475
        assert await bench.read(ledger) == found

    async def test_a_deleted_log_is_gone_and_its_ledger_never_comes_back(self, bench: Bench) -> None:
        others = [await bench.log("before")]
        ledger = await bench.log()
        await bench.store.append(ledger, [entry(producer="p", sequence_id=3)])
        await bench.store.save_cursors([CursorChange(ledger, "s", 1, {0: b"\1"})])
        await bench.store.append(others[0], [entry(b"stays")])
        await bench.store.delete(ledger)

        assert await bench.read(ledger) == []
        assert await bench.store.load_cursors(ledger) == []
        assert await bench.refused(ledger, [entry()]) is ErrorKind.TOPIC_NOT_FOUND
        await bench.reopen()
        state = await bench.store.open(TOPIC)
        assert (state.ledger, state.next_entry, state.producers) == (2, 0, {})
        await bench.store.delete(state.ledger)
        assert await bench.log() == 3
        assert await bench.log("before") == others[0]
        assert [e.data for e in await bench.read(others[0])] == [b"stays"]

    # --- producers -------------------------------------------------------------------------------

    async def test_producers_highest_sequence_ids_are_kept(self, bench: Bench) -> None:
        ledger = await bench.log()
        other = await bench.log("other")
        await bench.store.append(ledger, [entry(producer="a", sequence_id=n) for n in (0, 5, 3)])
        await asyncio.gather(
            bench.store.append(ledger, [entry(producer="b", sequence_id=1 << 62), entry()]),
            bench.store.append(other, [entry(producer="a", sequence_id=1)]),
            bench.store.append(
                ledger, [entry(producer="a", sequence_id=4), entry(producer="ü ", sequence_id=0)]
            ),
            bench.store.append(ledger, [entry(producer="c", sequence_id=-1)]),
        )
        for _ in range(2):
            assert (await bench.store.open(TOPIC)).producers == {"a": 5, "b": 1 << 62, "ü ": 0}
            assert (await bench.store.open("other")).producers == {"a": 1}
            await bench.store.trim(ledger, 100)
            await bench.reopen()

    # --- cursors ---------------------------------------------------------------------------------

    async def test_cursors_change_by_what_is_saved(self, bench: Bench) -> None:
        ledger = await bench.log()
        save = bench.store.save_cursors

        async def cursors() -> dict[str, CursorChange]:
            return {cursor.subscription: cursor for cursor in await bench.store.load_cursors(ledger)}

        await save(
            [CursorChange(ledger, "s", 5, {0: b"\1", 2: b"\2"}, b"props"), CursorChange(ledger, "t", -1, {})]
        )
        assert await cursors() == {
            "s": CursorChange(ledger, "s", 5, {0: b"\1", 2: b"\2"}, b"props"),
            "t": CursorChange(ledger, "t", -1, {}, None),
        }
        await save([CursorChange(ledger, "s", 4096, {0: None, 1: b"\3" * 512, 9: None})])
        assert (await cursors())["s"] == CursorChange(ledger, "s", 4096, {1: b"\3" * 512, 2: b"\2"}, b"props")
        await asyncio.gather(
            save([CursorChange(ledger, "s", 5000, {2: None}, b"")]),
            save([CursorChange(ledger, "s", 5001, {2: b"\5", 3: b"\6"}), CursorChange(ledger, "t", 1, {})]),
            save([CursorChange(ledger, "s", 5002, {3: None})]),
        )
        expected = {
            "s": CursorChange(ledger, "s", 5002, {1: b"\3" * 512, 2: b"\5"}, b""),
            "t": CursorChange(ledger, "t", 1, {}, None),
        }
        assert await cursors() == expected
        await bench.reopen()
        assert await bench.log() == ledger
        assert await cursors() == expected

    async def test_a_cursor_of_many_chunks(self, bench: Bench) -> None:
        ledger = await bench.log()
        chunks: dict[int, bytes | None] = {n: n.to_bytes(512, "little") for n in range(2500)}
        await bench.store.save_cursors([CursorChange(ledger, "s", 0, chunks)])
        changed: dict[int, bytes | None] = dict.fromkeys(range(0, 2500, 2))
        await bench.store.save_cursors([CursorChange(ledger, "s", 1, changed)])

        left = {n: bits for n, bits in chunks.items() if n % 2}
        assert await bench.store.load_cursors(ledger) == [CursorChange(ledger, "s", 1, left)]

    async def test_cursors_are_saved_all_or_none(self, bench: Bench) -> None:
        ledger = await bench.log()
        with pytest.raises(PenstockError) as caught:
            await bench.store.save_cursors([CursorChange(ledger, "s", 1, {}), CursorChange(99, "s", 1, {})])

        assert caught.value.kind is ErrorKind.TOPIC_NOT_FOUND
        assert await bench.store.load_cursors(ledger) == []

    async def test_a_deleted_cursor_is_gone(self, bench: Bench) -> None:
        ledger = await bench.log()
        await bench.store.save_cursors([CursorChange(ledger, name, 1, {0: b"\1"}, b"x") for name in "st"])
        await bench.store.delete_cursor(ledger, "s")
        await bench.store.delete_cursor(ledger, "never was")
        assert await bench.store.load_cursors(ledger) == [CursorChange(ledger, "t", 1, {0: b"\1"}, b"x")]

        await bench.store.save_cursors([CursorChange(ledger, "s", 7, {})])
        found = {cursor.subscription: cursor for cursor in await bench.store.load_cursors(ledger)}
        assert found["s"] == CursorChange(ledger, "s", 7, {}, None)

    async def test_saving_and_deleting_a_cursor_keep_their_order(self, bench: Bench) -> None:
        ledger = await bench.log()
        change = CursorChange(ledger, "s", 1, {0: b"\1"})
        calls = [bench.store.save_cursors([change]), bench.store.delete_cursor(ledger, "s")] * 3
        await asyncio.gather(*calls)

        assert await bench.store.load_cursors(ledger) == []

    # --- documents -------------------------------------------------------------------------------

    async def test_documents_by_kind_and_key(self, bench: Bench) -> None:
        save, load = bench.store.save_meta, bench.store.load_meta
        await save([("a", "1", b"one"), ("a", "2", b""), ("b", "1", b"other")])
        await save([("a", "1", None), ("a", "3", b"three"), ("b", "1", b"changed"), ("c", "never was", None)])
        await save([("a", "4", b"first"), ("a", "4", None), ("a", "5", None), ("a", "5", b"last")])
        for _ in range(2):
            assert await bench.store.load_meta("a") == {"2": b"", "3": b"three", "5": b"last"}
            assert await bench.store.load_meta("b") == {"1": b"changed"}
            assert await load("c") == {}
            await bench.reopen()
            load = bench.store.load_meta

    # --- closing ---------------------------------------------------------------------------------

    async def test_close_finishes_what_was_asked_for(self, bench: Bench) -> None:
        ledger = await bench.log()
        calls = [bench.store.append(ledger, [entry(b"%d" % n)]) for n in range(100)]
        await bench.store.close()
        await bench.store.close()

        assert [(await call).entry_id for call in calls] == list(range(100))
        await bench.reopen()
        assert await bench.log() == ledger
        assert len(await bench.read(ledger)) == 100

    async def test_a_cancelled_append_harms_nobody(self, bench: Bench) -> None:
        ledger = await bench.log()

        async def publish() -> None:
            await bench.store.append(ledger, [entry(b"cancelled")])

        async with asyncio.TaskGroup() as group:
            task = group.create_task(publish())
            group.create_task(publish())
            await asyncio.sleep(0)
            task.cancel()
        placed = await bench.store.append(ledger, [entry(b"last")])
        found = await bench.read(ledger)

        assert found[-1].data == b"last"
        assert found[-1].entry_id == placed.entry_id == len(found) - 1

    # --- staged publishing -----------------------------------------------------------------------

    async def test_what_is_staged_is_seen_by_nobody_before_its_commit(self, bench: Bench) -> None:
        ledger = await bench.log()
        await bench.store.append(ledger, [entry(b"before", 2, 10)])
        await bench.stage("s", 0, ledger, entry(b"one", 3, 20, deliver_at=7), entry(b"two", 1, 21))
        assert [e.data for e in await bench.read(ledger)] == [b"before"]
        assert (await bench.store.open(TOPIC)).next_offset == 2

        commit = await bench.store.commit_stages(Commit("w", 0, 99), ["s"])

        span = Span(TOPIC, ledger, entry_id=1, entries=2, offset=2, messages=4, size_bytes=6)
        assert commit == Commit("w", 0, 99, spans=(span,))
        expected = [
            Entry(ledger, 0, 0, 2, 10, 0, b"before"),
            Entry(ledger, 1, 2, 3, 99, 7, b"one"),
            Entry(ledger, 2, 5, 1, 99, 0, b"two"),
        ]
        assert await bench.read(ledger) == expected
        assert await bench.store.append(ledger, [entry(b"after")]) == Placed(3, 6)
        assert await bench.store.find_offset(ledger, 4) == expected[1]
        assert await bench.store.find_time(ledger, 50) == expected[1]
        await bench.reopen()
        state = await bench.store.open(TOPIC)
        assert (state.next_entry, state.next_offset, state.size_bytes) == (4, 7, 6 + 6 + 5)
        assert (await bench.read(ledger))[:3] == expected
        assert await bench.store.load_stages() == ([], [commit])

    async def test_a_commit_takes_stages_and_parts_in_order_over_several_logs(self, bench: Bench) -> None:
        one, two = await bench.log("a"), await bench.log("b")
        key = StageKey("w", 5, "second")
        await bench.store.stage(
            key, 0, 1, 1, [StageRun(two, "b", [entry(b"b3")]), StageRun(one, "a", [entry(b"a3")])]
        )
        await bench.stage("first", 1, one, entry(b"a2"), topic="a", batch=5)
        await bench.stage("first", 0, one, entry(b"a1"), topic="a", batch=5)
        await bench.stage("lost", 0, one, entry(b"lost"), topic="a", batch=5)

        commit = await bench.store.commit_stages(Commit("w", 5, 9, "role", False), ["first", "second"])

        assert [e.data for e in await bench.read(one)] == [b"a1", b"a2", b"a3"]
        assert [e.data for e in await bench.read(two)] == [b"b3"]
        assert {span.topic: span.messages for span in commit.spans} == {"a": 3, "b": 1}
        assert await bench.store.load_stages() == ([], [commit])

    async def test_a_batch_is_committed_once(self, bench: Bench) -> None:
        ledger = await bench.log()
        await bench.stage("s", 0, ledger, entry(b"x"), batch=3)
        commit = await bench.store.commit_stages(Commit("w", 3, 9), ["s"])
        for again in (3, 2, 0):
            await bench.stage("t", 0, ledger, entry(b"again"), batch=again)
            assert await bench.store.commit_stages(Commit("w", again, 10), ["t"]) == commit
            await bench.store.drop_stages([StageKey("w", again, "t")])
        await bench.reopen()
        await bench.log()
        assert await bench.store.commit_stages(Commit("w", 3, 11), ["s"]) == commit
        assert [e.data for e in await bench.read(ledger)] == [b"x"]
        empty = await bench.store.commit_stages(Commit("w", 4, 12), [])
        assert empty == Commit("w", 4, 12)
        await bench.stage("s", 0, ledger, entry(b"other"), writer="v")
        await bench.store.commit_stages(Commit("v", 0, 13), ["s"])
        assert [e.data for e in await bench.read(ledger)] == [b"x", b"other"]
        await bench.store.forget_commits(["w", "nobody"])
        assert [c.writer for c in (await bench.store.load_stages())[1]] == ["v"]

    async def test_a_commit_that_is_refused_changes_nothing(self, bench: Bench) -> None:
        one, two = await bench.log("a"), await bench.log("b")
        await bench.stage("s", 0, one, entry(b"x"), topic="a")
        await bench.stage("t", 0, two, entry(b"y"), topic="b")
        await bench.store.delete(two)
        for stages, kind in (
            (["s", "missing"], ErrorKind.STAGE_NOT_FOUND),
            (["s", "t"], ErrorKind.TOPIC_NOT_FOUND),
        ):
            with pytest.raises(PenstockError) as caught:
                await bench.store.commit_stages(Commit("w", 0, 9), stages)
            assert caught.value.kind is kind
        assert await bench.read(one) == []
        with pytest.raises(PenstockError) as caught:
            await bench.stage("u", 0, 999, entry(b"x"))
        assert caught.value.kind is ErrorKind.TOPIC_NOT_FOUND
        runs, commits = await bench.store.load_stages()
        assert {run.key.stage for run in runs} == {"s", "t"}
        assert commits == []
        await bench.store.commit_stages(Commit("w", 0, 9), ["s"])
        assert [e.data for e in await bench.read(one)] == [b"x"]

    async def test_stages_survive_a_restart_until_they_are_dropped(self, bench: Bench) -> None:
        ledger = await bench.log()
        key = StageKey("w", 0, "s")
        await bench.store.stage(key, 4, 77, 123, [StageRun(ledger, TOPIC, [entry(b"abc", 5), entry(b"de")])])
        await bench.stage("t", 0, ledger, entry(b"t"))
        await bench.reopen()
        runs, _ = await bench.store.load_stages()
        assert StagedRun(key, 4, 77, 123, ledger, TOPIC, 6, 5) in runs
        await bench.store.drop_stages([key, StageKey("w", 0, "not there")])
        await bench.log()
        with pytest.raises(PenstockError):
            await bench.store.commit_stages(Commit("w", 0, 9), ["s"])
        await bench.store.commit_stages(Commit("w", 0, 9), ["t"])
        assert [e.data for e in await bench.read(ledger)] == [b"t"]

    async def test_what_was_committed_is_trimmed_and_deleted_like_the_rest(self, bench: Bench) -> None:
        ledger = await bench.log()
        for batch in range(4):
            await bench.store.append(ledger, [entry(b"plain" * 10)])
            await bench.stage(
                "s", 0, ledger, *[entry(b"%d-%d" % (batch, n) * 50) for n in range(5)], batch=batch
            )
            await bench.store.commit_stages(Commit("w", batch, batch), ["s"])
        await bench.store.trim(ledger, 15)
        await bench.reopen()
        state = await bench.store.open(TOPIC)
        left = await bench.read(ledger)
        assert [e.entry_id for e in left] == list(range(15, 24))
        assert left[0].data == b"2-2" * 50
        assert state.size_bytes == sum(len(e.data) for e in left)
        await bench.store.delete(ledger)
        assert await bench.store.read(ledger, 0, 10, ALL) == []

    async def test_commits_and_appends_at_once_leave_no_gap(self, bench: Bench) -> None:
        ledger = await bench.log()

        async def commits(writer: str) -> None:
            for batch in range(10):
                await bench.stage("s", 0, ledger, *[entry(b"s", 3)] * 4, writer=writer, batch=batch)
                await bench.store.commit_stages(Commit(writer, batch, 1), ["s"])

        async def appends() -> None:
            for _ in range(30):
                await bench.store.append(ledger, [entry(b"a", 2)])

        await asyncio.gather(commits("v"), commits("w"), appends(), appends())
        found = await bench.read(ledger)
        assert len(found) == 2 * 40 + 2 * 30
        assert [e.entry_id for e in found] == list(range(len(found)))
        assert all(one.end == other.offset for one, other in pairwise(found))
