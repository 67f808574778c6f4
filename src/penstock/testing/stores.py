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
        await bench.store.trim(7, 3)
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
        await bench.store.trim(ledger, 2)
        await bench.store.trim(ledger, 1)  # has been

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
