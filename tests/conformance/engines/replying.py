"""Requests and their replies (PIP-371)."""

import asyncio

import pytest

from penstock.broker.delivery import Outcome
from penstock.broker.producer import Reply
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.policy import SubscriptionType

from .bench import Bench, EngineTests, texts


class ReplyingTests(EngineTests):
    """Tests of `Producer.request`, `Producer.ask` and `Consumer.reply`."""

    @pytest.mark.parametrize("is_error", [False, True])
    async def test_a_reply_reaches_who_asked(self, bench: Bench, *, is_error: bool) -> None:
        replier = await bench.consume(SubscriptionType.SHARED)
        producer = await bench.producer()
        asking = asyncio.gather(producer.request(OutMessage(payload=b"?", key="k"), 30_000))
        await replier.come(1)
        outcome = await replier.consumer.reply(
            replier.received[0].id, b"!", is_error=is_error, schema_version=None
        )
        (reply,) = await asking

        assert outcome is Outcome.DELIVERED
        assert reply == Reply(replier.received[0].id, b"!", is_error)
        await replier.consumer.flush()
        await replier.leave()
        await bench.publish("next")
        again = await bench.consume(SubscriptionType.SHARED)
        assert await again.come(1) == ["next"]  # the reply acknowledged the request

    async def test_many_at_once_are_not_mixed_up(self, bench: Bench) -> None:
        replier = await bench.consume(SubscriptionType.SHARED)
        producer = await bench.producer()
        messages = texts(*(str(number) for number in range(20)))
        waits = producer.ask(messages, [30_000] * 19 + [None])
        assert [one is None for one in waits] == [False] * 19 + [True]
        ids = await producer.publish(messages, requests=waits)
        await replier.come(20)
        for one in reversed(replier.received):
            outcome = await replier.consumer.reply(one.id, f"re:{one.text}".encode())
            assert outcome is (Outcome.NOT_A_REQUEST if one.text == "19" else Outcome.DELIVERED)
        replies = await asyncio.gather(*(wait.reply() for wait in waits if wait is not None))

        assert [reply.content.decode() for reply in replies] == [f"re:{number}" for number in range(19)]
        assert [reply.request_id for reply in replies] == ids[:19]

    async def test_nobody_replies_in_time(self, bench: Bench) -> None:
        replier = await bench.consume(SubscriptionType.SHARED)
        producer = await bench.producer()
        with pytest.raises(PenstockError) as caught:
            await producer.request(OutMessage(payload=b"?"), 50)
        assert caught.value.kind is ErrorKind.REQUEST_TIMEOUT
        await replier.come(1)
        await bench.tick()

        assert await replier.consumer.reply(replier.received[0].id, b"late") is Outcome.NOBODY_WAITS
        figures = bench.broker.requests.figures()
        assert (figures.waiting, figures.timed_out) == (0, 1)

    async def test_one_that_goes_away_waits_no_more(self, bench: Bench) -> None:
        replier = await bench.consume(SubscriptionType.SHARED)
        producer = await bench.producer()
        messages = texts("?")
        (wait,) = producer.ask(messages, [30_000])
        assert wait is not None
        await producer.publish(messages, requests=[wait])
        assert bench.broker.requests.figures().waiting == 1
        wait.withdraw()
        await replier.come(1)

        assert await replier.consumer.reply(replier.received[0].id, b"!") is Outcome.NOBODY_WAITS
        assert bench.broker.requests.figures().waiting == 0

    async def test_only_who_has_a_request_replies(self, bench: Bench) -> None:
        replier = await bench.consume(SubscriptionType.SHARED)
        (plain,) = await bench.publish("no request")
        await replier.come(1)

        assert await replier.consumer.reply(plain, b"!") is Outcome.NOT_A_REQUEST
        with pytest.raises(PenstockError) as caught:
            await replier.consumer.reply(plain, b"!")
        assert caught.value.kind is ErrorKind.MESSAGE_NOT_FOUND

    async def test_timeouts_have_bounds(self, bench: Bench) -> None:
        producer = await bench.producer()
        for timeout_ms in (0, bench.broker.settings.request_timeout_ms_max + 1):
            with pytest.raises(PenstockError) as caught:
                producer.ask(texts("?"), [timeout_ms])
            assert caught.value.kind is ErrorKind.BAD_PARAMETER
        assert bench.broker.requests.figures().waiting == 0
