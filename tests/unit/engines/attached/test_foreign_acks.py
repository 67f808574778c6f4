"""Acknowledgements of messages that another consumer of the same process has."""

import asyncio

import pytest
from tests.support.attached_broker import AttachedBroker
from tests.unit.engines.core.brokers import TOPIC, Bench

from penstock.engines.attached import acknowledgements
from penstock.engines.attached.consumer import Consumer
from penstock.engines.attached.link import Moved
from penstock.engines.attached.moving_link import MovingLink
from penstock.model.errors import PenstockError
from penstock.model.message_id import EARLIEST, MessageId
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.testing.clock import settle


class Case:
    """`holder` has two messages, which `other` acknowledges. The link of `holder` stores when it `may_store`, or fails with `error`."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.attached = AttachedBroker(self.bench.broker)
        self.may_store = asyncio.Event()
        self.error: PenstockError | None = None
        self.flushes = 0  # of the holder's link

    async def open(self, monkeypatch: pytest.MonkeyPatch) -> None:
        await self.bench.broker.start()
        self.holder = await self._consumer()
        self.ids: list[MessageId] = await self.bench.publish(b"a", b"b", batch=False)
        await settle()
        assert len(self.holder.take()) == 2
        self.other = await self._consumer()
        (part,) = self.holder.parts.values()
        assert isinstance(part.link, MovingLink)
        flush = part.link.flush

        async def gated() -> None:
            self.flushes += 1
            await self.may_store.wait()
            if self.error is not None:
                raise self.error
            await flush()

        monkeypatch.setattr(part.link, "flush", gated)

    async def _consumer(self) -> Consumer:
        options = ConsumerOptions(type=SubscriptionType.SHARED, start=EARLIEST, window=10)
        return await self.attached.subscribe([TOPIC], "s", options)


async def test_they_are_answered_once_the_link_of_the_consumer_has_stored_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case()
    await case.open(monkeypatch)
    assert await case.other.acknowledge_all(case.ids[:1]) == 1
    flushes = [case.attached.owner.tasks.spawn(case.other.flush(), "flush") for _ in range(2)]
    await settle()
    assert not any(one.done() for one in flushes)
    case.may_store.set()
    await asyncio.gather(*flushes)
    assert case.flushes == 2
    await case.other.flush()  # nothing is left that the other link has to store
    assert case.flushes == 2
    (source,) = await case.bench.broker.subscriptions.of(TOPIC, "s")
    assert source.backlog == 1
    await case.attached.close()


async def test_each_flush_fails_whose_acknowledgement_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case()
    await case.open(monkeypatch)
    case.error = Moved(TOPIC)
    flushes = []
    for one in case.ids:
        assert await case.other.acknowledge_all([one]) == 1
        flushes.append(case.attached.owner.tasks.spawn(case.other.flush(), "flush"))
        await settle()
    case.may_store.set()
    for flush in flushes:
        with pytest.raises(PenstockError, match="moves to another owner"):
            await flush
    await case.other.flush()
    assert case.flushes == 2
    await case.attached.close()


async def test_no_more_links_are_remembered_than_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledgements, "LINKS_MAX", 0)
    case = Case()
    await case.open(monkeypatch)
    assert await case.other.acknowledge_all(case.ids[:1]) == 1
    with pytest.raises(PenstockError, match="moves to another owner"):
        await case.other.flush()
    await case.attached.close()
