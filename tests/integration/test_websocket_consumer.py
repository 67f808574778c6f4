"""The consumer endpoint over a real socket: v2, the mended commands, and v3."""

import asyncio
import json
from typing import Any

import pytest
from tests.support.waiting import until_async
from tests.support.websocket import CONSUMER, PRODUCER, READER, TOPICS, Peer, WebSocketServer, base64, text

from penstock.engines.subscription import Consumer
from penstock.model.names import TopicName
from penstock.protocols.limits import Limits
from penstock.testing.clock import ManualClock, settle

TOPIC = TopicName.parse("t")


async def consumer(server: WebSocketServer, query: str = "", topic: str = "t") -> Peer:
    return await server.connect(f"{CONSUMER}/{topic}/s?subscriptionInitialPosition=Earliest&{query}")


async def publish(server: WebSocketServer, *payloads: str, topic: str = "t", **fields: Any) -> list[str]:
    producer = await server.connect(f"{PRODUCER}/{topic}")
    return await producer.publish(*payloads, **fields)


async def until_gone(server: WebSocketServer, count: int) -> None:
    await until_async(lambda: len(server.sockets) == count)


# -- push mode


async def test_the_receiver_queue_bounds_what_is_out() -> None:
    async with WebSocketServer.open() as server:
        await publish(server, *"abcde")
        receiving = await consumer(server, "receiverQueueSize=2")
        frames = [await receiving.receive() for _ in range(2)]
        await receiving.nothing_more()
        await receiving.send({"messageId": frames[0]["messageId"]})
        assert text(await receiving.receive()) == "c"
        await receiving.nothing_more()
        await receiving.send({"type": "negativeAcknowledge", "messageId": frames[1]["messageId"]})
        assert text(await receiving.receive()) == "d"
        await receiving.nothing_more()


async def test_a_queue_of_zero_means_one_at_a_time() -> None:
    async with WebSocketServer.open() as server:
        await publish(server, *"abc")
        receiving = await consumer(server, "receiverQueueSize=0")
        assert await receiving.take(1) == ["a"]
        assert text(await receiving.receive()) == "b"
        await receiving.nothing_more()


async def test_more_acknowledgements_than_messages_give_no_room() -> None:
    async with WebSocketServer.open() as server:
        await publish(server, *"abcde")
        receiving = await consumer(server, "receiverQueueSize=1")
        first = await receiving.receive()
        for _ in range(5):
            await receiving.send({"messageId": first["messageId"]})
        assert text(await receiving.receive()) == "b"
        await receiving.nothing_more()


# -- pull mode


async def test_pull_mode_waits_for_permits() -> None:
    async with WebSocketServer.open() as server:
        await publish(server, *"abcdef")
        receiving = await consumer(server, "pullMode=true")
        await receiving.nothing_more()
        await receiving.send({"type": "permit", "permitMessages": 2})
        assert await receiving.take(2) == ["a", "b"]
        await receiving.nothing_more()  # acknowledgements are no permits
        await receiving.send({"type": "permit", "permitMessages": 1})
        await receiving.send({"type": "permit", "permitMessages": 1})
        assert [text(await receiving.receive()) for _ in range(2)] == ["c", "d"]
        await receiving.nothing_more()


async def test_in_pull_mode_another_socket_may_acknowledge() -> None:
    async with WebSocketServer.open() as server:
        await publish(server, *"ab")
        query = "pullMode=true&subscriptionType=Shared"
        one, other = await consumer(server, query), await consumer(server, query)
        await one.send({"type": "permit", "permitMessages": 1})
        frame = await one.receive()
        answer = await other.ask({"messageId": frame["messageId"], "context": "c"})
        assert answer == {"result": "ok", "context": "c"}
        await one.close()
        await until_gone(server, 2)
        await other.send({"type": "permit", "permitMessages": 9})
        assert text(await other.receive()) == "b"
        await other.nothing_more()


@pytest.mark.parametrize("permits", [0, -1, -(2**31)])
async def test_absurd_permits_change_nothing(permits: int) -> None:
    async with WebSocketServer.open() as server:
        await publish(server, "a")
        receiving = await consumer(server, "pullMode=true")
        await receiving.send({"type": "permit", "permitMessages": permits})
        answer = await receiving.ask({"type": "permit", "permitMessages": permits, "context": "c"})
        assert "positive" in answer["result"]
        await receiving.nothing_more()
        await receiving.send({"type": "permit", "permitMessages": 2**62})
        assert text(await receiving.receive()) == "a"


# -- coming back


async def test_negative_acknowledgements_come_back_after_their_delay() -> None:
    clock = ManualClock()
    async with WebSocketServer.open(clock=clock) as server:
        await publish(server, *"ab")
        receiving = await consumer(server, "subscriptionType=Shared&negativeAckRedeliveryDelay=2000")
        first = await receiving.receive()
        assert await receiving.take(1) == ["b"]
        await receiving.send({"type": "negativeAcknowledge", "messageId": first["messageId"]})
        await receiving.nothing_more()
        await clock.advance(1999)
        await receiving.nothing_more()
        await clock.advance(1)
        again = await receiving.receive()
        assert (again["messageId"], again["redeliveryCount"]) == (first["messageId"], 1)


async def test_an_ack_timeout_brings_back_and_makes_room() -> None:
    clock = ManualClock()
    async with WebSocketServer.open(clock=clock) as server:
        await publish(server, *"ab")
        receiving = await consumer(server, "ackTimeoutMillis=1000&receiverQueueSize=1")
        for count in range(3):
            frame = await receiving.receive()
            assert (text(frame), frame["redeliveryCount"]) == ("a", count)
            await receiving.nothing_more()
            await clock.advance(1000)
        assert await receiving.take(1) == ["a"]
        assert await receiving.take(1) == ["b"]


async def test_after_too_many_redeliveries_a_message_is_dead() -> None:
    clock = ManualClock()
    async with WebSocketServer.open(clock=clock) as server:
        (dead_id,) = await publish(server, "bad", properties={"p": "q"}, key="k")
        dead = await server.connect(f"{CONSUMER}/t-s-DLQ/d")
        receiving = await consumer(
            server, "subscriptionType=Shared&maxRedeliverCount=2&negativeAckRedeliveryDelay=0"
        )
        for count in range(3):
            frame = await receiving.receive()
            assert frame["redeliveryCount"] == count
            await receiving.send({"type": "negativeAcknowledge", "messageId": frame["messageId"]})
        buried = await dead.receive()
        assert (text(buried), buried["key"]) == ("bad", "k")
        assert buried["properties"]["p"] == "q"
        assert dead_id in buried["properties"].values() or "REAL_TOPIC" in buried["properties"]
        await receiving.nothing_more()


class SlowLeaving:
    """Consumers begin to leave, and go on once they `may`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.may = asyncio.Event(), asyncio.Event()
        leave = Consumer.leave

        async def wait(consumer: Consumer, **options: Any) -> None:
            self.begun.set()
            await self.may.wait()
            await leave(consumer, **options)

        monkeypatch.setattr(Consumer, "leave", wait)


@pytest.mark.parametrize("path", [f"{CONSUMER}/t/s", f"{READER}/t"])
@pytest.mark.parametrize(("end", "code"), [("client", 1000), ("server", 4003)])
async def test_a_close_frame_comes_after_a_consumer_has_left(
    path: str, end: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with WebSocketServer.open() as server, asyncio.timeout(60):
        leaving = SlowLeaving(monkeypatch)
        peer = await server.connect(path)
        [subscription] = (await server.broker.topics.get(TOPIC)).subscriptions.values()
        if end == "server":
            await peer.send("no command")
        async with asyncio.TaskGroup() as tasks:
            closing = tasks.create_task(peer.close() if end == "client" else peer.connection.wait_closed())
            await leaving.begun.wait()
            await settle(200)
            early, there = closing.done(), len(subscription.consumers)
            leaving.may.set()
        assert (early, there) == (False, 1)
        assert peer.connection.close_code == code
        assert not subscription.consumers


async def test_a_close_frame_is_answered_although_the_consumer_cannot_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.server.sockets.LEAVE_S", 0.01)
    async with WebSocketServer.open() as server:
        leaving = SlowLeaving(monkeypatch)
        peer = await consumer(server)
        await peer.close()
        assert (peer.connection.close_code, leaving.may.is_set()) == (1000, False)
        leaving.may.set()


async def test_what_a_closed_socket_had_goes_to_the_next() -> None:
    async with WebSocketServer.open() as server:
        await publish(server, *"abc")
        first = await consumer(server, "subscriptionType=Shared&receiverQueueSize=2")
        assert [text(await first.receive()) for _ in range(2)] == ["a", "b"]
        second = await consumer(server, "subscriptionType=Shared")
        assert await second.take(1) == ["c"]
        await first.close()
        frames = [await second.receive() for _ in range(2)]
        assert sorted((text(f), f["redeliveryCount"]) for f in frames) == [("a", 1), ("b", 1)]


async def test_what_a_slow_reader_never_got_does_not_count_as_delivered() -> None:
    async with WebSocketServer.open(limits=Limits(websocket_outbox_bytes=1_000_000)) as server:
        await publish(server, *[f"{n:04}" + "x" * 100_000 for n in range(200)])
        slow = await server.connect(
            f"{CONSUMER}/t/s?subscriptionType=Shared&subscriptionInitialPosition=Earliest",
            max_queue=1,
            ping_interval=None,
        )
        await slow.receive()
        await asyncio.sleep(0.2)  # the server writes as far as it may: the bounds hold at any time
        topic = await server.broker.topics.get(TOPIC)
        (at_endpoint,) = topic.subscriptions["s"].consumers
        assert at_endpoint.outbox_bytes <= 1_200_000
        assert at_endpoint.unacked < 150  # what is out is what the sockets hold, and a bounded rest
        slow.connection.transport.abort()
        await until_gone(server, 1)
        receiving = await consumer(server, "subscriptionType=Shared")
        seen: dict[str, int] = {}
        while len(seen) < 200:
            frame = await receiving.receive()
            seen[text(frame)[:4]] = frame["redeliveryCount"]
            await receiving.send({"messageId": frame["messageId"]})
        assert sum(count == 0 for count in seen.values()) > 100


async def test_failover_hands_over_with_nothing_lost_or_reordered() -> None:
    async with WebSocketServer.open() as server:
        first = await consumer(server, "subscriptionType=Failover&consumerName=a")
        second = await consumer(server, "subscriptionType=Failover&consumerName=b")
        await publish(server, *"abcdef")
        assert await first.take(2) == ["a", "b"]
        assert await first.ask({"type": "x", "messageId": "CAAQAA==", "context": "acked"})
        await second.nothing_more()
        await first.close()
        assert await second.take(4) == ["c", "d", "e", "f"]


async def test_a_key_stays_with_one_consumer() -> None:
    async with WebSocketServer.open() as server:
        peers = [await consumer(server, f"subscriptionType=Key_Shared&consumerName={n}") for n in "ab"]
        producer = await server.connect(f"{PRODUCER}/t")
        for number in range(60):
            await producer.publish(str(number), key=f"k{number % 6}")
        seen: dict[str, list[int]] = {}
        owners: dict[str, set[int]] = {}

        async def read(index: int, peer: Peer) -> None:
            while sum(map(len, seen.values())) < 60:
                frame = await peer.receive()
                seen.setdefault(frame["key"], []).append(int(text(frame)))
                owners.setdefault(frame["key"], set()).add(index)
                await peer.send({"messageId": frame["messageId"]})

        readers = [asyncio.ensure_future(read(i, p)) for i, p in enumerate(peers)]  # noqa: TID251
        await asyncio.wait(readers, return_when=asyncio.FIRST_COMPLETED)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        assert all(numbers == sorted(numbers) for numbers in seen.values())
        assert all(len(owner) == 1 for owner in owners.values())


# -- commands that are answered


async def test_answers_by_context_are_durable() -> None:
    async with WebSocketServer.open() as server:
        ids = await publish(server, *"abc")
        receiving = await consumer(server)
        for _ in range(3):
            await receiving.receive()
        await receiving.send({"messageId": ids[0]})
        assert await receiving.ask({"messageId": ids[1], "context": 7}) == {"result": "ok", "context": "7"}
        topic = await server.broker.topics.get(TOPIC)
        (saved,) = await topic.store.load_cursors(topic.ledger)
        assert saved.mark == 2


async def test_cumulative_acknowledgement() -> None:
    async with WebSocketServer.open() as server:
        ids = await publish(server, *"abcd")
        receiving = await consumer(server, "receiverQueueSize=3")
        for _ in range(3):
            await receiving.receive()
        answer = await receiving.ask({"messageId": ids[1], "ackType": "Cumulative", "context": "c"})
        assert answer == {"result": "ok", "context": "c"}
        assert text(await receiving.receive()) == "d"
        await receiving.close()
        await until_gone(server, 1)
        assert await (await consumer(server)).take(2) == ["c", "d"]


async def test_cumulative_acknowledgement_is_not_for_shared_subscriptions() -> None:
    async with WebSocketServer.open() as server:
        (message_id,) = await publish(server, "a")
        receiving = await consumer(server, "subscriptionType=Shared")
        await receiving.receive()
        answer = await receiving.ask({"messageId": message_id, "ackType": "Cumulative", "context": "c"})
        assert "Shared" in answer["result"]


async def test_seek_to_an_id_and_to_a_time() -> None:
    clock = ManualClock()
    async with WebSocketServer.open(clock=clock) as server:
        ids = await publish(server, "a")
        clock.turn(1000)
        middle = clock.now_ms()
        ids += await publish(server, "b", "c")
        receiving = await consumer(server)
        assert await receiving.take(3) == ["a", "b", "c"]
        seek = {"type": "seek", "context": "s"}
        await receiving.send({**seek, "messageId": ids[0]})
        frames = [await receiving.receive() for _ in range(3)]
        answer = next(f for f in frames if "result" in f)
        assert answer == {"result": "ok", "context": "s"}
        assert [text(f) for f in frames if f is not answer] == ["b", "c"]
        await receiving.send({"type": "seek", "timestamp": middle})
        assert await receiving.take(2) == ["b", "c"]
        await receiving.send({"type": "seek", "messageId": "earliest"})
        assert await receiving.take(3) == ["a", "b", "c"]
        await receiving.send({"type": "seek", "messageId": "latest"})
        await receiving.nothing_more()


async def test_errors_are_answered_and_close_nothing() -> None:
    async with WebSocketServer.open() as server:
        await publish(server, "elsewhere", topic="other")
        (message_id,) = await publish(server, "a")
        receiving = await consumer(server)
        await receiving.receive()
        for frame in (
            {"messageId": "CGMQAA=="},  # no ledger of ours
            {"messageId": "CAAQAA=="},  # of the other topic
            {"messageId": "CAEQYw=="},  # not there yet
            {"type": "negativeAcknowledge", "messageId": "CAEQYw=="},
            {"type": "seek", "messageId": "CAAQAA=="},
            {"messageId": "CAAQAA==", "ackType": "Cumulative"},
        ):
            await receiving.send(frame)
            answer = await receiving.ask({**frame, "context": "c"})
            assert answer["context"] == "c"
            assert answer["result"] != "ok", frame
        for broken in ({}, {"messageId": "?"}, {"type": "permit"}):
            assert (await receiving.ask({**broken, "context": "c"}))["result"] not in ("ok", "")
        for _ in range(2):  # twice is no error
            answer = await receiving.ask({"messageId": message_id, "context": "c"})
            assert answer["result"] == "ok"


@pytest.mark.parametrize("frame", ["{broken", "[]", '{"messageId":"?"}', "{}", '{"type":"permit"}'])
async def test_a_broken_frame_without_context_closes_that_socket_alone(frame: str) -> None:
    async with WebSocketServer.open() as server:
        await publish(server, "a")
        query = "subscriptionType=Shared"
        broken, other = await consumer(server, query), await consumer(server, query)
        await broken.send(frame)
        assert await broken.closed() == (4003, "Failed to de-serialize from JSON")
        assert await other.take(1) == ["a"]


async def test_binary_frames_are_ignored() -> None:
    async with WebSocketServer.open() as server:
        receiving = await consumer(server)
        await receiving.send(b"\x00")
        await receiving.nothing_more()


async def test_end_of_topic() -> None:
    async with WebSocketServer.open() as server:
        await publish(server, "a")
        receiving = await consumer(server, "pullMode=true")
        assert await receiving.ask({"type": "isEndOfTopic"}) == {"endOfTopic": False}
        await server.broker.topics.terminate(TOPIC)
        assert await receiving.ask({"type": "isEndOfTopic"}) == {"endOfTopic": False}
        await receiving.send({"type": "permit", "permitMessages": 1})
        assert await receiving.take(1) == ["a"]
        assert await receiving.ask({"type": "isEndOfTopic", "context": "c"}) == {
            "endOfTopic": True,
            "result": "ok",
            "context": "c",
        }


async def test_unsubscribe_keeps_the_socket() -> None:
    async with WebSocketServer.open() as server:
        await publish(server, "a")
        receiving = await consumer(server)
        await receiving.receive()
        await receiving.send({"type": "unsubscribe"})
        answer = await receiving.ask({"messageId": "CAAQAA==", "context": "c"})
        assert answer["result"] != "ok"
        topic = await server.broker.topics.get(TOPIC)
        assert topic.subscriptions == {}


async def test_unsubscribe_is_refused_while_others_are_connected() -> None:
    async with WebSocketServer.open() as server:
        await publish(server, "a")
        query = "subscriptionType=Shared"
        one, other = await consumer(server, query), await consumer(server, query)
        answer = await one.ask({"type": "unsubscribe", "context": "c"})
        frames = [answer] if "result" in answer else [answer, await one.receive()]
        assert frames[-1]["result"] == "Unconnected or shared consumer attempting to unsubscribe"
        await one.close()
        await other.take(1)


async def test_an_unsubscribe_that_is_refused_without_a_context_closes_the_socket() -> None:
    async with WebSocketServer.open() as server:
        query = "subscriptionType=Shared"
        one, other = await consumer(server, query), await consumer(server, query)
        await one.send({"type": "unsubscribe"})
        assert await one.closed() == (4002, "Unconnected or shared consumer attempting to unsubscribe")
        await publish(server, *"abc")
        assert await other.take(3) == ["a", "b", "c"]


async def test_a_deleted_subscription_closes_its_sockets() -> None:
    async with WebSocketServer.open() as server:
        receiving = await consumer(server)
        await server.broker.subscriptions.delete(TOPIC, "s", force=True)
        assert (await receiving.closed())[0] == 4008
        receiving = await consumer(server)
        await server.broker.administration.delete_topic(TOPIC, force=True)
        assert (await receiving.closed())[0] == 4008


async def test_subscriptions_that_are_not_durable_go_with_their_socket() -> None:
    async with WebSocketServer.open() as server:
        receiving = await consumer(server, "subscriptionMode=NonDurable")
        topic = await server.broker.topics.get(TOPIC)
        assert list(topic.subscriptions) == ["s"]
        await receiving.close()
        await until_gone(server, 0)
        assert topic.subscriptions == {}


async def test_names_are_decoded_as_java_does() -> None:
    async with WebSocketServer.open() as server:
        await server.connect(f"{CONSUMER}/a+b%2Fc/my+sub%21")
        topic = await server.broker.topics.get(TopicName.of("persistent", "public", "default", "a b/c"))
        assert list(topic.subscriptions) == ["my sub!"]


async def test_topics_that_are_not_persistent() -> None:
    async with WebSocketServer.open() as server:
        path = "non-persistent/public/default/t"
        receiving = await server.connect(f"/ws/v2/consumer/{path}/s")
        sending = await server.connect(f"/ws/v2/producer/{path}")
        await sending.publish("a")
        assert await receiving.take(1) == ["a"]


# -- v3


async def test_a_consumer_of_several_topics() -> None:
    async with WebSocketServer.open() as server:
        await publish(server, "1", topic="a")
        await publish(server, "2", topic="b")
        await publish(server, "3", topic="c")
        topics = "public/default/a,persistent://public/default/b"
        receiving = await server.connect(
            f"{TOPICS}/s?topics={topics}&subscriptionInitialPosition=Earliest&receiverQueueSize=2"
        )
        frames = [await receiving.receive() for _ in range(2)]
        assert sorted((text(f), f["topic"]) for f in frames) == [
            ("1", "persistent://public/default/a"),
            ("2", "persistent://public/default/b"),
        ]
        for frame in frames:
            answer = await receiving.ask({"messageId": frame["messageId"], "context": "c"})
            assert answer["result"] == "ok"
        await publish(server, "4", topic="b")
        assert await receiving.take(1) == ["4"]
        await receiving.close()
        await until_gone(server, 4)
        for name in "ab":
            topic = await server.broker.topics.get(TopicName.parse(name))
            assert topic.subscriptions["s"].backlog == 0


async def test_topics_that_appear_later_join_a_pattern() -> None:
    async with WebSocketServer.open() as server:
        await publish(server, "1", topic="log-1")
        await publish(server, "no", topic="other")
        receiving = await server.connect(
            f"{TOPICS}/s?topicsPattern=public/default/log-.*&subscriptionInitialPosition=Earliest"
        )
        assert await receiving.take(1) == ["1"]
        await publish(server, "2", topic="log-2")
        frame = await receiving.receive()
        assert (text(frame), frame["topic"]) == ("2", "persistent://public/default/log-2")
        await server.broker.topics.create(TopicName.parse("log-3"), 3)
        producer = await server.connect(f"{PRODUCER}/log-3?messageRoutingMode=RoundRobinPartition")
        await producer.publish("3", "4", "5")
        assert sorted(await receiving.take(3)) == ["3", "4", "5"]
        await receiving.nothing_more()


async def test_a_pattern_that_matches_nothing_yet() -> None:
    async with WebSocketServer.open() as server:
        receiving = await server.connect(f"{TOPICS}/s?topicsPattern=new-.*")
        await receiving.nothing_more()
        await publish(server, "1", topic="new-1")
        assert await receiving.take(1) == ["1"]


async def test_partitions_share_the_window() -> None:
    async with WebSocketServer.open() as server:
        await server.broker.topics.create(TOPIC, 3)
        producer = await server.connect(f"{PRODUCER}/t?messageRoutingMode=RoundRobinPartition")
        await producer.publish(*"abcdefghi")
        receiving = await consumer(server, "receiverQueueSize=4")
        frames = [await receiving.receive() for _ in range(4)]
        await receiving.nothing_more()
        for frame in frames:
            await receiving.send({"messageId": frame["messageId"]})
        rest = [(await receiving.take(1))[0] for _ in range(5)]
        assert sorted([*map(text, frames), *rest]) == list("abcdefghi")


async def test_batches_are_acknowledged_message_by_message() -> None:
    async with WebSocketServer.open() as server:
        producer = await server.connect(f"{PRODUCER}/t?batchingEnabled=true")
        for letter in "abcd":
            await producer.send({"payload": base64(letter)})
        answers = [await producer.receive() for _ in range(4)]
        receiving = await consumer(server)
        for _ in range(4):
            await receiving.receive()
        for answer in answers[::2]:
            await receiving.ask({"messageId": answer["messageId"], "context": "c"})
        await receiving.close()
        await until_gone(server, 1)
        assert await (await consumer(server)).take(2) == ["b", "d"]


async def test_idle_costs_nothing_and_closes_on_request() -> None:
    clock = ManualClock()
    async with WebSocketServer.open(clock=clock, limits=Limits(websocket_idle_ms=1000)) as server:
        receiving = await consumer(server)
        await clock.advance(900)
        await receiving.nothing_more()
        await clock.advance(900)
        await receiving.nothing_more()
        await clock.advance(1250)
        assert (await receiving.closed())[0] == 1001


async def test_frames_in_a_flood_are_all_answered() -> None:
    async with WebSocketServer.open() as server:
        receiving = await consumer(server)
        count = 5000

        async def ask() -> None:
            for number in range(count):
                await receiving.send(json.dumps({"type": "isEndOfTopic", "context": number}))

        async with asyncio.TaskGroup() as group:
            group.create_task(ask())
            answers = [await receiving.receive() for _ in range(count)]
        assert [int(a["context"]) for a in answers] == list(range(count))
        await settle()


async def test_a_topic_that_is_deleted_leaves_the_others() -> None:
    async with WebSocketServer.open() as server:
        one, two = await server.connect(f"{PRODUCER}/one"), await server.connect(f"{PRODUCER}/two")
        receiving = await server.connect(f"{TOPICS}/s?topics=public/default/one,public/default/two")
        await one.publish("1")
        frame = await receiving.receive()
        await server.broker.administration.delete_topic(TopicName.parse("one"), force=True)
        answer = await receiving.ask({"messageId": frame["messageId"], "context": "a"})
        assert "no topic of this consumer" in answer["result"]
        await two.publish("2")
        assert await receiving.take(1) == ["2"]
        await server.broker.administration.delete_topic(TopicName.parse("two"), force=True)
        assert (await receiving.closed())[0] == 4008


async def test_who_follows_a_pattern_waits_for_the_next_topic() -> None:
    async with WebSocketServer.open() as server:
        await (await server.connect(f"{PRODUCER}/log-1")).publish("a")
        receiving = await server.connect(
            f"{TOPICS}/s?topicsPattern=public/default/log-.*&subscriptionInitialPosition=Earliest"
        )
        assert await receiving.take(1) == ["a"]
        await server.broker.administration.delete_topic(TopicName.parse("log-1"), force=True)
        await (await server.connect(f"{PRODUCER}/log-1")).publish("b")
        assert await receiving.take(1) == ["b"]


async def test_a_consumer_without_traffic_stays_until_it_is_idle() -> None:
    clock = ManualClock()
    async with WebSocketServer.open(clock=clock) as server:
        receiving = await consumer(server)
        clock.turn(299_000)
        await receiving.nothing_more()  # what it asks meanwhile counts as traffic
        clock.turn(299_000)
        await receiving.nothing_more()
        clock.turn(300_000)
        clock.turn(300_000)
        assert await receiving.closed() == (1001, "idle for limits.websocket_idle_ms")


async def test_a_consumer_without_traffic_stays_for_ever_where_that_is_off() -> None:
    clock = ManualClock()
    async with WebSocketServer.open(clock=clock, limits=Limits(websocket_idle_ms=0)) as server:
        receiving = await consumer(server)
        clock.turn(24 * 3_600_000)
        await receiving.nothing_more()
