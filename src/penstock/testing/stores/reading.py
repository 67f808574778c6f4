"""Reading, and finding an entry by offset or time."""

import random

from .bench import ALL, Bench, PortSuite, entry


class ReadingSuite(PortSuite):
    """Tests of `Log.read` and the `find_…` of a log."""

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
