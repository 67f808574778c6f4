"""Byte positions of a log, as Kafka REST counts them; and the journals in which processes before a cluster keep them."""

from functools import partial
from uuid import uuid4

from penstock.broker.capability import Capability
from penstock.broker.topic import Topic
from penstock.protocols.kafka_rest.blocks import Blocks
from penstock.protocols.kafka_rest.checkpoints import KIND
from penstock.protocols.kafka_rest.framing import HEAD_BYTES, render
from penstock.protocols.kafka_rest.local_positions import LocalPositions
from penstock.protocols.kafka_rest.positions import LogPositions
from penstock.protocols.kafka_rest.shared_positions import SharedPositions

from .bench import Bench, EngineTests


def positions(bench: Bench, log: Topic) -> LogPositions:
    """The positions of a log, as a server that has just started knows them."""
    open_journal = bench.broker.open_journal
    if open_journal is None:
        return LocalPositions(log, Blocks())
    return SharedPositions(log, Blocks(), partial(open_journal, log.name, KIND))


def frames(*payloads: str) -> bytes:
    return render(payload.encode() for payload in payloads)[0]


class PositionTests(EngineTests):
    """Tests of what byte positions are made of: entries by their offsets or numbers, and what is kept of them."""

    async def test_the_bytes_of_a_log(self, bench: Bench) -> None:
        if not bench.can(Capability.BYTE_POSITIONS):
            return
        await bench.publish("a", "bb", "ccc", batch=True)
        await bench.publish("d")
        whole = frames("a", "bb", "ccc", "d")
        log = positions(bench, await bench.log())

        assert await log.extend() == len(whole)
        assert log.first == 0
        assert await log.frames(0, len(whole)) == whole
        assert [await log.boundary(at) for at in (0, 1, 11, 12, 24)] == [0, 11, 11, 23, 36]
        assert await log.before(len(whole)) == len(whole) - len(frames("d"))
        await bench.publish("ee")
        await log.topic.refresh()
        assert await log.extend() == len(whole) + len(frames("ee"))

    async def test_messages_that_were_just_stored_have_a_place(self, bench: Bench) -> None:
        if not bench.can(Capability.BYTE_POSITIONS):
            return
        log = positions(bench, await bench.log())
        for number in range(3):
            ids = await bench.publish("a", "b", batch=True)
            size = 2 * (HEAD_BYTES + 1)
            assert await log.place(ids, size) == (number * size, (number + 1) * size, (number + 1) * size)

    async def test_positions_stay(self, bench: Bench) -> None:
        if not bench.can(Capability.BYTE_POSITIONS):
            return
        sent = [f"m{n}" for n in range(50)]
        for start in range(0, 50, 5):
            await bench.publish(*sent[start : start + 5], batch=start % 2 == 0)
        first, other = positions(bench, await bench.log()), positions(bench, await bench.log())
        size = await first.extend()
        assert await other.extend() == size
        assert await first.frames(first.first, size) == await other.frames(first.first, size) == frames(*sent)
        if isinstance(first, SharedPositions):
            await first.keep()
        if not self.durable:
            return
        await bench.restart()
        again = positions(bench, await bench.log())
        assert await again.extend() == size
        at = await again.boundary(size // 2)
        assert await again.frames(at, size) == frames(*sent)[at:]

    async def test_journals_are_read_in_one_order(self, bench: Bench) -> None:
        open_journal = bench.broker.open_journal
        if open_journal is None:
            return  # byte positions are kept otherwise, or not at all
        log = bench.topic.sibling(f"{bench.topic.local}-partition-3")
        one, other = open_journal(log, "test"), open_journal(log, "test")
        assert list(await one.read_on()) == []
        records = [uuid4().bytes for _ in range(4)]
        await one.append(records[0])
        assert list(await one.read_on()) == records[:1]
        await other.append(records[1])
        await one.append(records[2])
        await other.append(records[3])
        assert list(await one.read_on()) == records[1:]
        assert list(await other.read_on()) == records
        assert list(await one.read_on()) == list(await other.read_on()) == []
        assert list(await open_journal(log, "other").read_on()) == []
        assert list(await open_journal(bench.topic, "test").read_on()) == []
        await bench.restart()
        assert bench.broker.open_journal is not None
        assert list(await bench.broker.open_journal(log, "test").read_on()) == records
