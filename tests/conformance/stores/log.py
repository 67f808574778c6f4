"""Logs: what is appended, in which order, and what is found; and what closing and cancelling leave."""

import asyncio
import random
from itertools import pairwise

from penstock.engines.core.ports import LogState
from penstock.model.entry import AppendResult, Entry, NewEntry, NewRun
from penstock.model.errors import ErrorKind, PenstockError

from .bench import ALL, TOPIC, Bench, PortSuite, entry


class LogSuite(PortSuite):
    """Tests of `Log` and `LogSearch`; of trimming see `TrimmingSuite`."""

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

        assert await bench.store.append(ledger, [one, two]) == AppendResult(0, 0)
        assert await bench.store.append(ledger, [three]) == AppendResult(2, 4)

        expected = [
            Entry(ledger, 0, 0, 1, 10, 0, b"one"),
            Entry(ledger, 1, 1, 3, 20, 30, two.data),
            Entry(ledger, 2, 4, 1, 25, 0, b""),
        ]
        assert await bench.read(ledger) == expected
        await bench.reopen()
        assert await bench.log() == ledger
        assert await bench.read(ledger) == expected

    async def test_runs_hold_the_entries(self, bench: Bench) -> None:
        ledger = await bench.log()
        await bench.store.append(ledger, NewRun([b"%d" % n for n in range(9)], 1000))
        await bench.store.append(
            ledger, [entry(b"batch", 3), entry(b"late", deliver_at=5), entry(b"x" * 5000)]
        )
        await bench.store.append(ledger, [entry(b"%d" % n, 1, 1000 + n // 5) for n in range(30)])
        for start in range(0, 42, 6):
            expected = [(e.entry_id, e.offset, e.count, e.data) for e in await bench.read(ledger, start)]
            assert expected[0][0] == start
            assert await bench.read_runs(ledger, start) == expected
            assert await bench.read_runs(ledger, start, entries_max=4) == expected
        assert await bench.read_runs(ledger, 42) == []
        assert len(await bench.store.read_runs(ledger, 9, 3, 1)) == 1, "one, whatever the bounds"
        await bench.store.trim(ledger, 4)
        assert [each[0] for each in await bench.read_runs(ledger, 0)] == list(range(4, 42))

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

        assert await bench.store.append(ledger, []) == AppendResult(1, 5)
        assert await bench.store.append(ledger, [entry()]) == AppendResult(1, 5)

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
