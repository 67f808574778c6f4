"""Small documents by kind and key."""

from .bench import Bench, PortSuite


class MetaSuite(PortSuite):
    """Tests of `MetaStore`."""

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
