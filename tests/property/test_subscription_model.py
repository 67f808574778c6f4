"""Subscriptions beside a plain model: nothing lost, nothing twice without cause, order where it is promised."""

import asyncio
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from penstock.broker.delivery import Delivery
from penstock.engines.core.broker import Broker
from penstock.engines.memory import MemoryStore
from penstock.engines.subscription import Consumer, Subscription, delayed
from penstock.engines.subscription.subscription import HAND_OVER_MS
from penstock.model.message import OutMessage
from penstock.model.message_id import EARLIEST, MessageId
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.testing.clock import ManualClock, settle
from penstock.wire import entry as wire

TOPIC = TopicName.parse("modelled")
ACK_TIMEOUT = 5_000
NACK_DELAY = 2_000
KEYS = ("a", "b", "c", "d", "e", "f")
SHARED = (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)


class SubscriptionMachine(RuleBasedStateMachine):
    """One topic, one subscription, consumers that come and go."""

    type = SubscriptionType.SHARED

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.store = MemoryStore()
        self.clock = ManualClock()
        self.consumers: dict[str, Consumer] = {}
        self.names = 0
        # the model
        self.keys: list[str | None] = []  # by offset
        self.due: list[int] = []  # by offset: when a delayed message may go
        self.acked: set[int] = set()
        self.saved: set[int] = set()  # acknowledged and durable by now
        self.out: dict[int, tuple[str, int, int]] = {}  # offset: with whom, until when, how often before
        self.ids: dict[int, MessageId] = {}
        self.times: dict[int, int] = {}  # offset: deliveries so far that ended without acknowledgement
        self.asleep: dict[int, int] = {}  # offset: nacked, not before
        self.highest: dict[str | None, int] = {}  # by key (None: all), the last first delivery
        self.over = sys.maxsize  # when the time of a consumer ends that is no longer active

    def run(self, work: Any) -> Any:
        async def whole() -> Any:
            result = await work
            await settle()
            self.collect()
            return result

        return self.loop.run_until_complete(whole())

    async def nothing(self) -> None:
        return None

    @initialize()
    def begin(self) -> None:
        self.run(self.start())
        self.run(self.broker.subscriptions.create(TOPIC, "s", EARLIEST))

    async def start(self) -> None:
        self.broker = Broker(self.store, MemoryStore(), wire, self.clock)
        await self.broker.start()
        self.producer = await self.broker.producer(TOPIC)
        self.topic = await self.broker.topics.get(TOPIC)

    @property
    def subscription(self) -> Subscription:
        return self.topic.subscriptions["s"]

    # -- what comes in

    @rule(
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=6),
        delay=st.sampled_from([0, 0, 0, 0, 3_000, 1_000]),
    )
    def publish(self, keys: list[str], delay: int) -> None:
        at = self.clock.now_ms() + delay if delay else 0
        messages = [OutMessage(payload=b"x", key=k, deliver_at=at) for k in keys]
        base = len(self.keys)
        self.keys += keys
        self.due += [at if self.type in SHARED else 0] * len(keys)
        results = self.run(self.producer.publish(messages))
        for n, result in enumerate(results):
            assert isinstance(result, MessageId)
            self.ids[base + n] = result

    @precondition(lambda self: len(self.consumers) < 4)
    @rule(window=st.integers(1, 8), flow=st.booleans(), priority=st.integers(0, 1))
    def join(self, window: int, flow: bool, priority: int) -> None:
        if self.type is SubscriptionType.EXCLUSIVE and self.consumers:
            return
        self.names += 1
        name = f"c{self.names}"
        options = ConsumerOptions(
            name=name,
            type=self.type,
            window=window,
            flow=flow,
            priority=priority if self.type is not SubscriptionType.KEY_SHARED else 0,
            ack_timeout_ms=ACK_TIMEOUT,
            nack_delay_ms=NACK_DELAY,
        )

        async def work() -> None:
            self.consumers[name] = await self.broker.subscribe([TOPIC], "s", options)
            await settle()
            if not self.handing_over():
                self.rebalanced()

        self.run(work())
        if self.handing_over():
            self.over = self.clock.now_ms() + HAND_OVER_MS
            self.time_passes(HAND_OVER_MS)

    def handing_over(self) -> bool:
        """Failover: whether one that is no longer active may still answer what it has."""
        active = self.subscription.active
        return self.type is SubscriptionType.FAILOVER and any(
            name != active.name for name, *_ in self.out.values()
        )

    def rebalanced(self) -> None:
        """Failover: who is no longer active has nothing, once it had its time."""
        self.over = sys.maxsize
        active = self.subscription.active
        if self.type is SubscriptionType.FAILOVER:
            for offset, (name, _, _) in list(self.out.items()):
                if active is None or name != active.name:
                    self.came_back(offset)

    def came_back(self, offset: int, asleep: int = 0) -> None:
        del self.out[offset]
        self.times[offset] = self.times.get(offset, 0) + 1
        self.highest.clear()
        if asleep:
            self.asleep[offset] = self.clock.now_ms() + asleep

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), permits=st.integers(1, 10))
    def flow(self, data: st.DataObject, permits: int) -> None:
        consumer = self.consumers[data.draw(st.sampled_from(sorted(self.consumers)))]

        async def work() -> None:
            if consumer.options.flow:
                consumer.flow(permits)

        self.run(work())

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.consumers)))
        consumer = self.consumers.pop(name)

        async def work() -> None:
            for offset, (holder, _, _) in list(self.out.items()):
                if holder == name:
                    self.came_back(offset)
            await consumer.leave()
            self.rebalanced()

        self.run(work())

    # -- answers

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.out)))
        name = self.out.pop(offset)[0]
        self.acked.add(offset)
        self.run(self.consumers[name].acknowledge(self.ids[offset]))

    @precondition(lambda self: self.consumers and self.keys)
    @rule(data=st.data())
    def acknowledge_any(self, data: st.DataObject) -> None:
        """An acknowledgement of what is not out (any more), or again."""
        offset = data.draw(st.integers(0, len(self.keys) - 1))
        consumer = self.consumers[data.draw(st.sampled_from(sorted(self.consumers)))]
        self.out.pop(offset, None)
        self.acked.add(offset)
        self.run(consumer.acknowledge(self.ids[offset]))

    @precondition(lambda self: self.consumers and self.keys)
    @rule(data=st.data())
    def acknowledge_group(self, data: st.DataObject) -> None:
        """Many at once: what is out, what is not, some of them twice, and ids of no message."""
        numbers = st.integers(0, len(self.keys) - 1)
        offsets = data.draw(
            st.lists(numbers | st.sampled_from(sorted(self.out) or [0]), min_size=1, max_size=12)
        )
        consumer = self.consumers[data.draw(st.sampled_from(sorted(self.consumers)))]
        ids = [self.ids[offset] for offset in offsets]
        none = [
            msgspec.structs.replace(ids[0], batch_index=1000),
            msgspec.structs.replace(ids[0], ledger=999),
        ]
        none.append(msgspec.structs.replace(ids[0], entry=1000))
        at = data.draw(st.integers(0, len(ids)))
        for offset in offsets:
            self.out.pop(offset, None)
            self.acked.add(offset)

        async def work() -> None:
            assert await consumer.acknowledge_all([*ids[:at], *none, *ids[at:]]) == len(ids)

        self.run(work())

    @precondition(lambda self: self.out and self.type not in SHARED)
    @rule(data=st.data())
    def acknowledge_cumulative(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.out)))
        name = self.out[offset][0]
        for below in range(offset + 1):
            self.out.pop(below, None)
            self.acked.add(below)
        self.run(self.consumers[name].acknowledge_cumulative(self.ids[offset]))

    @precondition(lambda self: self.out)
    @rule(data=st.data(), delay=st.sampled_from([0, NACK_DELAY]))
    def negative(self, data: st.DataObject, delay: int) -> None:
        offset = data.draw(st.sampled_from(sorted(self.out)))
        name = self.out[offset][0]

        async def work() -> None:
            self.came_back(offset, asleep=delay)
            assert self.consumers[name].negative(self.ids[offset], delay)

        self.run(work())

    @rule(ms=st.sampled_from([50, 150, 1_000, 3_000, 6_000]))
    def time_passes(self, ms: int) -> None:
        async def work() -> None:
            self.clock.turn(0)
            for _ in range(ms // 50):
                self.clock.turn(50)
                for offset, (_, until, _) in list(self.out.items()):
                    if until <= self.clock.now_ms():
                        self.came_back(offset)
                if self.over <= self.clock.now_ms():
                    self.rebalanced()
                await settle()
                self.collect()

        before = set(self.acked)
        self.run(work())
        if ms >= 150:
            self.saved = before
        self.asleep = {o: t for o, t in self.asleep.items() if t > self.clock.now_ms()}

    @rule()
    def flush(self) -> None:
        if self.consumers:
            self.run(next(iter(self.consumers.values())).flush())
            self.saved = set(self.acked)

    @precondition(lambda self: self.keys and self.consumers)
    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, len(self.keys) - 1))
        consumer = next(iter(self.consumers.values()))

        async def work() -> None:
            self.acked = set(range(offset + 1))
            self.forget_out()
            await consumer.seek(self.ids[offset])

        self.run(work())
        self.saved = set(self.acked)

    def forget_out(self) -> None:
        self.out.clear()
        self.times.clear()
        self.asleep.clear()
        self.highest.clear()

    @rule()
    def crash(self) -> None:
        """The process dies and starts again on what was stored."""
        self.consumers.clear()
        self.forget_out()
        self.run(self.broker.tasks.close())
        self.clock = ManualClock(self.clock.now_ms())  # no timer of before will ring
        self.run(self.start())
        kept = {o for o in range(len(self.keys)) if self.subscription.cursor.mask(o, 1)}
        assert kept <= self.acked, "the stored cursor is ahead of the acknowledgements"
        assert self.saved <= kept, "what was answered as acknowledged is not"
        self.acked = kept
        self.saved = set(kept)

    # -- what comes out

    def collect(self) -> None:
        for name, consumer in self.consumers.items():
            for delivery in consumer.take():
                self.delivered(name, consumer, delivery)

    def delivered(self, name: str, consumer: Consumer, delivery: Delivery) -> None:
        now = self.clock.now_ms()
        entry = delivery.entry
        for index in range(entry.count):
            if not delivery.mask >> index & 1:
                continue
            offset = entry.offset + index
            assert offset not in self.acked, f"{offset} was acknowledged and came again"
            assert offset not in self.out, f"{offset} is out already"
            assert self.due[offset] <= now, f"{offset} came before its time"
            assert self.asleep.get(offset, 0) <= now, f"{offset} came before its delay was over"
            assert delivery.redeliveries == self.times.get(offset, 0)
            if self.type is SubscriptionType.KEY_SHARED:
                others = [
                    o for o, (n, _, _) in self.out.items() if n != name and self.keys[o] == self.keys[offset]
                ]
                assert not others, f"key {self.keys[offset]} is with two consumers"
            self.check_order(offset)
            self.out[offset] = (name, now + ACK_TIMEOUT, 0)

    def check_order(self, offset: int) -> None:
        """First deliveries are in order: of all messages, or of a key's."""
        if self.type is SubscriptionType.SHARED or self.times.get(offset) or self.due[offset]:
            return
        key = self.keys[offset] if self.type is SubscriptionType.KEY_SHARED else None
        assert offset > self.highest.get(key, -1), f"{offset} came out of order"
        self.highest[key] = offset

    @invariant()
    def bounds_hold(self) -> None:
        for name, consumer in self.consumers.items():
            out = sum(1 for holder, _, _ in self.out.values() if holder == name)
            assert consumer.unacked == out
            assert consumer.options.window is None or out <= consumer.options.window
            assert consumer.permits >= 0

    @invariant()
    def figures_hold(self) -> None:
        if hasattr(self, "topic"):
            assert self.subscription.backlog == len(self.keys) - len(self.acked)
            assert self.subscription.unacked == len(self.out)

    def teardown(self) -> None:
        """In the end a consumer with room gets everything that was not acknowledged, once."""
        if not hasattr(self, "topic"):
            return
        for name in list(self.consumers):
            consumer = self.consumers.pop(name)
            for offset, (holder, _, _) in list(self.out.items()):
                if holder == name:
                    self.came_back(offset)
            self.run(consumer.leave())
        self.highest.clear()
        self.asleep.clear()
        self.run(self.clock.advance(20_000))
        options = ConsumerOptions(name="last", type=self.type, window=10_000)

        async def work() -> None:
            self.consumers["last"] = await self.broker.subscribe([TOPIC], "s", options)

        self.run(work())
        for _ in range(5):
            self.run(self.nothing())
        assert set(self.out) == set(range(len(self.keys))) - self.acked
        self.run(self.broker.close())
        self.loop.close()


class ExclusiveMachine(SubscriptionMachine):
    type = SubscriptionType.EXCLUSIVE


class FailoverMachine(SubscriptionMachine):
    type = SubscriptionType.FAILOVER


class KeySharedMachine(SubscriptionMachine):
    type = SubscriptionType.KEY_SHARED


class ManyDelayedMachine(SubscriptionMachine):
    """More messages are delayed than are held: the log is read again for the others."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(delayed, "HELD_MAX", 2)

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.patch.undo()


_settings = settings(settings.get_profile(settings.get_current_profile_name()), stateful_step_count=40)
for _machine in (
    SubscriptionMachine,
    ExclusiveMachine,
    FailoverMachine,
    KeySharedMachine,
    ManyDelayedMachine,
):
    _machine.TestCase.settings = _settings

TestShared = SubscriptionMachine.TestCase
TestExclusive = ExclusiveMachine.TestCase
TestFailover = FailoverMachine.TestCase
TestKeyShared = KeySharedMachine.TestCase
TestManyDelayed = ManyDelayedMachine.TestCase
