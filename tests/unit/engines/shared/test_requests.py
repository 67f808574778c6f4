"""Waits for replies: found by a key, ended once, in time, also before the receipt."""

import asyncio

import msgspec
import pytest

from penstock.broker.producer import Reply, ReplyOrError
from penstock.engines.shared.requests import Request, Requests, id_key
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import REQUEST_TIMEOUT_PROPERTY, OutMessage
from penstock.model.message_id import EARLIEST, MessageId
from penstock.testing.clock import ManualClock

PLACED = MessageId(3, 4)
REPLY = Reply(EARLIEST, b"yes", False)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def requests(clock: ManualClock) -> Requests:
    return Requests(clock, 300_000, correlated=True)


def ask(requests: Requests, timeout_ms: int = 1000) -> tuple[Request, OutMessage]:
    message = OutMessage(payload=b"?", properties={"own": "1"})
    (request,) = requests.ask([message], [timeout_ms])
    assert request is not None
    return request, message


def test_a_message_is_marked_as_a_request(requests: Requests) -> None:
    one, other = OutMessage(payload=b"?", properties={"own": "1"}), OutMessage(payload=b"?")
    assert [found is None for found in requests.ask([one, other], [1000, None])] == [False, True]
    assert one.properties == {"own": "1", REQUEST_TIMEOUT_PROPERTY: "1000"}
    assert not other.properties


async def test_without_correlation_ids_a_wait_is_found_by_names_and_then_by_the_message_id(
    clock: ManualClock,
) -> None:
    requests, names = Requests(clock, 300_000), ("orders", "p", 7)
    (one,) = requests.ask([OutMessage(payload=b"?")], [1000])
    assert one is not None
    assert not requests.answer(names, REPLY)
    requests.numbered(one, names)
    other = requests.wait(names, 1000)
    assert (one.correlation_id, len(requests)) == ("", 2)
    one.placed(PLACED)
    reply = Reply(PLACED, b"yes", False)
    assert requests.answer(id_key(PLACED), reply)
    assert await one.reply() == reply
    assert other.waiting
    assert requests.answer(names, reply)
    assert await other.reply() == reply
    assert (requests.answered, len(requests), requests.waits) == (2, 0, {})


async def test_the_first_reply_ends_the_wait_and_others_are_late(requests: Requests) -> None:
    request, _ = ask(requests)
    request.placed(PLACED)
    assert requests.answer(request.correlation_id, REPLY)
    assert await request.reply() == msgspec.structs.replace(REPLY, request_id=PLACED)
    assert not requests.answer(request.correlation_id, REPLY)
    assert (requests.opened, requests.answered, len(requests)) == (1, 1, 0)


def test_the_number_of_a_request_does_not_follow_from_another(requests: Requests) -> None:
    seen, _ = ask(requests)
    for _ in range(20):
        ask(requests)
    process, _, number = seen.correlation_id.rpartition("-")
    assert requests.owns(f"{process}-1")
    for step in range(1, 50):
        for guess in (str(step), f"{int(number, 16) + step:x}"):
            assert not requests.answer(f"{process}-{guess}", REPLY)
    assert len(requests) == 21


async def test_a_reply_that_overtakes_the_receipt_waits_for_it(requests: Requests) -> None:
    request, _ = ask(requests)
    requests.answer(request.correlation_id, REPLY)
    requests.answer(request.correlation_id, Reply(EARLIEST, b"second", False))
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(request.reply())
        await asyncio.sleep(0)
        assert not waiting.done()
        request.placed(PLACED)
    assert waiting.result() == msgspec.structs.replace(REPLY, request_id=PLACED)


async def test_a_request_that_is_not_stored_fails_although_a_reply_came(requests: Requests) -> None:
    request, _ = ask(requests)
    requests.answer(request.correlation_id, REPLY)
    request.fail(PenstockError(ErrorKind.TOPIC_TERMINATED, "over"))
    with pytest.raises(PenstockError) as caught:
        await request.reply()
    assert caught.value.kind is ErrorKind.TOPIC_TERMINATED
    assert requests.answered == 0


async def test_a_wait_ends_in_time(requests: Requests, clock: ManualClock) -> None:
    request, _ = ask(requests, 500)
    await clock.advance(499)
    assert request.waiting
    await clock.advance(1)
    with pytest.raises(PenstockError) as caught:
        await request.reply()
    assert caught.value.kind is ErrorKind.REQUEST_TIMEOUT
    assert (requests.timed_out, requests.answered, len(requests)) == (1, 0, 0)


def test_who_hangs_up_is_not_called(requests: Requests) -> None:
    request, _ = ask(requests)
    called: list[ReplyOrError] = []
    request.call_when_ended(lambda _, ended: called.append(ended))
    request.withdraw()
    request.withdraw()
    assert not requests.answer(request.correlation_id, REPLY)
    assert (called, requests.withdrawn, len(requests)) == ([], 1, 0)


def test_a_stopping_server_ends_every_wait(requests: Requests) -> None:
    ended: list[ReplyOrError] = []
    for _ in range(3):
        ask(requests)[0].call_when_ended(lambda _, error: ended.append(error))
    requests.close()
    assert [getattr(each, "kind", None) for each in ended] == [ErrorKind.UNAVAILABLE] * 3


@pytest.mark.parametrize("timeout_ms", [0, -1, 300_001])
def test_a_senseless_timeout_is_refused(requests: Requests, timeout_ms: int) -> None:
    with pytest.raises(PenstockError):
        ask(requests, timeout_ms)
    assert len(requests) == 0
