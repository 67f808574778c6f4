"""Trimmed logs and deleted ones."""

import asyncio

from penstock.engines.core.ports import CursorChange, LogState
from penstock.model.entry import AppendResult
from penstock.model.errors import ErrorKind

from .bench import TOPIC, Bench, PortSuite, entry


class TrimmingSuite(PortSuite):
    """Tests of `Log.trim`, `Log.delete`, and of how much lies behind an entry."""

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
        assert await bench.store.append(ledger, [entry(b"new")]) == AppendResult(2, 5)
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
