"""Cursors, saved as changed chunks, and small documents by kind and key."""

import asyncio

import pytest

from penstock.engines.core.ports import CursorChange
from penstock.model.errors import ErrorKind, PenstockError

from .bench import Bench, PortSuite


class MetadataSuite(PortSuite):
    """Tests of `CursorStore` and `MetaStore`."""

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
