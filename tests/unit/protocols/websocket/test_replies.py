"""The replies on their way to a producer's socket."""

import asyncio
from typing import Any

import pytest
from msgspec import UNSET
from tests.unit.protocols.websocket.connections import FakeConnection

from penstock.broker.producer import Reply
from penstock.engines.shared.requests import Requests
from penstock.model.message_id import MessageId
from penstock.protocols.websocket import replies
from penstock.protocols.websocket.frames import ProducerReply, encode, encode_reply
from penstock.protocols.websocket.socket import QUEUE_BYTES, Socket
from penstock.testing.clock import ManualClock, settle

ID = MessageId(0, 3)


class Bench:
    """Requests of a socket that takes a frame each time it may."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.requests = Requests(self.clock, 60_000)
        self.connection = FakeConnection()
        self.may = self.connection.writable
        self.may.clear()
        self.replies = replies.Replies(Socket(self.connection, self.clock, 0), lambda reply: UNSET)

    @property
    def sent(self) -> list[dict[str, Any]]:
        return self.connection.sent

    def ask(self, context: str) -> Any:
        request = self.requests.wait(("t", "p", int(context)), 1000)
        self.replies.opened([request])
        self.replies.follow([(request, ID.to_base64(), context)])
        return request


async def test_what_a_socket_does_not_take_is_bounded_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    monkeypatch.setattr(bench.replies._due, "_bytes_max", 100)
    asked = [bench.ask(str(n)) for n in range(4)]
    async with asyncio.TaskGroup() as group:
        group.create_task(bench.replies.run())
        for request in asked:
            request.end(Reply(ID, b"x" * 60, False))
        await settle()
        bench.replies.close()
        bench.may.set()
    results = [(f["context"], f["result"], "replyContent" in f) for f in bench.sent]
    dropped = "the reply was dropped: this socket is not read"
    assert results == [("0", "ok", True), ("1", "ok", True), ("2", dropped, False), ("3", dropped, False)]
    assert len(bench.requests) == 0


async def test_a_reply_before_the_receipt_waits_for_it() -> None:
    bench = Bench()
    request = bench.requests.wait(("t", "p", 1), 1000)
    bench.replies.opened([request])
    request.end(Reply(ID, b"quick", True))
    bench.replies.follow([(request, ID.to_base64(), None)])
    bench.replies.close()
    bench.may.set()
    await bench.replies.run()
    (frame,) = bench.sent
    assert (frame["isErrorResult"], "context" in frame) == (True, False)


async def test_the_end_of_a_socket_is_told_or_withdraws() -> None:
    bench = Bench()
    bench.ask("1")
    bench.replies.close("because")
    bench.may.set()
    await bench.replies.run()
    assert bench.sent[0]["result"] == "because; the request is stored, its reply will be dropped"
    gone = Bench()
    gone.ask("1")
    gone.replies.close()
    await gone.replies.run()
    assert (gone.sent, gone.requests.withdrawn, len(gone.requests)) == ([], 1, 0)


async def test_replies_of_one_turn_are_written_at_once_within_bounds() -> None:
    bench = Bench()
    bench.may.set()
    asked = [bench.ask(str(n)) for n in range(replies.GROUP_MAX + 6)]
    async with asyncio.TaskGroup() as group:
        group.create_task(bench.replies.run())
        for request in asked:
            request.end(Reply(ID, b"x", False))
        await settle()
        large = [bench.ask(str(n)) for n in range(4)]
        for request in large:
            request.end(Reply(ID, b"x" * (QUEUE_BYTES // 2), False))
        await settle()
        bench.replies.close()
    assert [len(write) for write in bench.connection.writes] == [replies.GROUP_MAX, 6, 2, 2]
    assert [int(frame["context"]) for frame in bench.sent[: len(asked)]] == list(range(len(asked)))


async def test_a_reply_is_written_as_its_frame_says() -> None:
    bench = Bench()
    bench.may.set()
    request = bench.ask("1")
    request.end(Reply(ID, b"\0\xff", False, 3))
    bench.replies.close()
    await bench.replies.run()
    assert bench.sent == [
        {
            "type": "reply",
            "result": "ok",
            "requestMessageId": str(ID),
            "replyContent": "AP8=",
            "isErrorResult": False,
            "schemaVersion": 3,
            "context": "1",
        }
    ]


@pytest.mark.parametrize("context", [None, "7", 'grü"ße'])
@pytest.mark.parametrize("is_error", [True, False])
@pytest.mark.parametrize("content", [b"", b"\0\xff", b"x" * 100])
def test_a_plain_reply_is_written_as_the_encoder_writes_it(
    context: str | None, is_error: bool, content: bytes
) -> None:
    expected = ProducerReply(
        request_message_id=str(ID),
        reply_content=content,
        is_error_result=is_error,
        context=UNSET if context is None else context,
    )
    assert encode_reply(ID.to_base64(), content, is_error, context) == encode(expected)


async def test_a_reply_does_not_pass_those_that_the_socket_did_not_take() -> None:
    bench = Bench()
    first, second, third = (bench.ask(str(n)) for n in range(3))
    async with asyncio.TaskGroup() as group:
        group.create_task(bench.replies.run())
        first.end(Reply(ID, b"1", False))
        await settle()
        bench.may.set()
        second.end(Reply(ID, b"2", False))  # before the first is written
        await settle()
        third.end(Reply(ID, b"3", False))
        await settle()
        bench.replies.close()
    assert [frame["context"] for frame in bench.sent] == ["0", "1", "2"]
