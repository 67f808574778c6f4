"""Request-reply (PIP-371) over the endpoints: every way a request can end."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.waiting import until_async
from tests.support.websocket import CONSUMER, PRODUCER, Peer, WebSocketServer, base64, text

from penstock.engines.memory import MemoryStore
from penstock.engines.shared.publishing import Router
from penstock.engines.sqlite import SqliteStore
from penstock.model.entry import AppendResult, NewEntry
from penstock.model.message import OutMessage
from penstock.model.names import NamespaceName, TopicName
from penstock.model.partitioning import Partitioner
from penstock.model.policy import NamespacePolicies, ProducerOptions, Routing
from penstock.protocols.websocket import replies
from penstock.runtime.tasks import Tasks
from penstock.testing.clock import ManualClock

TOPIC = TopicName.parse("t")
NOBODY = "nobody waits for this reply (any more)"


async def requester(server: WebSocketServer, query: str = "", topic: str = "t") -> Peer:
    return await server.connect(f"{PRODUCER}/{topic}?{query}")


class Worker(Peer):
    """A consumer that replies; messages that come before an answer wait for `message`."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(peer.connection)
        self._messages: deque[dict[str, Any]] = deque()

    async def message(self) -> dict[str, Any]:
        return self._messages.popleft() if self._messages else await self.receive()

    async def command(self, frame: dict[str, Any]) -> dict[str, Any]:
        """Send a command and return its answer."""
        await self.send(frame)
        while "payload" in (answer := await self.receive()):
            self._messages.append(answer)
        return answer


async def replier(
    server: WebSocketServer, kind: str = "Shared", *, subscription: str = "s", query: str = ""
) -> Worker:
    path = f"{CONSUMER}/t/{subscription}?subscriptionInitialPosition=Earliest&subscriptionType={kind}"
    return Worker(await server.connect(path + query))


async def ask(peer: Peer, payload: str, **fields: Any) -> str:
    """Send a request; its id, from the receipt."""
    await peer.send({"payload": base64(payload), "requestTimeoutMillis": 60_000, **fields})
    receipt = await peer.receive()
    assert receipt["result"] == "ok", receipt
    message_id: str = receipt["messageId"]
    return message_id


async def reply(peer: Worker, frame: dict[str, Any], content: str, **fields: Any) -> dict[str, Any]:
    """Reply to a message and return the answer."""
    return await peer.command(
        {"messageId": frame["messageId"], "replyContent": base64(content), "context": "r", **fields}
    )


async def answered(peer: Worker, frame: dict[str, Any], content: str, **fields: Any) -> None:
    assert await reply(peer, frame, content, **fields) == {"result": "ok", "context": "r", "reply": "ok"}


def content(frame: dict[str, Any]) -> str:
    assert frame["result"] == "ok", frame
    return text({"payload": frame["replyContent"]})


async def backlog(server: WebSocketServer, subscription: str = "s") -> int:
    return (await server.broker.subscriptions.of(TOPIC, subscription))[0].backlog


@asynccontextmanager
async def rest(server: WebSocketServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{server.port}/topics/public/default/t", trust_env=False, timeout=90
    ) as client:
        yield client


async def test_a_request_from_end_to_end() -> None:
    async with WebSocketServer.open(clock=ManualClock(1_543_238_579_817)) as server:
        receiving = await replier(server)
        sending = await requester(server, "producerName=p")
        receipt = await sending.ask({"payload": base64("?"), "requestTimeoutMillis": 3000, "context": 5})
        assert receipt == {
            "result": "ok",
            "messageId": "CAAQAA==",
            "context": "5",
            "errorCode": 0,
            "schemaVersion": 0,
        }
        message = await receiving.message()
        assert message == {
            "messageId": "CAAQAA==",
            "payload": base64("?"),
            "properties": {"REQUEST_TIMEOUT_MILLIS": "3000"},
            "publishTime": "2018-11-26T13:22:59.817Z",
            "redeliveryCount": 0,
            "producerName": "p",
            "sequenceId": 0,
            "requestTimeoutMillis": 3000,
            "requestDeadline": "2018-11-26T13:23:02.817Z",
        }
        await receiving.send({"messageId": message["messageId"], "replyContent": base64("!")})
        assert await sending.receive() == {
            "type": "reply",
            "result": "ok",
            "requestMessageId": "CAAQAA==",
            "replyContent": base64("!"),
            "isErrorResult": False,
            "context": "5",
        }
        assert await backlog(server) == 0
        assert len(server.broker.requests) == 0


async def test_an_error_an_empty_reply_and_a_plain_message() -> None:
    async with WebSocketServer.open() as server:
        receiving, sending = await replier(server), await requester(server)
        await ask(sending, "1")
        await answered(receiving, await receiving.message(), "no", isErrorResult=True)
        failed = await sending.receive()
        assert (content(failed), failed["isErrorResult"]) == ("no", True)
        await ask(sending, "2")
        await answered(receiving, await receiving.message(), "")
        empty = await sending.receive()
        assert (content(empty), empty["isErrorResult"]) == ("", False)
        await sending.publish("plain")
        answer = await reply(receiving, await receiving.message(), "?")
        assert answer == {"result": "ok", "context": "r", "reply": "the message is no request"}
        assert await backlog(server) == 0


async def test_a_plain_acknowledgement_does_not_end_the_wait() -> None:
    async with WebSocketServer.open() as server:
        one, two = await replier(server, subscription="one"), await replier(server, subscription="two")
        sending = await requester(server)
        await ask(sending, "?")
        frame = await one.receive()
        assert await one.command({"messageId": frame["messageId"], "context": "a"}) == {
            "result": "ok",
            "context": "a",
        }
        await answered(two, await two.message(), "late but first")
        assert content(await sending.receive()) == "late but first"


async def test_of_two_subscriptions_the_first_reply_wins() -> None:
    async with WebSocketServer.open() as server:
        one, two = await replier(server, subscription="one"), await replier(server, subscription="two")
        sending = await requester(server)
        await ask(sending, "?")
        frame = await one.receive()
        await answered(one, frame, "1")
        assert (await reply(two, await two.message(), "2"))["reply"] == NOBODY
        assert content(await sending.receive()) == "1"
        assert server.broker.requests.late == 1
        assert (await backlog(server, "one"), await backlog(server, "two")) == (0, 0)


@pytest.mark.parametrize("kind", ["Exclusive", "Failover", "Shared", "Key_Shared"])
async def test_every_type_of_subscription_replies(kind: str) -> None:
    async with WebSocketServer.open() as server:
        receiving, sending = await replier(server, kind), await requester(server)
        for number in range(10):
            await ask(sending, str(number), key=f"k{number}", context=number)
        for _ in range(10):
            frame = await receiving.message()
            await answered(receiving, frame, "re " + text(frame))
        got = [await sending.receive() for _ in range(10)]
        assert [(f["context"], content(f)) for f in got] == [(str(n), f"re {n}") for n in range(10)]


async def test_several_workers_share_the_requests() -> None:
    async with WebSocketServer.open() as server:
        workers = [await replier(server) for _ in range(4)]
        sending = await requester(server)
        for number in range(40):
            await ask(sending, str(number), context=number)

        async def work(worker: Worker) -> None:
            for _ in range(10):
                frame = await worker.message()
                await answered(worker, frame, "re " + text(frame))

        await asyncio.gather(*map(work, workers))
        got = [await sending.receive() for _ in range(40)]
        assert {f["context"]: content(f) for f in got} == {str(n): f"re {n}" for n in range(40)}


async def test_a_worker_that_dies_before_its_reply_leaves_the_request_to_another() -> None:
    async with WebSocketServer.open() as server:
        first, sending = await replier(server), await requester(server)
        await ask(sending, "?")
        await first.receive()
        await first.close()
        second = await replier(server)
        frame = await second.receive()
        assert (frame["redeliveryCount"], frame["requestTimeoutMillis"]) == (1, 60_000)
        await answered(second, frame, "from the second")
        assert content(await sending.receive()) == "from the second"


async def test_a_worker_that_dies_after_its_reply_has_done_its_work() -> None:
    async with WebSocketServer.open() as server:
        first, sending = await replier(server), await requester(server)
        await ask(sending, "?")
        frame = await first.receive()
        await first.send({"messageId": frame["messageId"], "replyContent": base64("done")})
        await first.close()
        assert content(await sending.receive()) == "done"
        second = await replier(server)
        await second.nothing_more()


async def test_a_request_given_back_goes_to_another_while_its_time_runs() -> None:
    async with WebSocketServer.open() as server:
        receiving = await replier(server, query="&negativeAckRedeliveryDelay=0")
        sending = await requester(server)
        await ask(sending, "?")
        frame = await receiving.message()
        await receiving.send({"type": "negativeAcknowledge", "messageId": frame["messageId"]})
        await answered(receiving, await receiving.message(), "again")
        assert content(await sending.receive()) == "again"


async def test_a_requester_that_goes_withdraws_its_waits_and_no_others() -> None:
    async with WebSocketServer.open() as server:
        receiving = await replier(server)
        going, staying = await requester(server), await requester(server)
        await ask(going, "1")
        await ask(staying, "2")
        await going.close()
        await until_async(lambda: len(server.broker.requests) == 1)
        assert server.broker.requests.withdrawn == 1
        assert (await reply(receiving, await receiving.message(), "?"))["reply"] == NOBODY
        await answered(receiving, await receiving.message(), "!")
        assert content(await staying.receive()) == "!"
        assert await backlog(server) == 0


async def test_time_runs_out_while_the_request_is_worked_on() -> None:
    clock = ManualClock()
    async with WebSocketServer.open(clock=clock) as server:
        receiving, sending = await replier(server), await requester(server)
        asked = await ask(sending, "?", requestTimeoutMillis=500, context="c")
        frame = await receiving.message()
        clock.turn(499)
        assert len(server.broker.requests) == 1
        clock.turn(1)
        assert await sending.receive() == {
            "type": "reply",
            "result": "timeout",
            "requestMessageId": asked,
            "isErrorResult": False,
            "context": "c",
        }
        assert (await reply(receiving, frame, "too late"))["reply"] == NOBODY
        assert (server.broker.requests.timed_out, server.broker.requests.late) == (1, 1)
        assert await backlog(server) == 0


async def test_a_request_whose_time_is_over_is_still_delivered() -> None:
    clock = ManualClock()
    async with WebSocketServer.open(clock=clock) as server:
        sending = await requester(server)
        await ask(sending, "?", requestTimeoutMillis=1)
        clock.turn(10)
        assert (await sending.receive())["result"] == "timeout"
        frame = await (await replier(server)).receive()
        assert frame["requestDeadline"] < "2023-11-14T22:13:20.010Z"


@pytest.mark.parametrize(
    ("timeout", "result"),
    [(0, "send-error:8"), (-1, "send-error:8"), (300_001, "send-error:8"), ("soon", "send-error:3")],
)
async def test_a_senseless_timeout_is_refused_and_nothing_is_stored(timeout: Any, result: str) -> None:
    async with WebSocketServer.open() as server:
        sending = await requester(server)
        answer = await sending.ask({"payload": "", "requestTimeoutMillis": timeout})
        assert answer["result"] == result
        assert answer["errorMsg"]
        assert (await server.broker.topics.get(TOPIC)).next_offset == 0
        assert len(server.broker.requests) == 0


async def test_a_zero_among_the_fields_of_a_java_class_means_nothing() -> None:
    async with WebSocketServer.open() as server:
        receiving, sending = await replier(server), await requester(server)
        await sending.publish("x", requestTimeoutMillis=0, deliverAt=0, deliverAfterMs=0)
        assert "requestTimeoutMillis" not in await receiving.message()


async def test_replies_that_cannot_be() -> None:
    async with WebSocketServer.open() as server:
        mine, other = await replier(server), await replier(server, subscription="other")
        sending = await requester(server)
        await ask(sending, "1")
        frame = await mine.receive()
        message_id = frame["messageId"]
        answer = await mine.command({"messageId": message_id, "replyContent": "?", "context": "a"})
        assert (answer["context"], "reply" in answer) == ("a", False)
        assert answer["result"].startswith("Invalid Base64 replyContent")
        large = "A" * (7 * 1024 * 1024)
        answer = await mine.command({"messageId": message_id, "replyContent": large, "context": "b"})
        assert "a reply of 5505024 bytes" in answer["result"]
        answer = await reply(mine, frame, "?", ackType="Cumulative")
        assert "for one message" in answer["result"]
        assert "not out" in (await reply(mine, {"messageId": "CAAQCQ=="}, "?"))["result"]
        assert "no topic of this consumer" in (await reply(mine, {"messageId": "CAkQCQ=="}, "?"))["result"]
        assert await backlog(server) == 1
        await answered(mine, frame, "still mine to answer")
        assert content(await sending.receive()) == "still mine to answer"
        # without a context nobody would be told
        await mine.send({"messageId": message_id, "replyContent": "?"})
        assert await mine.closed() == (4007, "Invalid payload encoding")
        frame = await other.receive()
        await other.send({"messageId": frame["messageId"], "replyContent": large})
        assert (await other.closed())[0] == 1009


async def test_only_who_has_the_message_may_reply() -> None:
    async with WebSocketServer.open() as server:
        one, two = await replier(server), await replier(server)
        sending = await requester(server)
        await ask(sending, "1")
        await ask(sending, "2")
        theirs = await two.message()
        assert "not out with this consumer" in (await reply(one, theirs, "mine"))["result"]
        await answered(two, theirs, "ok")
        assert content(await sending.receive()) == "ok"


class GatedStore(MemoryStore):
    """Appends to the logs in `gates` wait for a permit each."""

    def __init__(self) -> None:
        super().__init__()
        self.gates: dict[int, asyncio.Semaphore] = {}

    def append(self, ledger: int, entries: Sequence[NewEntry]) -> Any:
        return asyncio.get_running_loop().create_task(self._append(ledger, entries))

    async def _append(self, ledger: int, entries: Sequence[NewEntry]) -> AppendResult:
        if ledger in self.gates:
            await self.gates[ledger].acquire()
        return await super().append(ledger, entries)


async def test_a_reply_that_overtakes_the_receipt_is_written_after_it() -> None:
    store = GatedStore()
    async with WebSocketServer.open(store=store) as server:
        await server.broker.topics.create(TOPIC, 2)
        first, _ = await server.broker.topics.all_of(TOPIC)
        router = Router(2, Routing.SINGLE, Partitioner.JAVA)
        shut, open_ = (next(k for k in "abcdefgh" if router.choose(k, None) == n) for n in (0, 1))
        gate = store.gates[first.ledger] = asyncio.Semaphore(0)
        receiving = await replier(server)
        sending = await requester(server)
        await sending.send({"payload": base64("plain"), "key": shut, "context": "a"})
        for name, key, context in (("quick", open_, "b"), ("slow", shut, "c")):
            await sending.send(
                {"payload": base64(name), "key": key, "context": context, "requestTimeoutMillis": 60_000}
            )
        await asyncio.sleep(0.05)  # lets all three wait for the first; right either way
        gate.release()
        while text(frame := await receiving.message()) != "quick":
            await receiving.send({"messageId": frame["messageId"]})
        await answered(receiving, frame, "!")
        gate.release()
        got = [await sending.receive() for _ in range(4)]
        ends = [(f.get("type", "receipt"), f["context"]) for f in got]
        assert ends.index(("receipt", "b")) < ends.index(("reply", "b"))
        assert {end for end in ends if end[0] == "receipt"} == {("receipt", c) for c in "abc"}
        while text(frame := await receiving.message()) != "slow":
            pass
        await answered(receiving, frame, "at last")
        assert (await sending.receive())["context"] == "c"


async def test_requests_among_plain_messages_go_alone_and_in_order() -> None:
    async with WebSocketServer.open() as server:
        receiving = await replier(server, "Exclusive")
        sending = await requester(server, "batchingEnabled=true&producerName=p")
        for number in range(60):
            timeout = {"requestTimeoutMillis": 60_000} if number % 7 == 3 else {}
            await sending.send({"payload": base64(str(number)), **timeout})
        receipts = [await sending.receive() for _ in range(60)]
        assert {r["result"] for r in receipts} == {"ok"}
        frames = [await receiving.message() for _ in range(60)]
        assert [(text(f), f["sequenceId"]) for f in frames] == [(str(n), n) for n in range(60)]
        topic = await server.broker.topics.get(TOPIC)
        alone = {e.offset for e in await topic.read(0, 100) if e.count == 1}
        assert {n for n in range(60) if n % 7 == 3} <= alone


@pytest.mark.parametrize("names", [("one", "two"), ("same",)])
async def test_the_same_sequence_id_twice(names: tuple[str, ...]) -> None:
    """From two requesters, or from one that counts badly: each gets its own reply."""
    async with WebSocketServer.open() as server:
        receiving = await replier(server)
        peers = [await requester(server, f"producerName={name}") for name in names]
        await ask(peers[0], "1", sequenceId=7, context="1")
        await ask(peers[-1], "2", sequenceId=7, context="2")
        for _ in range(2):
            frame = await receiving.message()
            assert frame["sequenceId"] == 7
            await answered(receiving, frame, "re " + text(frame))
        one, two = await peers[0].receive(), await peers[-1].receive()
        assert [(f["context"], content(f)) for f in (one, two)] == [("1", "re 1"), ("2", "re 2")]


async def test_a_request_repeated_after_a_lost_connection_waits_for_the_same_message() -> None:
    async with WebSocketServer.open() as server:
        name = NamespaceName.of("public", "default")
        await server.broker.namespaces.update(name, NamespacePolicies(deduplication=True))
        first = await requester(server, "producerName=p")
        asked = await ask(first, "?", sequenceId=3)
        await first.close()
        await until_async(lambda: not server.sockets)
        again = await requester(server, "producerName=p")
        assert await ask(again, "?", sequenceId=3) == asked
        receiving = await replier(server)
        await answered(receiving, await receiving.message(), "!")
        assert content(await again.receive()) == "!"
        await receiving.nothing_more()


async def test_requests_without_a_sequence_id_are_no_repeats_of_others_under_their_name() -> None:
    """Numbers that the server gave say nothing, as another producer of the name has the same ones."""
    async with WebSocketServer.open() as server:
        name = NamespaceName.of("public", "default")
        await server.broker.namespaces.update(name, NamespacePolicies(deduplication=True))
        receiving = await replier(server, "Exclusive")
        sending = await requester(server, "producerName=p")
        shared = await server.broker.producer(TOPIC, ProducerOptions(name="p", shared_name=True))
        await shared.publish([OutMessage(payload=b"%d" % number) for number in range(3)])
        await ask(sending, "3", context="3")
        await sending.publish("4")
        reply_of = asyncio.get_running_loop().create_task(shared.request(OutMessage(payload=b"5"), 60_000))
        frames = [await receiving.message() for _ in range(6)]
        assert [text(frame) for frame in frames] == list("012345")
        await answered(receiving, frames[3], "re 3")
        await answered(receiving, frames[5], "re 5")
        assert content(await sending.receive()) == "re 3"
        assert (await reply_of).content == b"re 5"


async def test_a_request_that_was_not_stored_in_time_is_withdrawn() -> None:
    store, clock = GatedStore(), ManualClock()
    async with WebSocketServer.open(store=store, clock=clock) as server:
        sending = await requester(server, "sendTimeoutMillis=1000")
        topic = await server.broker.topics.get(TOPIC)
        gate = store.gates[topic.ledger] = asyncio.Semaphore(0)
        await sending.send({"payload": "", "requestTimeoutMillis": 60_000, "context": "late"})
        await until_async(lambda: len(server.broker.requests) == 1)
        clock.turn(1000)
        answer = await sending.receive()
        assert (answer["result"], answer["context"]) == ("send-error:8", "late")
        assert len(server.broker.requests) == 0
        gate.release()
        gate.release()
        await sending.publish("the next")
        assert topic.next_offset == 2


async def test_a_restart_in_the_middle_ends_the_wait_and_keeps_the_message(tmp_path: Path) -> None:
    async with WebSocketServer.open(store=SqliteStore(tmp_path)) as server:
        sending = await requester(server)
        asked = await ask(sending, "?", context="c")
        await server.sockets.drain()
        end = await sending.receive()
        assert (end["type"], end["requestMessageId"], end["context"]) == ("reply", asked, "c")
        assert end["result"] == (
            "the server is shutting down; the request is stored, its reply will be dropped"
        )
        assert "replyContent" not in end
        assert (await sending.closed())[0] == 1001
        assert len(server.broker.requests) == 0
    async with WebSocketServer.open(store=SqliteStore(tmp_path)) as server:
        receiving = await replier(server)
        frame = await receiving.message()
        assert (frame["messageId"], text(frame), frame["requestTimeoutMillis"]) == (asked, "?", 60_000)
        assert (await reply(receiving, frame, "?"))["reply"] == NOBODY
        assert await backlog(server) == 0


async def test_a_topic_that_is_deleted_ends_its_requests() -> None:
    async with WebSocketServer.open() as server:
        sending = await requester(server)
        await ask(sending, "?")
        await server.broker.administration.delete_topic(TOPIC, force=True)
        assert (await sending.receive())["result"].startswith(f"{TOPIC} was deleted; the request is stored")
        assert (await sending.closed())[0] == 4008
        assert len(server.broker.requests) == 0


async def test_ten_thousand_in_flight_over_a_few_sockets() -> None:
    async with WebSocketServer.open() as server:
        workers = [await replier(server) for _ in range(2)]
        senders = [await requester(server, "maxPendingMessages=5000") for _ in range(4)]

        async def fill(sending: Peer) -> None:
            for number in range(2500):
                await sending.send(
                    {"payload": base64(str(number)), "requestTimeoutMillis": 250_000, "context": number}
                )

        async def receipts(sending: Peer) -> None:
            for _ in range(2500):
                assert (await sending.receive())["result"] == "ok"

        await asyncio.gather(*map(fill, senders), *map(receipts, senders))
        assert len(server.broker.requests) == 10_000

        async def work(worker: Worker) -> None:
            while True:
                frame = await worker.receive()
                await worker.send({"messageId": frame["messageId"], "replyContent": frame["payload"]})

        async def collect(sending: Peer) -> dict[str, str]:
            got = [await sending.receive() for _ in range(2500)]
            return {frame["context"]: content(frame) for frame in got}

        async with asyncio.TaskGroup() as group:
            working = [group.create_task(work(worker)) for worker in workers]
            collecting = [group.create_task(collect(sending)) for sending in senders]
            expected = {str(n): str(n) for n in range(2500)}
            for one in collecting:
                assert await one == expected
            for task in working:
                task.cancel()
        assert len(server.broker.requests) == 0


async def test_too_many_requests_of_one_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "WAITS_MAX", 2)
    async with WebSocketServer.open() as server:
        receiving, sending = await replier(server), await requester(server)
        await ask(sending, "1")
        await ask(sending, "2")
        answer = await sending.ask({"payload": "", "requestTimeoutMillis": 1000, "context": "3"})
        assert (answer["result"], answer["context"]) == ("send-error:8", "3")
        await answered(receiving, await receiving.message(), "!")
        assert content(await sending.receive()) == "!"
        await ask(sending, "3")


async def test_asked_over_http_and_answered_over_a_websocket() -> None:
    async with WebSocketServer.open() as server, rest(server) as client:
        receiving = await replier(server)
        asking = Tasks().spawn(client.post("/request?timeout=60000", json={"value": "?"}), "ask")
        frame = await receiving.message()
        assert (text(frame), frame["requestTimeoutMillis"]) == ("?", 60_000)
        await answered(receiving, frame, "!", isErrorResult=True)
        assert (await asking).json() == {
            "requestMessageId": frame["messageId"],
            "replyContent": base64("!"),
            "isErrorResult": True,
        }


async def test_asked_over_a_websocket_and_answered_over_http() -> None:
    async with WebSocketServer.open() as server, rest(server) as client:
        made = await client.post("/subscription/s", json={"initial_position": "earliest"})
        sending = await requester(server)
        asked = await ask(sending, "?")
        path = f"/subscription/s/consumer/{made.json()['id']}/messages?timeout=60000"
        (message,) = (await client.get(path)).json()["messages"]
        assert message["requestTimeoutMillis"] == 60_000
        assert message["requestDeadline"] == message["publishTime"] + 60_000
        answer = await client.post(
            "/subscription/s/cursor",
            json={"messageIds": [{"messageId": message["messageId"], "replyContent": base64("!")}]},
        )
        assert answer.json()["messageIds"][0]["reply"] == "ok"
        end = await sending.receive()
        assert (content(end), end["requestMessageId"]) == ("!", asked)


async def test_hanging_up_over_http_withdraws_the_wait() -> None:
    async with WebSocketServer.open() as server, rest(server) as client:
        receiving = await replier(server)
        asking = Tasks().spawn(client.post("/request?timeout=60000", json={"value": "?"}), "ask")
        frame = await receiving.message()
        asking.cancel()
        await until_async(lambda: len(server.broker.requests) == 0)
        assert (await reply(receiving, frame, "?"))["reply"] == NOBODY


async def test_a_reply_may_name_a_schema_of_the_topic() -> None:
    """It is checked, and given back as JSON (PIP-43)."""
    async with WebSocketServer.open() as server:
        asking = await requester(server)
        schema = {"type": "INT32", "schema": ""}
        await asking.send(
            {"payload": base64("\0\0\0\1"), "valueSchema": schema, "requestTimeoutMillis": 60_000}
        )
        assert (await asking.receive())["result"] == "ok"
        worker = await replier(server)
        frame = await worker.message()
        refused = await reply(worker, frame, "too long to be an int", schemaVersion=0)
        assert refused["result"] != "ok"
        assert (await reply(worker, frame, "\0\0\0\7", schemaVersion=9))["result"] != "ok"
        await answered(worker, frame, "\0\0\0\7", schemaVersion=0)
        got = await asking.receive()
        assert (got["schemaVersion"], got["replyValue"]) == (0, 7)


async def test_a_reply_by_schema_is_json_over_rest() -> None:
    async with WebSocketServer.open() as server, rest(server) as client:
        made = (await client.post("/subscription/s", json={"initial_position": "earliest"})).json()
        body = {"value_schema": {"type": "STRING"}, "messages": [{"value": "?"}]}
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(client.post("/request?timeout=60000", json=body))
            path = f"/subscription/s/consumer/{made['id']}/messages?timeout=60000"
            (message,) = (await client.get(path)).json()["messages"]
            answer = {"messageId": message["messageId"], "replyContent": base64("yes"), "schemaVersion": 0}
            done = await client.post("/subscription/s/cursor", json={"messageIds": [answer]})
            assert done.json()["messageIds"][0]["reply"] == "ok"
        reply = asked.result().json()
        assert (reply["replyContent"], reply["schemaVersion"], reply["replyValue"]) == (
            base64("yes"),
            0,
            "yes",
        )
