"""Waits for replies that come from another process: by their number, once, in time, also before the receipt."""

import asyncio

import msgspec
import pytest

from penstock.broker.producer import Reply, ReplyOrError
from penstock.engines.shared.remote_requests import (
    CORRELATION_ID,
    REPLY_TO,
    Address,
    RemoteRequests,
    Request,
    TopicPerProcess,
    address_of,
)
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import REQUEST_TIMEOUT_PROPERTY, Message, OutMessage
from penstock.model.message_id import EARLIEST, MessageId
from penstock.model.names import TopicName
from penstock.testing.clock import ManualClock

TOPIC = TopicName.parse("orders")
ADDRESSES = TopicPerProcess()
PLACED = MessageId(3, 4)
REPLY = Reply(EARLIEST, b"yes", False)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def requests(clock: ManualClock) -> RemoteRequests:
    return RemoteRequests(clock, 300_000)


def ask(requests: RemoteRequests, timeout_ms: int = 1000) -> tuple[Request, OutMessage]:
    message = OutMessage(payload=b"?", properties={"own": "1"})
    return requests.ask(TOPIC, message, timeout_ms), message


def test_a_request_names_the_topic_and_the_number_of_its_reply(requests: RemoteRequests) -> None:
    request, message = ask(requests)
    assert message.properties == {
        "own": "1",
        REQUEST_TIMEOUT_PROPERTY: "1000",
        REPLY_TO: requests.reply_to(TOPIC.namespace_name),
        CORRELATION_ID: request.correlation_id,
    }
    assert message.properties[REPLY_TO].startswith("non-persistent://public/default/penstock-replies-")


async def test_the_first_reply_ends_the_wait_and_others_are_late(requests: RemoteRequests) -> None:
    request, _ = ask(requests)
    request.placed(PLACED)
    assert requests.answer(request.correlation_id, REPLY)
    assert await request.reply() == msgspec.structs.replace(REPLY, request_id=PLACED)
    assert not requests.answer(request.correlation_id, REPLY)
    assert (requests.opened, requests.answered, requests.late, len(requests)) == (1, 1, 1, 0)


def test_the_number_of_a_request_does_not_follow_from_another(requests: RemoteRequests) -> None:
    seen, _ = ask(requests)
    for _ in range(20):
        ask(requests)
    process, _, number = seen.correlation_id.rpartition("-")
    assert requests.owns(f"{process}-1")
    for step in range(1, 50):
        for guess in (str(step), f"{int(number, 16) + step:x}"):
            assert not requests.answer(f"{process}-{guess}", REPLY)
    assert len(requests) == 21


async def test_a_reply_that_overtakes_the_receipt_waits_for_it(requests: RemoteRequests) -> None:
    request, _ = ask(requests)
    requests.answer(request.correlation_id, REPLY)
    requests.answer(request.correlation_id, Reply(EARLIEST, b"second", False))
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(request.reply())
        await asyncio.sleep(0)
        assert not waiting.done()
        request.placed(PLACED)
    assert waiting.result() == msgspec.structs.replace(REPLY, request_id=PLACED)


async def test_a_request_that_is_not_stored_fails_although_a_reply_came(requests: RemoteRequests) -> None:
    request, _ = ask(requests)
    requests.answer(request.correlation_id, REPLY)
    request.fail(PenstockError(ErrorKind.TOPIC_TERMINATED, "over"))
    with pytest.raises(PenstockError) as caught:
        await request.reply()
    assert caught.value.kind is ErrorKind.TOPIC_TERMINATED
    assert requests.answered == 0


async def test_a_wait_ends_in_time(requests: RemoteRequests, clock: ManualClock) -> None:
    request, _ = ask(requests, 500)
    await clock.advance(499)
    assert request.waiting
    await clock.advance(1)
    with pytest.raises(PenstockError) as caught:
        await request.reply()
    assert caught.value.kind is ErrorKind.REQUEST_TIMEOUT
    assert (requests.timed_out, requests.answered, len(requests)) == (1, 0, 0)


def test_who_hangs_up_is_not_called(requests: RemoteRequests) -> None:
    request, _ = ask(requests)
    called: list[ReplyOrError] = []
    request.call_when_ended(lambda _, ended: called.append(ended))
    request.withdraw()
    request.withdraw()
    assert not requests.answer(request.correlation_id, REPLY)
    assert (called, requests.withdrawn, len(requests)) == ([], 1, 0)


def test_a_stopping_server_ends_every_wait(requests: RemoteRequests) -> None:
    ended: list[ReplyOrError] = []
    for _ in range(3):
        ask(requests)[0].call_when_ended(lambda _, error: ended.append(error))
    requests.close()
    assert [getattr(each, "kind", None) for each in ended] == [ErrorKind.UNAVAILABLE] * 3


@pytest.mark.parametrize("timeout_ms", [0, -1, 300_001])
def test_a_senseless_timeout_is_refused(requests: RemoteRequests, timeout_ms: int) -> None:
    with pytest.raises(PenstockError):
        ask(requests, timeout_ms)
    assert len(requests) == 0


def received(**properties: str) -> Message:
    return Message(payload=b"?", properties=properties)


def test_only_topics_for_replies_in_the_requests_namespace_are_addresses() -> None:
    good = "non-persistent://public/default/penstock-replies-1"
    given = {REQUEST_TIMEOUT_PROPERTY: "1000", REPLY_TO: good, CORRELATION_ID: "1-1"}
    assert address_of(received(**given), TOPIC, ADDRESSES) == Address(good, "1-1")
    for wrong in (
        "persistent://public/default/penstock-replies-1",
        "non-persistent://public/other/penstock-replies-1",
        "non-persistent://public/default/orders",
        "non-persistent://public/default/penstock-replies-1-partition-2",
        "://",
        "",
    ):
        assert address_of(received(**{**given, REPLY_TO: wrong}), TOPIC, ADDRESSES) is None
    for missing in given:
        assert (
            address_of(received(**{k: v for k, v in given.items() if k != missing}), TOPIC, ADDRESSES) is None
        )
