"""What not every engine can: it does it, or refuses it with NOT_SUPPORTED."""

import pytest

from penstock.broker.capability import Capability, require
from penstock.broker.producer import Item
from penstock.broker.staging import Caller, Expected
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.stage import StageKey
from penstock.wire import entry as wire

from .bench import Bench, EngineTests, refused, stored


def entry(bench: Bench, text: str, sequence_id: int = 0) -> NewEntry:
    """An entry as a client makes it."""
    return wire.encode(
        [OutMessage(payload=text.encode())],
        producer="p",
        sequence_id=sequence_id,
        publish_time=bench.broker.clock.now_ms(),
        schema_version=None,
    )


class CapabilityTests(EngineTests):
    """Tests of each `Capability`."""

    @pytest.mark.parametrize("capability", list(Capability))
    async def test_what_is_not_claimed_is_refused_in_words(
        self, bench: Bench, capability: Capability
    ) -> None:
        if bench.can(capability):
            require(bench.broker.capabilities, capability)
            return
        with pytest.raises(PenstockError, match=capability.value) as caught:
            require(bench.broker.capabilities, capability)
        assert caught.value.kind is ErrorKind.NOT_SUPPORTED

    async def test_sizes(self, bench: Bench) -> None:
        await bench.publish("a", "b", "c")
        log = await bench.log()
        if bench.broker.cluster is not None:
            # They are estimates.
            assert await log.size_since(log.bounds.first_entry) > 0
            assert await log.size_since(log.bounds.next_entry) == 0
            assert await log.find_size(0) is None
            return
        entries = await log.read_at(log.bounds.first_offset, 10)
        sizes = [len(one.data) for one in entries]
        assert log.bounds.size_bytes == await log.size_since(log.bounds.first_entry) == sum(sizes)
        assert await log.size_since(entries[1].entry_id) == sum(sizes[1:])
        assert await log.find_size(sizes[2]) == entries[2]
        assert await log.find_size(sizes[2] - 1) is None

    async def test_entries_that_clients_made(self, bench: Bench) -> None:
        producer = await bench.producer(name="p")
        items = [Item(entry(bench, text, n), "p", n) for n, text in enumerate("ab")]
        ids = stored(await producer.publish_entries(items))
        client = await bench.consume()

        assert await client.come(2) == ["a", "b"]
        assert [one.id for one in client.received] == ids

    async def test_entries_in_bulk(self, bench: Bench) -> None:
        log = await bench.log()
        call = bench.broker.append_entries(log, [entry(bench, "a"), entry(bench, "b")], deduplicate=False)
        if not bench.can(Capability.ENTRIES):
            await refused(call)
            return
        done = await call
        assert done.first is not None
        assert done.repeats == 0
        assert await bench.contents() == ["a", "b"]

    async def test_staged_publishing(self, bench: Bench) -> None:
        log, staging = await bench.log(), bench.broker.staging
        assert (staging is not None) is bench.can(Capability.STAGED_PUBLISH)
        if staging is None:
            return
        key, data = StageKey("w", 0, "s"), entry(bench, "a")
        await staging.stage(key, 0, 1, [(log, [data])], Caller())
        assert await bench.contents() == []
        expected = Expected("s", 1, 1, len(data.data))
        for new in (True, False):
            _, first = await staging.commit("w", 0, [expected], Caller(), topics=[bench.topic], keep=False)
            assert first is new
        assert await bench.contents() == ["a"]

    async def test_compaction(self, bench: Bench) -> None:
        await bench.publish("a", "b", key="k")
        administration = bench.broker.administration
        if administration is None:
            assert not bench.can(Capability.COMPACTION)
            return
        call = administration.compact_topic(bench.topic)
        if not bench.can(Capability.COMPACTION):
            await refused(call)
            return
        await call
        client = await bench.consume(compacted=True)
        assert (await client.come(1))[-1] == "b" or await client.come(2) == ["a", "b"]
