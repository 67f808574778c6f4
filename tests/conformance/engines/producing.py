"""Producers: a result for each message, ids, order, batches, plain payloads, names and access modes."""

import asyncio
from itertools import accumulate

import pytest

from penstock.broker.capability import Capability
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.message_id import MessageId
from penstock.model.policy import AccessMode

from .bench import Bench, EngineTests, kinds, refused, stored, texts, until, whole


class ProducingTests(EngineTests):
    """Tests of `Producer`."""

    async def test_ids_are_those_that_consumers_see(self, bench: Bench) -> None:
        producer = await bench.producer()
        ids = stored(await producer.publish(texts("a", "b")))
        ids += stored(await producer.publish(texts("c", "d"), batch=False))
        ids += stored(await producer.publish(texts("e")))
        client = await bench.consume()

        assert await client.come(5) == list("abcde")
        assert [one.id for one in client.received] == ids
        batch = [(0, 2), (1, 2)] if self.batches else [(-1, 0)] * 2
        assert [(one.batch_index, one.batch_size) for one in ids] == [*batch, *[(-1, 0)] * 3]
        assert producer.figures().published == 5

    async def test_ids_rise_in_the_order_of_the_calls(self, bench: Bench) -> None:
        producer = await bench.producer()
        calls = [producer.publish(texts(f"{n}.0", f"{n}.1", f"{n}.2"), batch=n % 2 == 0) for n in range(40)]
        ids = [one for results in await asyncio.gather(*calls) for one in stored(results)]

        assert ids == sorted(ids)
        assert len(set(ids)) == 120
        assert await bench.contents() == [f"{n}.{i}" for n in range(40) for i in range(3)]

    async def test_a_bad_message_fails_alone(self, bench: Bench) -> None:
        producer = await bench.producer()
        messages = [
            *texts("a"),
            OutMessage(payload=b"x" * (bench.broker.settings.max_message_bytes + 1)),
            OutMessage(payload=b"y", partition=7),
            *texts("b"),
        ]
        for batch in (True, False):
            found = kinds(await producer.publish(messages, batch=batch))
            assert found == [None, ErrorKind.TOO_LARGE, ErrorKind.PARTITION_NOT_FOUND, None]
        assert await bench.contents() == ["a", "b", "a", "b"]

    async def test_everything_that_a_message_has_arrives(self, bench: Bench) -> None:
        producer = await bench.producer(name="p")
        whole = OutMessage(
            payload="\u00e4".encode(),
            key="k",
            ordering_key=b"\x00\xff",
            properties={"a": "1", "b": ""},
            event_time=5,
            sequence_id=41,
        )
        stored(await producer.publish([whole, OutMessage(payload=b"", null_value=True), *texts("plain")]))
        client = await bench.consume()
        await client.come(3)
        first, second, third = (one.message for one in client.received)

        assert (first.payload, first.key, first.ordering_key) == (whole.payload, "k", b"\x00\xff")
        assert (first.properties, first.event_time, first.sequence_id) == (whole.properties, 5, 41)
        assert (second.null_value, third.payload, third.key) == (True, b"plain", None)
        assert {one.producer_name for one in (first, second, third)} == {"p"}
        assert first.publish_time > 0

    async def test_plain_payloads(self, bench: Bench) -> None:
        producer = await bench.producer()
        log = await bench.log()
        assert producer.takes_plain(3, 100, None)
        placed = whole(await producer.publish_plain([b"a", b"b", b"c"], None))
        alone = whole(await producer.publish_plain([b"d"], None))
        client = await bench.consume()

        assert await client.come(4) == list("abcd")
        assert placed.batched is self.batches
        run = [MessageId(placed.ledger, placed.entry_id + number) for number in range(3)]
        batch = [MessageId(placed.ledger, placed.entry_id, -1, index, 3) for index in range(3)]
        first = batch if self.batches else run
        assert [one.id for one in client.received] == [*first, MessageId(alone.ledger, alone.entry_id)]
        assert (placed.count, alone.count, placed.topic.name) == (3, 1, log.name)

    async def test_plain_payloads_as_an_entry_each(self, bench: Bench) -> None:
        producer = await bench.producer()
        if not producer.takes_plain(3, 100, None, batch=False):
            return  # `publish` does it, as for everything that an engine has no shorter way for
        placed = whole(await producer.publish_plain([b"a", b"b", b"c"], None, batch=False))
        assert not placed.batched
        client = await bench.consume()

        assert await client.come(3) == list("abc")
        expected = [MessageId(placed.ledger, placed.entry_id + n) for n in range(3)]
        assert [one.id for one in client.received] == expected

    async def test_offsets_are_dense(self, bench: Bench) -> None:
        if not bench.can(Capability.OFFSETS):
            return
        producer = await bench.producer()
        for batch in (True, False, True):
            stored(await producer.publish(texts("a", "b", "c"), batch=batch))
        log = await bench.log()
        entries = await log.read_at(log.bounds.first_offset, 100)

        counts = [3, 1, 1, 1, 3] if self.batches else [1] * 9
        assert [one.count for one in entries] == counts
        assert [one.offset - entries[0].offset for one in entries] == list(accumulate([0, *counts[:-1]]))
        assert log.bounds.next_offset == entries[-1].end
        if not self.batches:
            return
        placed = whole(await producer.publish_plain([b"d"], None))
        assert placed.offset in (entries[-1].end, -1)  # -1: the cluster has not said it

    async def test_a_name_is_one_producers(self, bench: Bench) -> None:
        first = await bench.producer(name="p")
        with pytest.raises(PenstockError) as caught:
            await bench.producer(name="p")
        assert caught.value.kind is ErrorKind.PRODUCER_BUSY
        first.close()
        assert first.closed
        names = {(await bench.producer()).name for _ in range(3)}
        assert len(names) == 3

    async def test_a_name_that_several_share(self, bench: Bench) -> None:
        one, two, three = [
            await bench.producer(name="p", shared_name=True, stateless=stateless)
            for stateless in (False, False, True)
        ]
        alone = await bench.producer(name="p")
        for producer in (one, two, three, alone):
            stored(await producer.publish(texts("a")))
        one.close()
        stored(await two.publish(texts("b"), batch=False))
        assert (two.closed, alone.closed) == (False, False)
        client = await bench.consume()
        await client.come(5)
        assert {each.message.producer_name for each in client.received} == {"p"}

    async def test_one_that_has_the_topic_alone(self, bench: Bench) -> None:
        if not bench.can(Capability.EXCLUSIVE_PRODUCERS):
            await refused(bench.producer(access_mode=AccessMode.EXCLUSIVE))
            return
        alone = await bench.producer(access_mode=AccessMode.EXCLUSIVE)
        with pytest.raises(PenstockError) as caught:
            await bench.producer()
        assert caught.value.kind in (
            ErrorKind.EXCLUSIVE_PRODUCER,
            ErrorKind.PRODUCER_BUSY,
            ErrorKind.PRODUCER_FENCED,
        )
        fencing = await bench.producer(access_mode=AccessMode.EXCLUSIVE_WITH_FENCING)

        with pytest.raises(PenstockError) as caught:  # it may learn of it only as it publishes
            stored(await alone.publish(texts("theirs")))
        assert caught.value.kind is ErrorKind.PRODUCER_FENCED
        await until(lambda: alone.closed)
        stored(await fencing.publish(texts("mine")))
        assert await bench.contents() == ["mine"]

    async def test_what_was_stored_is_there_after_a_restart(self, bench: Bench) -> None:
        if not self.durable:
            return
        ids = await bench.publish("a", "b", batch=True)
        client = await bench.consume()
        await client.come(2)
        await client.leave()
        await bench.restart()
        ids += await bench.publish("c")
        again = await bench.consume()

        assert await again.come(3) == list("abc")
        assert [one.id for one in again.received] == ids
        assert await bench.contents() == list("abc")
