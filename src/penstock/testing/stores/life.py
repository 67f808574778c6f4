"""Closing and cancelling: what was asked for happens."""

import asyncio

from .bench import Bench, PortSuite, entry


class LifeSuite(PortSuite):
    """Tests of a store that stops, or whose caller does."""

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
