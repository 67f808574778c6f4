"""Request-reply in the core (PIP-371): every way a wait can end."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.engines.core.brokers import TOPIC, Bench, bench

from penstock.broker.delivery import Outcome
from penstock.broker.producer import Reply, ReplyOrError
from penstock.engines.core.topic.producer import Producer
from penstock.engines.shared.requests import REPLY_BYTES_MAX, Requests
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import REQUEST_TIMEOUT_PROPERTY, OutMessage
from penstock.model.message_id import MessageId
from penstock.model.policy import ProducerOptions, SubscriptionType
from penstock.runtime.clock import SWEEP_MIN
from penstock.runtime.tasks import Tasks
from penstock.testing.clock import ManualClock, settle


async def ask(
    b: Bench, payload: bytes = b"?", timeout_ms: int = 3000, name: str = ""
) -> tuple[asyncio.Task[Reply], Producer]:
    producer = await b.broker.producer(TOPIC, ProducerOptions(name=name))
    tasks = Tasks()
    task = tasks.spawn(producer.request(OutMessage(payload=payload), timeout_ms), "ask")
    await settle()
    return task, producer


def failure(task: asyncio.Task[Reply]) -> ErrorKind:
    error = task.exception()
    assert isinstance(error, PenstockError)
    return error.kind


async def test_the_reply_comes_back_and_the_message_is_acknowledged() -> None:
    async with bench() as b:
        consumer = await b.consumer()
        task, _ = await ask(b)
        ((message_id, message, _),) = await b.taken(consumer)
        assert message.properties[REQUEST_TIMEOUT_PROPERTY] == "3000"

        assert await consumer.reply(message_id, b"!") is Outcome.DELIVERED

        assert await task == Reply(message_id, b"!", False)
        assert consumer.unacked == 0
        assert b.broker.topics.open_topics[0].subscriptions["s"].backlog == 0
        assert len(b.broker.requests) == 0


async def test_an_error_reply_and_an_empty_one() -> None:
    async with bench() as b:
        consumer = await b.consumer()
        failed, _ = await ask(b)
        empty, _ = await ask(b)
        (first, second) = await b.taken(consumer)
        await consumer.reply(first[0], b"no", is_error=True)
        await consumer.reply(second[0], b"")
        assert (await failed).is_error
        assert await empty == Reply(second[0], b"", False)


async def test_a_plain_acknowledgement_does_not_end_the_wait() -> None:
    async with bench() as b:
        one = await b.consumer(subscription="one")
        two = await b.consumer(subscription="two")
        task, _ = await ask(b)
        ((first, _, _),) = await b.taken(one)
        await one.acknowledge(first)
        await settle()
        assert not task.done()
        ((second, _, _),) = await b.taken(two)
        await two.reply(second, b"late but first")
        assert (await task).content == b"late but first"


async def test_of_two_subscriptions_the_first_reply_wins() -> None:
    async with bench() as b:
        one = await b.consumer(subscription="one")
        two = await b.consumer(subscription="two")
        task, _ = await ask(b)
        ((message_id, _, _),) = await b.taken(one)
        await b.taken(two)
        assert await one.reply(message_id, b"1") is Outcome.DELIVERED
        assert await two.reply(message_id, b"2") is Outcome.NOBODY_WAITS
        assert (await task).content == b"1"
        assert b.broker.requests.late == 1
        assert two.unacked == 0


async def test_time_runs_out_and_the_message_stays() -> None:
    async with bench() as b:
        task, _ = await ask(b, timeout_ms=500)
        await b.clock.advance(499)
        assert not task.done()
        await b.clock.advance(1)
        assert failure(task) is ErrorKind.REQUEST_TIMEOUT
        consumer = await b.consumer()
        ((message_id, _, _),) = await b.taken(consumer)
        assert await consumer.reply(message_id, b"too late") is Outcome.NOBODY_WAITS
        assert (b.broker.requests.timed_out, b.broker.requests.late) == (1, 1)


async def test_a_consumer_that_dies_before_its_reply_leaves_the_request_to_another() -> None:
    async with bench() as b:
        first = await b.consumer()
        task, _ = await ask(b)
        assert len(await b.taken(first)) == 1
        await first.leave()
        second = await b.consumer()
        ((message_id, _, delivery),) = await b.taken(second)
        assert delivery.redeliveries == 1
        await second.reply(message_id, b"from the second")
        assert (await task).content == b"from the second"


async def test_a_nacked_request_goes_to_another_while_its_time_runs() -> None:
    async with bench() as b:
        first = await b.consumer()
        task, _ = await ask(b)
        ((message_id, _, _),) = await b.taken(first)
        first.negative(message_id, 0)
        ((message_id, _, _),) = await b.taken(first)
        await first.reply(message_id, b"again")
        assert (await task).content == b"again"


async def test_only_who_has_the_message_may_reply() -> None:
    async with bench() as b:
        one = await b.consumer(window=1)
        two = await b.consumer(window=1)
        task, _ = await ask(b)
        holder, other = (one, two) if one.unacked else (two, one)
        ((message_id, _, _),) = await b.taken(holder)
        with pytest.raises(PenstockError) as caught:
            await other.reply(message_id, b"mine")
        assert caught.value.kind is ErrorKind.MESSAGE_NOT_FOUND
        await holder.reply(message_id, b"ok")
        assert (await task).content == b"ok"


async def test_a_requester_that_goes_withdraws_the_wait() -> None:
    async with bench() as b:
        consumer = await b.consumer()
        task, _ = await ask(b)
        task.cancel()
        await settle()
        assert len(b.broker.requests) == 0
        assert b.broker.requests.withdrawn == 1
        ((message_id, _, _),) = await b.taken(consumer)
        assert await consumer.reply(message_id, b"?") is Outcome.NOBODY_WAITS


async def test_a_reply_to_a_plain_message_is_ignored_and_told() -> None:
    async with bench() as b:
        await b.publish(b"plain")
        consumer = await b.consumer()
        ((message_id, _, _),) = await b.taken(consumer)
        assert await consumer.reply(message_id, b"?") is Outcome.NOT_A_REQUEST
        assert consumer.unacked == 0


async def test_the_server_stops_in_the_middle() -> None:
    async with bench() as b:
        task, _ = await ask(b)
        b.broker.requests.close()
        await settle()
        assert failure(task) is ErrorKind.UNAVAILABLE
        assert len(b.broker.requests) == 0


async def test_a_reply_may_overtake_the_receipt() -> None:
    """Who waits is found by producer and sequence id while the message's id is not known."""
    async with bench() as b:
        consumer = await b.consumer()
        producer = await b.broker.producer(TOPIC, ProducerOptions(name="p"))
        message = OutMessage(payload=b"?", properties={REQUEST_TIMEOUT_PROPERTY: "3000"}, sequence_id=7)
        request = b.broker.requests.wait((str(TOPIC), "p", 7), 3000)
        await producer.publish([message])
        ((message_id, _, _),) = await b.taken(consumer)
        assert await consumer.reply(message_id, b"quick") is Outcome.DELIVERED
        request.placed(message_id)
        assert (await request.reply()).content == b"quick"
        assert len(b.broker.requests) == 0


async def test_two_requesters_with_the_same_sequence_id_get_their_own_replies() -> None:
    async with bench() as b:
        consumer = await b.consumer(SubscriptionType.EXCLUSIVE)
        one, _ = await ask(b, b"1", name="one")
        two, _ = await ask(b, b"2", name="two")
        for message_id, message, _ in await b.taken(consumer):
            assert message.sequence_id == 0
            await consumer.reply(message_id, b"re " + message.payload)
        assert ((await one).content, (await two).content) == (b"re 1", b"re 2")


async def test_ten_thousand_in_flight_leave_nothing_behind() -> None:
    async with bench() as b:
        consumer = await b.consumer(window=20_000)
        producer = await b.broker.producer(TOPIC)
        tasks = Tasks()
        waiting = [
            tasks.spawn(producer.request(OutMessage(payload=b"%d" % n), 60_000), "ask") for n in range(10_000)
        ]
        for _ in range(60):
            await settle()
        assert len(b.broker.requests) == 10_000
        for message_id, message, _ in await b.taken(consumer):
            await consumer.reply(message_id, message.payload)
        replies = await asyncio.gather(*waiting)
        assert [r.content for r in replies] == [b"%d" % n for n in range(10_000)]
        assert len(b.broker.requests) == 0
        gc.collect()


class CountingClock(ManualClock):
    """Knows the timers that were made and neither came nor were cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self._made: list[tuple[int, Any]] = []

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Any:
        timer = super().call_later(delay_ms, callback)
        self._made.append((self.monotonic_ms() + int(delay_ms), timer))
        return timer

    @property
    def running(self) -> int:
        return sum(due > self.monotonic_ms() and timer.callback is not None for due, timer in self._made)


def waits(clock: ManualClock) -> Requests:
    return Requests(clock, 300_000)


async def test_thousands_of_waits_have_one_timer_and_end_in_the_order_of_their_deadlines() -> None:
    clock = CountingClock()
    requests = waits(clock)
    ended: list[int] = []
    timeouts = [1 + (7919 * n) % 5000 for n in range(5000)]  # each from 1 to 5000 once, in no order
    for number, timeout in enumerate(timeouts):
        request = requests.wait(("t", "p", number), timeout)
        request.call_when_ended(lambda request, _: ended.append(request.timeout_ms))
    assert clock.running == 1
    clock.turn(2500)
    assert ended == list(range(1, 2501))
    assert (len(requests), requests.timed_out, clock.running) == (2500, 2500, 1)
    clock.turn(2500)
    assert ended == list(range(1, 5001))
    assert (len(requests), clock.running) == (0, 0)


async def test_a_wait_that_ended_is_not_timed_out() -> None:
    clock = ManualClock()
    requests = waits(clock)
    answered, withdrawn = requests.wait(("t", "p", 1), 1000), requests.wait(("t", "p", 2), 1000)
    assert answered.end(Reply(MessageId(0, 1), b"!", False))
    assert not answered.end(Reply(MessageId(0, 1), b"again", False))
    withdrawn.withdraw()
    withdrawn.withdraw()
    clock.turn(1000)
    assert (requests.timed_out, requests.withdrawn, len(requests)) == (0, 1, 0)
    assert (await answered.reply()).content == b"!"


async def test_waits_that_were_withdrawn_leave_nothing_behind() -> None:
    requests = waits(ManualClock())
    for number in range(10 * SWEEP_MIN):
        request = requests.wait(("t", "p", number), 300_000)
        request.placed(MessageId(0, number))
        request.call_when_ended(lambda *_: None)
        request.withdraw()
    assert len(requests) == 0
    assert len(requests._timers) <= SWEEP_MIN


async def test_waits_with_many_deadlines_leave_nothing_behind() -> None:
    requests = waits(ManualClock())
    for number in range(3 * SWEEP_MIN):
        requests.wait(("t", "p", number), 100_000 + number).withdraw()
    assert (len(requests), requests.withdrawn) == (0, 3 * SWEEP_MIN)
    assert len(requests._timers) <= SWEEP_MIN


async def test_waits_of_one_millisecond_end_in_their_order_but_those_that_ended_before() -> None:
    clock = CountingClock()
    requests = waits(clock)
    ended: list[int] = []
    begun = [requests.wait(("t", "p", number), 1000) for number in range(5)]
    for request in begun:
        request.call_when_ended(lambda request, _: ended.append(begun.index(request)))
    begun[0].withdraw()
    begun[3].end(Reply(MessageId(0, 3), b"!", False))
    assert (repr(begun[1]), len(requests._timers), clock.running) == ("Request('t', 'p', 1)", 1, 1)
    clock.turn(1000)
    assert (ended, requests.timed_out, len(requests), clock.running) == ([3, 1, 2, 4], 3, 0, 0)


async def test_a_reply_is_not_kept_once_it_was_handed_over() -> None:
    requests = waits(ManualClock())
    got: list[ReplyOrError] = []
    for early in (True, False):
        request = requests.wait(("t", "p", early), 300_000)
        if early:
            request.call_when_ended(lambda _, ended: got.append(ended))
        request.end(Reply(MessageId(0, early), b"x", False))
        if not early:
            request.call_when_ended(lambda _, ended: got.append(ended))
        assert not gc.get_referrers(got.pop())  # but for the list that had it


async def test_a_requester_that_fails_is_not_the_consumers_trouble(caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> None:
        raise ValueError

    async with bench() as b:
        consumer = await b.consumer()
        (message_id,) = await b.publish(b"?")
        request = b.broker.requests.wait((str(TOPIC), "p", 1), 3000)
        request.placed(message_id)
        request.call_when_ended(fail)
        await b.taken(consumer)
        assert await consumer.reply(message_id, b"!") is Outcome.DELIVERED
        assert (consumer.unacked, len(b.broker.requests)) == (0, 0)
    assert "could not be handed over" in caplog.text


async def test_replies_to_known_requests_leave_the_acknowledgement_to_the_caller() -> None:
    async with bench() as b:
        holder, other = await b.consumer(), await b.consumer()
        task, _ = await ask(b)
        if other.unacked:
            holder, other = other, holder
        ((message_id, _, _),) = await b.taken(holder)
        reply = Reply(message_id, b"!", False)
        assert other.reply_all([reply]) == [reply]  # it was not given the message
        stray = Reply(MessageId(99, 0), b"!", False)
        large = Reply(message_id, b"x" * (REPLY_BYTES_MAX + 1), False)
        assert holder.reply_all([stray, large, reply]) == [stray, large]
        assert (await task) == reply
        assert holder.unacked == 1
        assert holder.reply_all([reply]) == [reply]  # nobody waits any more
        assert await holder.reply(message_id, b"again") is Outcome.NOBODY_WAITS
        assert (b.broker.requests.answered, b.broker.requests.late) == (1, 1)


async def test_two_waits_for_one_message_get_the_same_reply() -> None:
    """A repeat of a request is no message of its own: both who sent it wait for the first's reply."""
    async with bench() as b:
        consumer = await b.consumer()
        (message_id,) = await b.publish(b"?")
        one, two = (b.broker.requests.wait((str(TOPIC), "p", n), 3000) for n in (1, 2))
        one.placed(message_id)
        two.placed(message_id)
        await b.taken(consumer)
        assert await consumer.reply(message_id, b"!") is Outcome.DELIVERED
        assert [(await request.reply()).content for request in (one, two)] == [b"!", b"!"]
        assert (b.broker.requests.answered, len(b.broker.requests)) == (2, 0)


@pytest.mark.parametrize("timeout", [0, -1, 300_001])
async def test_a_senseless_timeout_is_refused_and_nothing_is_stored(timeout: int) -> None:
    async with bench() as b:
        producer = await b.broker.producer(TOPIC)
        with pytest.raises(PenstockError) as caught:
            await producer.request(OutMessage(payload=b"?"), timeout)
        assert caught.value.kind is ErrorKind.BAD_PARAMETER
        assert producer.topics[0].next_offset == 0
        assert len(b.broker.requests) == 0


async def test_a_group_of_requests_is_asked_at_once() -> None:
    async with bench() as b:
        producer = await b.broker.producer(TOPIC)
        messages = [
            OutMessage(payload=b"%d" % n, properties={"a": "b"} if n == 2 else None) for n in range(4)
        ]
        asked = producer.ask(messages, [1000, None, 2000, 1000])
        assert [request is None for request in asked] == [False, True, False, False]
        results = await producer.publish(messages, requests=asked)
        assert [message.sequence_id for message in messages] == [0, 1, 2, 3]
        consumer = await b.consumer()
        taken = await b.taken(consumer)
        marks = [message.properties.get(REQUEST_TIMEOUT_PROPERTY) for _, message, _ in taken]
        assert marks == ["1000", None, "2000", "1000"]
        assert taken[2][1].properties["a"] == "b"
        assert [message_id for message_id, _, _ in taken] == results
        replies = [Reply(message_id, message.payload, False) for message_id, message, _ in taken]
        assert consumer.reply_all(replies) == [replies[1]]  # nobody waits for the plain message's
        for request, reply in zip(asked, replies, strict=True):
            assert request is None or await request.reply() == reply
        assert len(b.broker.requests) == 0


async def test_requests_that_are_not_stored_end_with_the_reason() -> None:
    async with bench() as b:
        producer = await b.broker.producer(TOPIC)
        messages = [OutMessage(payload=b"?", partition=7), OutMessage(payload=b"?")]
        one, two = producer.ask(messages, [1000, 1000])
        results = await producer.publish(messages, requests=(one, two))
        assert [isinstance(result, PenstockError) for result in results] == [True, False]
        assert one is not None
        with pytest.raises(PenstockError) as caught:
            await one.reply()
        assert caught.value.kind is ErrorKind.PARTITION_NOT_FOUND
        assert len(b.broker.requests) == 1


async def test_a_senseless_timeout_in_a_group_lets_nobody_wait() -> None:
    async with bench() as b:
        producer = await b.broker.producer(TOPIC)
        with pytest.raises(PenstockError):
            producer.ask([OutMessage(payload=b"1"), OutMessage(payload=b"2")], [1000, 0])
        assert (len(b.broker.requests), b.broker.requests.opened) == (0, 0)


async def test_of_several_waits_for_one_message_each_may_be_withdrawn() -> None:
    async with bench() as b:
        consumer = await b.consumer()
        (message_id,) = await b.publish(b"?")
        requests = [b.broker.requests.wait((str(TOPIC), "p", 1), 3000 + n % 2) for n in range(4)]
        for request in requests[:3]:
            request.placed(message_id)
        requests[1].withdraw()
        requests[3].withdraw()
        assert len(b.broker.requests) == 2
        ((taken, _, _),) = await b.taken(consumer)
        assert consumer.reply_all([Reply(taken, b"!", False)]) == []
        assert [(await requests[n].reply()).content for n in (0, 2)] == [b"!", b"!"]
        assert (b.broker.requests.answered, len(b.broker.requests)) == (2, 0)
