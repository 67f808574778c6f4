"""Reading without a subscription: by position, by id, by time, and waiting for what comes."""

import asyncio
from itertools import pairwise

import pytest

from penstock.broker.log import Log
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.model.policy import SubscriptionType
from penstock.wire import entry as wire

from .bench import Bench, EngineTests


class ReadingTests(EngineTests):
    """Tests of `Log`."""

    async def test_entries_by_position(self, bench: Bench) -> None:
        await bench.publish("a", "b", "c", batch=True)
        await bench.publish("d", "e")
        log = await bench.log()
        entries = await log.read_at(log.bounds.first_offset, 10)
        if not self.batches:
            assert payloads(bench, entries) == list("abcde")
            assert [one.count for one in entries] == [1] * 5
            for at, entry in enumerate(entries):
                assert payloads(bench, await log.read_at(entry.offset, 10)) == list("abcde")[at:]
            assert await log.read_at(log.bounds.next_offset, 10) == []
            return

        assert payloads(bench, entries) == ["abc", "d", "e"]
        assert [one.count for one in entries] == [3, 1, 1]
        assert all(one.end <= other.offset for one, other in pairwise(entries))
        for at, entry in enumerate(entries):
            found = await log.read_at(entry.offset, 10)
            assert payloads(bench, found) == ["abc", "d", "e"][at:]
        inside = await log.read_at(entries[0].offset + 1, 1)
        assert payloads(bench, inside) == ["abc"]
        assert payloads(bench, await log.read_at(entries[0].end, 1)) == ["d"]
        assert await log.read_at(log.bounds.next_offset, 10) == []
        assert payloads(bench, await log.read(await log.entry_at(entries[1].offset), 1)) == ["d"]

    async def test_reading_on_at_the_end_of_each_entry(self, bench: Bench) -> None:
        sent = [f"m{n}" for n in range(60)]
        for start in range(0, 60, 6):
            await bench.publish(*sent[start : start + 6], batch=start % 12 == 0)
        log = await bench.log()
        seen: list[str] = []
        at = log.bounds.first_offset
        while found := await log.read_at(at, 4):
            assert len(found) <= 4
            seen += [one.payload.decode() for entry in found for one in wire.decode(entry)]
            at = found[-1].end

        assert seen == sent
        assert at == log.bounds.next_offset

    async def test_a_bound_in_bytes_brings_at_least_one_entry(self, bench: Bench) -> None:
        await bench.publish("x" * 2000, "y" * 2000, "z" * 2000)
        log = await bench.log()

        assert len(await log.read_at(log.bounds.first_offset, 10, 1)) == 1
        assert 1 <= len(await log.read_at(log.bounds.first_offset, 10, 5000)) < 3
        assert len(await log.read_at(log.bounds.first_offset, 10, 1 << 20)) == 3

    async def test_by_id(self, bench: Bench) -> None:
        ids = await bench.publish("a", "b", "c", batch=self.batches)
        ids += await bench.publish("d", "e")
        log = await bench.log()
        if not self.batches:
            entries = await log.read_at(log.bounds.first_offset, 10)
            assert [log.id_of(one, -1) for one in entries] == ids
            for at, one in enumerate(entries):
                assert await log.offset_after(ids[at], inclusive=True) == one.offset
                assert await log.offset_after(ids[at]) == one.end
            await self._no_other_ids(log, ids[0])
            return
        first, second, third = await log.read_at(log.bounds.first_offset, 10)

        assert await log.offset_after(EARLIEST) == log.bounds.first_offset
        assert await log.offset_after(LATEST) == log.bounds.next_offset
        assert await log.offset_after(ids[1], inclusive=True) == first.offset + 1
        assert await log.offset_after(ids[3], inclusive=True) == second.offset
        for at, expected in ((1, "abc"), (2, "d"), (3, "e")):
            found = await log.read_at(await log.offset_after(ids[at]), 1)
            assert payloads(bench, found) == [expected]
        assert await log.read_at(await log.offset_after(ids[4]), 1) == []
        assert [log.id_of(first, index) for index in range(3)] == ids[:3]
        assert [log.id_of(one, -1) for one in (second, third)] == ids[3:]
        await self._no_other_ids(log, ids[0])

    async def _no_other_ids(self, log: Log, one: MessageId) -> None:
        with pytest.raises(PenstockError) as caught:
            await log.offset_after(MessageId(one.ledger + (1 << 50), 0, 7))
        assert caught.value.kind is ErrorKind.BAD_PARAMETER

    async def test_by_time(self, bench: Bench) -> None:
        begun = await bench.tick()
        await bench.publish("a")
        await bench.tick()
        between = await bench.tick()
        await bench.publish("b")
        log = await bench.log()
        (first, second) = await log.read_at(log.bounds.first_offset, 10)

        assert first.publish_time < between <= second.publish_time
        assert await log.offset_at_time(begun) == first.offset
        assert await log.offset_at_time(0) == first.offset
        assert payloads(bench, await log.read_at(await log.offset_at_time(between), 10)) == ["b"]
        after = await bench.tick() + 1
        assert await log.read_at(await log.offset_at_time(after), 10) == []

    async def test_a_log_grows_while_it_is_waited_for(self, bench: Bench) -> None:
        log = await bench.log()
        assert not await log.grown(log.bounds.next_offset, 20)
        waiting = asyncio.gather(log.grown(log.bounds.next_offset, 30_000))
        await asyncio.sleep(0)
        await bench.publish("a")

        (grown,) = await waiting
        assert grown
        assert payloads(bench, await log.read_at(log.bounds.first_offset, 10)) == ["a"]

    async def test_reading_leaves_no_trace(self, bench: Bench) -> None:
        await bench.publish("a", "b")
        log = await bench.log()
        both = await asyncio.gather(*(log.read_at(log.bounds.first_offset, 10) for _ in range(5)))

        assert {"".join(payloads(bench, one)) for one in both} == {"ab"}
        client = await bench.consume(SubscriptionType.EXCLUSIVE)
        assert await client.come(2) == ["a", "b"]
        await client.acknowledge()
        assert payloads(bench, await log.read_at(log.bounds.first_offset, 10)) == ["a", "b"]

    async def test_an_empty_log(self, bench: Bench) -> None:
        log = await bench.log()

        assert log.bounds.first_offset == log.bounds.next_offset
        assert await log.read_at(log.bounds.first_offset, 10) == []
        assert await log.offset_after(LATEST) == await log.offset_after(EARLIEST) == log.bounds.next_offset


def payloads(bench: Bench, entries: list[Entry]) -> list[str]:
    """The payloads of each entry, together."""
    decode = wire.decode
    return [b"".join(one.payload for one in decode(entry)).decode() for entry in entries]
