"""Retention, expiry and cursors against a model, under appends, acknowledgements and time in any order."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.engines.core.brokers import TOPIC, Bench

from penstock.broker.settings import BrokerSettings
from penstock.model.message import OutMessage
from penstock.model.message_id import EARLIEST
from penstock.model.policy import Retention, TopicPolicies
from penstock.testing.clock import settle

T = TypeVar("T")

CHECK = 1000
MB = 1 << 20
BIG = 200_000
NAMES = st.sampled_from(["a", "b", "c"])


class RetentionMachine(RuleBasedStateMachine):
    """The model: every message ever published with its time, and what each subscription has acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.wait(self.begin())
        self.times: list[int] = []  # by offset
        self.acked: dict[str, set[int]] = {}
        self.policies = TopicPolicies()

    async def begin(self) -> None:
        self.bench = Bench(BrokerSettings(keep_check_ms=CHECK))
        await self.bench.broker.start()
        self.topic = await self.bench.broker.topics.get(TOPIC)
        self.producer = await self.bench.broker.producer(TOPIC)

    def teardown(self) -> None:
        self.wait(self.bench.broker.close())
        self.runner.close()

    def wait(self, call: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(call)

    @rule(count=st.integers(1, 4), big=st.booleans(), batch=st.booleans())
    def publish(self, count: int, big: bool, batch: bool) -> None:
        async def published() -> None:
            payload = b"x" * (BIG if big else 10)
            await self.producer.publish([OutMessage(payload=payload) for _ in range(count)], batch=batch)

        self.wait(published())
        self.times += [self.bench.clock.now_ms()] * count

    @rule(name=NAMES)
    def subscribe(self, name: str) -> None:
        async def created() -> None:
            await self.bench.broker.subscriptions.create(TOPIC, name, EARLIEST)

        if name not in self.acked:
            self.wait(created())
            self.acked[name] = set(range(self.topic.first_offset))

    @rule(name=NAMES)
    def unsubscribe(self, name: str) -> None:
        if self.acked.pop(name, None) is not None:
            self.wait(self.bench.broker.subscriptions.delete(TOPIC, name))

    @precondition(lambda self: self.acked)
    @rule(name=NAMES, at=st.integers(0, 12), run=st.integers(1, 6))
    def acknowledge(self, name: str, at: int, run: int) -> None:
        """Some messages from the first that is there on, also out of order."""
        if name not in self.acked:
            return
        subscription = self.topic.subscriptions[name]
        start = min(self.topic.first_offset + at, len(self.times))
        end = min(start + run, len(self.times))

        async def acknowledged() -> None:
            subscription._out.acknowledged(start, (1 << (end - start)) - 1)

        self.wait(acknowledged())
        self.acked[name].update(range(start, end))

    @rule(
        minutes=st.sampled_from([-1, 0, 1, 5]), mb=st.sampled_from([-1, 1]), ttl=st.sampled_from([None, 90])
    )
    def decide(self, minutes: int, mb: int, ttl: int | None) -> None:
        retention = Retention(minutes, 0 if minutes == 0 else mb)
        self.policies = TopicPolicies(retention=retention, message_ttl_s=ttl)
        self.wait(self.bench.broker.policies.change_topic(TOPIC, lambda now: self.policies))

    @rule(ms=st.integers(1, 200_000))
    def pass_time(self, ms: int) -> None:
        self.wait(self.bench.clock.advance(ms))

    @rule()
    def look(self) -> None:
        """After a check everything that may go is gone."""

        async def looked() -> None:
            for _ in range(3):
                await self.bench.clock.advance(CHECK + 1)
            await settle()

        self.wait(looked())
        if self.policies.retention is None:
            return
        first, now = self.topic.first_offset, self.bench.clock.now_ms()
        if self.topic.first_entry == self.topic.next_entry:
            return
        (entry,) = self.wait(self.topic.read(self.topic.first_entry, 1))
        held = any(
            first + i not in acked and not self.surely_expired(first + i)
            for acked in self.acked.values()
            for i in range(entry.count)
        )
        minutes, mb = self.policies.retention.minutes, self.policies.retention.mb
        old = minutes >= 0 and now - entry.publish_time > 60_000 * minutes + CHECK
        large = mb >= 0 and self.topic.size_bytes > mb * MB
        assert held or not (old or large), "it should have gone"

    def model_acked(self) -> dict[str, set[int]]:
        """What is acknowledged, with what may have expired."""
        return {
            name: {o for o in range(len(self.times)) if o in acked or self.expired(o)}
            for name, acked in self.acked.items()
        }

    def expired(self, offset: int) -> bool:
        """Whether a message may have been expired at some time: a policy that said so may be gone."""
        return self.times[offset] + 90_000 <= self.bench.clock.now_ms() and self.expires

    def surely_expired(self, offset: int) -> bool:
        """Whether a message is expired for every subscription, after a check under the policy that holds."""
        return self.expired(offset) and self.policies.message_ttl_s is not None

    expires = False

    @invariant()
    def nothing_unacknowledged_goes(self) -> None:
        self.expires = self.expires or self.policies.message_ttl_s is not None
        for name, acked in self.model_acked().items():
            gone = [o for o in range(self.topic.first_offset) if o not in acked]
            assert not gone, f"{name} had not acknowledged {gone}"
        for name, acked in self.acked.items():
            cursor = self.topic.subscriptions[name].cursor
            lost = [o for o in acked if not cursor.mask(o, 1)]
            assert not lost, f"{name} acknowledged {lost}"
            wrong = [
                o
                for o in range(self.topic.first_offset, len(self.times))
                if cursor.mask(o, 1) and o not in acked and not self.expired(o)
            ]
            assert not wrong, f"{name} never acknowledged {wrong}"

    @invariant()
    def sizes_are_right(self) -> None:
        state = self.wait(self.stored())
        topic = self.topic
        assert (topic.first_entry, topic.first_offset) == (state.first_entry, state.first_offset)
        assert topic.size_bytes == state.size_bytes
        assert topic.next_offset == len(self.times)

    async def stored(self) -> Any:
        return await self.bench.store.open(str(TOPIC))


TestRetention = RetentionMachine.TestCase
TestRetention.settings = settings(settings(), stateful_step_count=40, max_examples=40)
