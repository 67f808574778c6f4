"""Consumer instances and cursors over REST: nothing lost, nothing kept by who does not come back."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.support.entries import TIME, pack
from tests.support.rest import TOPIC, RestServer, Visit

from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.protocols.limits import Limits
from penstock.server.dispatch import AsgiExchange
from penstock.testing.clock import settle
from penstock.wire import pulsar_pb2 as pb
from penstock.wire.entry import admit

SUB = f"{TOPIC}/subscription/s"
NAME = TopicName.parse("t")


async def consumer(server: RestServer, **options: Any) -> str:
    """Create an instance and return where it is asked for messages."""
    options = {"initial_position": "earliest", **options}
    answer = await server.post(SUB, options)
    return str(answer["base_uri"]).removeprefix("http://penstock") + "/messages"


async def fetch(server: RestServer, path: str, **params: Any) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = (await server.get(path, **{"timeout": 0, **params}))["messages"]
    return messages


async def values(server: RestServer, path: str, **params: Any) -> list[Any]:
    return [m["value"] for m in await fetch(server, path, **params)]


async def cursor(server: RestServer) -> dict[str, Any]:
    found: dict[str, Any] = (await server.get(f"{SUB}/cursor"))["cursor"]
    return found


async def ack(server: RestServer, *ids: Any, **more: Any) -> list[Any]:
    """Post to the cursor; returns the error codes."""
    answer = await server.post(f"{SUB}/cursor", {"messageIds": list(ids), **more})
    assert [r["messageId"] for r in answer["messageIds"]] == [
        i if isinstance(i, str) else i["messageId"] for i in ids
    ]
    return [r["error_code"] for r in answer["messageIds"]]


async def refused(server: RestServer, method: str, path: str, body: Any, status: int, code: int) -> None:
    content = b"" if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
    response = await server.client.request(method, path, content=content)
    assert (response.status_code, response.json()["error_code"]) == (status, code), response.text


async def test_the_whole_way() -> None:
    async with RestServer.open() as server:
        answer = await server.post(SUB, {"name": "me", "initial_position": "earliest"})
        assert answer["name"] == "me"
        assert answer["consumer_timeout_ms"] == 300_000
        assert answer["schema_version"] is None
        assert answer["base_uri"] == f"http://penstock{SUB}/consumer/{answer['id']}"
        await server.produce("a", "b", "c")
        path = f"{SUB}/consumers/{answer['id']}/messages"
        got = await fetch(server, path, max_messages=2)
        assert [m["value"] for m in got] == ["a", "b"]
        assert got[0]["redeliveryCount"] == 0
        assert await ack(server, *(m["messageId"] for m in got)) == [None, None]
        assert await values(server, path) == ["c"]
        assert await values(server, path) == []
        assert (await server.post(SUB, {"id": answer["id"]}))["id"] == answer["id"]
        response = await server.client.delete(f"{SUB}/consumers/{answer['id']}")
        assert (response.status_code, response.content) == (204, b"")
        await refused(server, "GET", path, None, 404, 40403)
        await refused(server, "DELETE", f"{SUB}/consumers/{answer['id']}", None, 404, 40403)
        again = await consumer(server, id=answer["id"])
        assert await values(server, again) == ["c"]


async def test_an_empty_body_is_a_consumer_too() -> None:
    async with RestServer.open() as server:
        response = await server.client.post(SUB)
        assert response.status_code == 200


async def test_conflicts_and_bad_options() -> None:
    async with RestServer.open() as server:
        await consumer(server, subscription_type="Shared", name="a")
        await refused(server, "POST", SUB, {"subscription_type": "Shared", "name": "a"}, 409, 40901)
        await refused(server, "POST", SUB, {"subscription_type": "Failover"}, 409, 40902)
        other = f"{TOPIC}/subscription/x"
        await server.post(other, {})
        response = await server.client.post(other, content=b"{}")
        assert response.status_code == 409
        for body in (
            {"subscription_type": "Odd"},
            {"initial_position": "middle"},
            {"receiver_queue_size": 0},
            {"ack_timeout_ms": -1},
            {"dead_letter_topic": "d"},
            {"colour": 1},
            {"schema_type": "x"},
        ):
            await refused(server, "POST", SUB, body, 400, 40001)
        await refused(server, "POST", SUB, b"{", 422, 42205)
        await refused(server, "POST", SUB, {"schema_version": 4}, 422, 42204)
        await refused(server, "POST", SUB, {"schema_type": "avro"}, 422, 42202)
        await refused(server, "GET", f"{SUB}/consumer/nobody/messages", None, 404, 40403)
        await refused(server, "GET", f"{TOPIC}/subscription/none/cursor", None, 404, 40404)
        await refused(server, "GET", "/topics/public/default/no/subscription/s/cursor", None, 404, 40401)


async def test_instances_are_bounded() -> None:
    async with RestServer.open(limits=Limits(max_rest_consumers=1)) as server:
        await consumer(server, subscription_type="Shared")
        await refused(server, "POST", SUB, {"subscription_type": "Shared"}, 429, 42901)


async def test_bounds_give_back_the_rest() -> None:
    async with RestServer.open() as server:
        path = await consumer(server, subscription_type="Shared")
        other = await consumer(server, subscription_type="Shared")
        await server.produce("aaaa", "bb", "c" * 50, "d")
        assert await values(server, path, max_bytes=6) == ["aaaa", "bb"]
        assert (await cursor(server))["unacknowledged"] == 2
        got = await fetch(server, other, max_bytes=1)
        assert [(m["value"], m["redeliveryCount"]) for m in got] == [("c" * 50, 0)]
        assert await values(server, path) == ["d"]


async def test_nothing_is_fetched_ahead() -> None:
    async with RestServer.open() as server:
        path = await consumer(server, subscription_type="Shared")
        other = await consumer(server, subscription_type="Shared")
        await server.produce("a", "b", "c")
        assert await values(server, path, max_messages=1) == ["a"]
        await server.produce("d")
        assert await values(server, other) == ["b", "c", "d"]


async def test_the_queue_size_bounds_what_is_out() -> None:
    async with RestServer.open() as server:
        path = await consumer(server, receiver_queue_size=2)
        ids = await server.produce("a", "b", "c")
        assert await values(server, path) == ["a", "b"]
        assert await values(server, path) == []
        await ack(server, ids[0])
        assert await values(server, path) == ["c"]


async def test_long_polls() -> None:
    async with RestServer.open() as server:
        path = await consumer(server)
        visit = Visit(server, path, "timeout=5000")
        await settle()
        await server.clock.advance(4999)
        assert not visit.done.done()
        await server.produce("a", "b")
        await visit.done
        assert visit.body.count(b"messageId") == 2
        visit = Visit(server, path)  # a second, when it does not say
        await settle()
        await server.clock.advance(1000)
        await visit.done
        assert visit.body == b'{"messages":[]}'


async def test_two_fetches_take_turns() -> None:
    async with RestServer.open() as server:
        path = await consumer(server)
        first, second = Visit(server, path, "timeout=5000"), Visit(server, path, "timeout=9000")
        await settle()
        await server.produce("a")
        await first.done
        assert b'"a"' in first.body
        await server.produce("b")
        await second.done
        assert b'"b"' in second.body


async def test_what_was_not_written_comes_again() -> None:
    async with RestServer.open() as server:
        path = await consumer(server)
        await server.produce("a", "b")
        visit = Visit(server, path, "timeout=0")
        visit.taking.clear()
        await settle()
        visit.hang_up()
        await asyncio.sleep(0)
        visit.taking.set()
        await visit.done
        assert (await cursor(server))["unacknowledged"] == 0
        got = await fetch(server, path)
        assert [(m["value"], m["redeliveryCount"]) for m in got] == [("a", 0), ("b", 0)]


async def test_a_write_that_fails_comes_again() -> None:
    async with RestServer.open() as server:
        path = await consumer(server)
        await server.produce("a")
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"timeout=0",
            "headers": [],
        }

        async def receive() -> Any:
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                raise OSError("broken pipe")

        await server.endpoint(AsgiExchange(scope, receive, send))
        assert await values(server, path) == ["a"]


async def test_hanging_up_in_a_long_poll_leaves_nothing_behind() -> None:
    async with RestServer.open() as server:
        path = await consumer(server)
        visit = Visit(server, path, "timeout=60000")
        await settle()
        visit.hang_up()
        await visit.done
        await server.produce("a")
        assert (await cursor(server))["unacknowledged"] == 0
        assert await values(server, path) == ["a"]


async def test_an_idle_instance_expires_and_its_messages_go_on() -> None:
    async with RestServer.open() as server:
        lazy = await consumer(server, subscription_type="Shared", consumer_timeout_ms=1000)
        await server.produce("a")
        assert await values(server, lazy) == ["a"]
        keen = await consumer(server, subscription_type="Shared")
        await server.clock.advance(999)
        assert await values(server, lazy) == []
        await server.clock.advance(999)
        assert await values(server, keen) == []
        await server.clock.advance(1)
        await refused(server, "GET", lazy, None, 404, 40403)
        got = await fetch(server, keen)
        assert [(m["value"], m["redeliveryCount"]) for m in got] == [("a", 1)]
        assert (await cursor(server))["consumers"] == [
            (await server.post(SUB, {"id": keen.split("/")[-2]}))["name"]
        ]


async def test_an_instance_does_not_expire_while_it_is_asked() -> None:
    async with RestServer.open() as server:
        path = await consumer(server, consumer_timeout_ms=1000)
        visit = Visit(server, path, "timeout=5000")
        await settle()
        for _ in range(4):
            await server.clock.advance(1000)
        await server.produce("a")
        await visit.done
        assert b'"a"' in visit.body
        await server.clock.advance(999)
        assert await values(server, path) == []


async def test_cursor() -> None:
    async with RestServer.open() as server:
        path = await consumer(server, subscription_type="Shared", name="me")
        ids = await server.produce(*"abcdef")
        assert await cursor(server) == {
            "mark_delete_position": None,
            "mark_delete_offset": None,
            "individually_acknowledged": [],
            "more": False,
            "backlog": 6,
            "unacknowledged": 0,
            "type": "Shared",
            "consumers": ["me"],
            "partitions": [],
        }
        await fetch(server, path)
        assert await ack(server, ids[0], ids[2], ids[3], ids[5]) == [None] * 4
        found = await cursor(server)
        assert found["mark_delete_position"] == ids[0]
        assert found["individually_acknowledged"] == [[2, 3], [5, 5]]
        assert (found["backlog"], found["unacknowledged"]) == (2, 2)


async def test_acknowledging() -> None:
    async with RestServer.open() as server:
        path = await consumer(server)
        ids = await server.produce(*"abcd")
        elsewhere = (await server.produce("x", path=f"{TOPIC}2"))[0]
        await fetch(server, path)
        far = "CAAQ6AcgADAC"  # entry 1000
        codes = await ack(server, ids[0], elsewhere, far, "junk", ids[0], "earliest")
        assert codes == [None, 1, 1, 1, None, 1]
        assert await ack(server, ids[2], type="cumulative") == [None]
        assert (await cursor(server))["backlog"] == 1
        assert await ack(server, ids[3]) == [None]
        assert (await cursor(server))["mark_delete_position"] == ids[3]
        saved = await server.broker.store.load_cursors(0)
        assert [(c.subscription, c.mark) for c in saved] == [("s", 4)]


async def test_any_instance_may_acknowledge_for_any() -> None:
    async with RestServer.open() as server:
        path = await consumer(server, subscription_type="Shared")
        await consumer(server, subscription_type="Shared")
        ids = await server.produce("a")
        await fetch(server, path)
        await ack(server, ids[0])
        await server.client.delete(path.removesuffix("/messages"))
        assert (await cursor(server))["backlog"] == 0


async def test_giving_back() -> None:
    async with RestServer.open() as server:
        path = await consumer(server, subscription_type="Shared", negative_ack_redelivery_delay_ms=500)
        ids = await server.produce("a", "b")
        await fetch(server, path)
        assert await ack(server, ids[0], type="negative") == [None]
        assert await ack(server, ids[1], type="negative", delay_ms=0) == [None]
        assert await ack(server, ids[1], "CAAQBQ==", type="negative", delay_ms=0) == [1, 1]
        assert await values(server, path) == ["b"]
        await server.clock.advance(500)
        got = await fetch(server, path)
        assert [(m["value"], m["redeliveryCount"]) for m in got] == [("a", 1)]


async def test_ack_timeout_and_dead_letters() -> None:
    async with RestServer.open() as server:
        path = await consumer(
            server,
            subscription_type="Shared",
            ack_timeout_ms=100,
            max_redeliver_count=1,
            dead_letter_topic="dead",
        )
        await server.produce("a")
        assert [m["redeliveryCount"] for m in await fetch(server, path)] == [0]
        await server.clock.advance(100)
        assert [m["redeliveryCount"] for m in await fetch(server, path)] == [1]
        await server.clock.advance(100)
        assert await fetch(server, path) == []
        assert len((await server.get("/topics/public/default/dead/partitions/0/messages"))["messages"]) == 1
        assert (await cursor(server))["backlog"] == 0


async def test_seeking() -> None:
    async with RestServer.open() as server:
        path = await consumer(server)
        ids = await server.produce("a", "b")
        await server.clock.advance(10)
        then = server.clock.now_ms()
        ids += await server.produce("c")
        assert await values(server, path) == ["a", "b", "c"]
        assert await ack(server, ids[0], type="seek") == [None]
        assert await values(server, path) == ["b", "c"]
        await server.post(f"{SUB}/cursor", {"type": "seek", "publish_time": then})
        assert await values(server, path) == ["c"]
        await ack(server, "latest", type="seek")
        assert await values(server, path) == []
        await ack(server, "earliest", type="seek")
        assert await values(server, path) == ["a", "b", "c"]
        elsewhere = (await server.produce("x", path=f"{TOPIC}2"))[0]
        assert await ack(server, elsewhere, type="seek") == [1]


async def test_bad_cursor_requests() -> None:
    async with RestServer.open() as server:
        await consumer(server, subscription_type="Shared")
        ids = await server.produce("a", "b")
        for body in (
            {},
            {"messageIds": []},
            {"messageIds": "x"},
            {"messageIds": [5]},
            {"messageIds": [{"messageId": ids[0], "replyContent": "!"}]},
            {"type": "odd", "messageIds": ids},
            {"type": "cumulative", "messageIds": ids},
            {"type": "seek", "messageIds": ids},
            {"type": "seek"},
            {"type": "seek", "messageIds": ids[:1], "publish_time": 5},
            {"messageIds": ids, "publish_time": 5},
            {"messageIds": ids, "delay_ms": 5},
            {"messageIds": ids, "colour": 5},
        ):
            await refused(server, "POST", f"{SUB}/cursor", body, 400, 40001)
        await refused(server, "POST", f"{SUB}/cursor", b"{", 422, 42205)
        await refused(server, "POST", f"{SUB}/cursor", {"messageIds": ["x"] * 10_001}, 413, 41301)
        assert (await cursor(server))["backlog"] == 2


async def test_a_reader_schema() -> None:
    def record(*fields: Any) -> dict[str, Any]:
        return {"type": "AVRO", "schema": {"type": "record", "name": "R", "fields": list(fields)}}

    x, y = {"name": "x", "type": "int"}, {"name": "y", "type": "string", "default": "-"}
    async with RestServer.open() as server:
        await server.post(TOPIC, {"value_schema": record(x), "messages": [{"value": {"x": 1}}]})
        answer = await server.post(SUB, {"value_schema": record(x, y), "initial_position": "earliest"})
        assert answer["schema_version"] is None
        path = f"{SUB}/consumer/{answer['id']}/messages"
        assert await values(server, path) == [{"x": 1, "y": "-"}]
        assert len(server.broker.schemas.all(NAME)) == 1
        other = f"{TOPIC}/subscription/o"
        assert (await server.post(other, {"value_schema": record(x)}))["schema_version"] == 0
        z = {"name": "z", "type": "int"}
        await refused(server, "POST", f"{other}2", {"value_schema": record(z)}, 409, 40903)


@pytest.mark.parametrize("kind", ["Exclusive", "Failover", "Shared", "Key_Shared"])
async def test_partitioned_topics(kind: str) -> None:
    async with RestServer.open() as server:
        await server.broker.topics.create(NAME, 3)
        path = await consumer(server, subscription_type=kind)
        sent = [str(n) for n in range(30)]
        await server.produce(*sent)
        got: list[dict[str, Any]] = []
        while found := await fetch(server, path, max_messages=7):
            assert len(found) <= 7
            got += found
        assert sorted(m["value"] for m in got) == sorted(sent)
        assert {m["partition"] for m in got} == {0, 1, 2}
        assert set(await ack(server, *(m["messageId"] for m in got))) == {None}
        found_cursor = await cursor(server)
        assert found_cursor["backlog"] == 0
        assert [p["partition"] for p in found_cursor["partitions"]] == [0, 1, 2]
        await ack(server, "earliest", type="seek")
        assert (await cursor(server))["backlog"] == 30


async def test_a_topic_that_goes_tells_why() -> None:
    async with RestServer.open() as server:
        path = await consumer(server)
        visit = Visit(server, path, "timeout=60000")
        await settle()
        await server.broker.administration.delete_topic(NAME, force=True)
        await visit.done
        assert visit.status == 404
        assert b"40401" in visit.body
        path = await consumer(server)
        await server.broker.subscriptions.delete(NAME, "s", force=True)
        await refused(server, "GET", path, None, 404, 40404)
        await refused(server, "GET", path, None, 404, 40403)


async def test_a_backlog_in_the_store_comes_whole() -> None:
    async with RestServer.open() as server:
        for n in range(200):
            await server.produce(str(n))
        path = await consumer(server)
        assert len(await fetch(server, path, max_messages=150)) == 150
        assert len(await fetch(server, path)) == 50


async def test_what_is_prepared_is_what_is_handed_out() -> None:
    """Whatever comes between two fetches: nothing, another form, messages that come again, a seek, another consumer."""
    async with RestServer.open() as server:
        for at in range(0, 800, 50):
            await server.produce(*map(str, range(at, at + 50)))
        path = await consumer(server, subscription_type="Shared", receiver_queue_size=5000)
        seen: list[str] = []

        async def next_values(count: int = 100, path: str = path, **params: Any) -> list[str]:
            messages = await fetch(server, path, max_messages=count, **params)
            await settle()  # what may come next is written
            seen.extend(m["messageId"] for m in messages)
            return [m["value"] for m in messages]

        assert await next_values() == [str(n) for n in range(100)]
        assert await next_values() == [str(n) for n in range(100, 200)]
        assert await next_values(120) == [str(n) for n in range(200, 320)]
        assert await next_values(encoding="base64") != [str(n) for n in range(320, 420)]
        await server.post(f"{SUB}/cursor", {"type": "negative", "messageIds": seen[-100:-90], "delay_ms": 0})
        again = await fetch(server, path, max_messages=100)
        assert [m["value"] for m in again] == [str(n) for n in [*range(320, 330), *range(420, 510)]]
        assert [m["redeliveryCount"] for m in again] == [1] * 10 + [0] * 90
        await settle()
        other = await consumer(server, subscription_type="Shared")
        assert await next_values(100, other) == [str(n) for n in range(510, 610)]
        assert await next_values() == [str(n) for n in range(610, 710)]
        await server.post(f"{SUB}/cursor", {"type": "seek", "messageIds": ["earliest"]})
        assert await next_values() == [str(n) for n in range(100)]


async def test_a_thousand_long_polls() -> None:
    async with RestServer.open() as server:
        paths = [await consumer(server, subscription_type="Shared") for _ in range(1000)]
        visits = [Visit(server, path, "timeout=60000&max_messages=1") for path in paths]
        await settle()
        await server.produce(*map(str, range(1000)))
        await asyncio.gather(*(v.done for v in visits))
        seen = [msgspec.json.decode(v.body)["messages"] for v in visits]
        assert sorted(int(m["value"]) for found in seen for m in found) == list(range(1000))


async def test_ids_of_batches_and_of_none_are_acknowledged_together() -> None:
    """In any order, with ids twice, and with others among them that are no such ids."""
    async with RestServer.open() as server:
        first = await server.produce(*"abcd")
        alone = [(await server.produce(value))[0] for value in "efg"]
        path = await consumer(server)
        assert len(await fetch(server, path)) == 7
        beyond = str(MessageId(0, 0, -1, 4, 5))
        unknown = str(MessageId(0, 99))
        codes = await ack(
            server, first[3], alone[1], first[1], "?", alone[0], first[1], beyond, unknown, first[0]
        )
        assert codes == [None, None, None, 1, None, None, 1, 1, None]
        found = await cursor(server)
        assert (found["mark_delete_offset"], found["individually_acknowledged"]) == (1, [[3, 5]])
        assert (found["backlog"], found["unacknowledged"]) == (2, 2)
        assert await ack(server, *first, *alone) == [None] * 7  # some of them for the second time
        assert (await cursor(server))["backlog"] == 0


async def test_a_whole_entry_is_acknowledged_by_its_id() -> None:
    async with RestServer.open() as server:
        await server.produce(*"abc")
        path = await consumer(server)
        assert len(await fetch(server, path)) == 3
        assert await ack(server, str(MessageId(0, 0))) == [None]
        assert (await cursor(server))["backlog"] == 0


async def test_an_encrypted_batch_is_one_message() -> None:
    """Only its receiver can open it; the id acknowledges all of it."""
    async with RestServer.open() as server:
        await server.produce("a")
        metadata = pb.MessageMetadata(
            producer_name="p",
            sequence_id=1,
            publish_time=TIME,
            num_messages_in_batch=3,
            encryption_param=b"1",
        )
        metadata.encryption_keys.add(key="k", value=b"v")
        topic = await server.broker.topics.get(NAME)
        await topic.append([admit(pack(metadata, b"sealed" * 10))])
        path = await consumer(server)
        plain, sealed = await fetch(server, path)
        assert (sealed["messageId"], sealed["offset"]) == (str(MessageId(0, 1)), 1)
        assert await fetch(server, path) == []
        assert await ack(server, plain["messageId"], sealed["messageId"]) == [None, None]
        assert (await cursor(server))["backlog"] == 0


async def test_what_exceeds_the_bytes_of_a_fetch_is_handed_out_by_the_next() -> None:
    async with RestServer.open() as server:
        ids = await server.produce(*["x" * 10] * 5)
        path = await consumer(server, subscription_type="Shared")
        taken = [await fetch(server, path, max_bytes=25) for _ in range(3)]
        assert [[m["messageId"] for m in part] for part in taken] == [ids[:2], ids[2:4], ids[4:]]
        assert {m["redeliveryCount"] for part in taken for m in part} == {0}
