"""Publishing over REST, in both dialects: results per message, errors by their numbers, the fast path."""

import asyncio
import json
from base64 import b64encode
from itertools import count as counting
from typing import Any

import httpx
import msgspec
import pytest
from tests.support.rest import TOPIC, RestServer

from penstock.broker.settings import BrokerSettings
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.model.policy import AccessMode, NamespacePolicies, ProducerOptions
from penstock.protocols.limits import Limits
from penstock.testing.clock import settle
from penstock.wire import entry as wire

SHIPPED = "/topics/persistent/public/default/t"
RECORD: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "x", "type": "int"}, {"name": "s", "type": ["null", "string"], "default": None}],
}
AVRO = {"type": "AVRO", "schema": RECORD}
NAME = TopicName.parse("t")


async def refused(server: RestServer, body: Any, status: int, code: int, path: str = TOPIC) -> str:
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    response = await server.client.post(path, content=content)
    assert (response.status_code, response.json()["error_code"]) == (status, code), response.text
    return str(response.json()["message"])


@pytest.mark.parametrize("declared", [{}, {"schema_type": "AVRO", "value_schema": RECORD}])
async def test_values_of_a_named_producer_share_an_entry(declared: dict[str, Any]) -> None:
    values: list[Any] = [{"x": 1, "s": None}, {"x": 2, "s": None}] if declared else ["a", "b"]
    request = {"producer_name": "me", **declared, "messages": [{"value": value} for value in values]}
    async with RestServer.open() as server:
        await server.post(TOPIC, request)  # registers the schema
        answer = await server.post(TOPIC, request)
        ids = [MessageId.parse(one["messageId"]) for one in answer["messageIds"]]
        assert [(one.entry, one.batch_index) for one in ids] == [(1, 0), (1, 1)]
        messages = (await server.client.get(f"{TOPIC}/partitions/0/messages?offset=0")).json()["messages"]
        assert [(one["value"], one["producerName"]) for one in messages] == [(v, "me") for v in values * 2]
        assert [one["sequenceId"] for one in messages] == [0, 1, 2, 3]


async def test_texts_without_a_schema_are_strings() -> None:
    async with RestServer.open() as server:
        answer = await server.post(TOPIC, {"messages": [{"value": "a"}, {"value": "ü"}]})
        assert answer == {
            "schema_version": 0,
            "messageIds": [
                {"messageId": "CAAQACAAMAI=", "partition": 0, "error_code": None, "error": None},
                {"messageId": "CAAQACABMAI=", "partition": 0, "error_code": None, "error": None},
            ],
        }
        assert await server.values() == ["a", "ü"]
        assert server.broker.schemas.get(NAME).schema.type.name == "STRING"


NO_TEXT = "the topic's schema is STRING: a value that is no text needs a topic of its own"


@pytest.mark.parametrize(
    ("messages", "errors"),
    [
        ([{"value": {"x": 1}}, {"value": "text"}, {"value": 5}], [None] * 3),
        ([{"value": "text"}, {"value": {"x": 1}}, {"value": "more"}], [None, NO_TEXT, None]),
        ([{"value": {"x": 1}, "schema_type": "json"}, {"value": "text"}], [None] * 2),
        ([{"value": "text", "schema_type": "string"}, {"value": 5}], [None, NO_TEXT]),
        (
            [{"value": 5, "value_schema": {"type": "INT32"}}, {"value": 5}],
            [None, "the topic's schema is INT32: give schema_version or value_schema"],
        ),
    ],
)
async def test_the_first_value_of_a_request_decides_as_that_of_a_topic_does(
    messages: list[dict[str, Any]], errors: list[str | None]
) -> None:
    async with RestServer.open() as server:
        for _ in range(2):
            answer = await server.post(TOPIC, {"messages": messages})
            assert [slot["error"] for slot in answer["messageIds"]] == errors
        stored = [one["value"] for one, error in zip(messages, errors, strict=True) if error is None]
        assert await server.values() == stored * 2
        assert len(server.broker.schemas.all(NAME)) == 1


async def test_a_value_that_is_refused_decides_nothing() -> None:
    async with RestServer.open() as server:
        answer = await server.post(TOPIC, {"messages": [{"value": {}, "key": 5}, {"value": "text"}]})
        assert [slot["error_code"] for slot in answer["messageIds"]] == [1, None]
        assert server.broker.schemas.get(NAME).schema.type.name == "STRING"


@pytest.mark.parametrize(
    ("slow", "quick", "refusal"),
    [("text", {"x": 1}, None), ({"x": 1}, "text", NO_TEXT)],
    ids=["text", "json"],
)
async def test_of_two_first_requests_the_quicker_decides(
    slow: Any, quick: Any, refusal: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RestServer.open() as server:
        register = server.broker.schemas.get_or_create
        calls, registered = counting(1), asyncio.Event()

        async def get_or_create(*given: Any, **options: Any) -> int | None:
            if next(calls) == 1:
                await registered.wait()
            version = await register(*given, **options)
            registered.set()
            return version

        monkeypatch.setattr(server.broker.schemas, "get_or_create", get_or_create)
        bodies = [msgspec.json.encode({"messages": [{"value": value}]}) for value in (slow, quick)]
        answers = await asyncio.gather(*(server.client.post(TOPIC, content=body) for body in bodies))
        assert [answer.status_code for answer in answers] == [422 if refusal else 200, 200]
        assert answers[0].json().get("message") == refusal
        assert await server.values() == ([quick] if refusal else [quick, slow])


@pytest.mark.parametrize("count", [1, 2, 100, 300])
async def test_the_fast_path_answers_as_the_general_one(count: int) -> None:
    values = [f"value {n}" for n in range(count)]

    async def both(partitions: int, path: str) -> None:
        async with RestServer.open() as server:
            if partitions:
                await server.broker.topics.create(NAME, partitions)
            await server.produce("first", path=path)  # the schema is known from here on
            for round_ in range(3):
                fast = await server.client.post(
                    path, content=msgspec.json.encode({"messages": [{"value": v} for v in values]})
                )
                slow = await server.client.post(
                    path,
                    content=msgspec.json.encode(
                        {"messages": [{"value": v, "properties": {}} for v in values]}
                    ),
                )
                one, other = fast.json(), slow.json()
                assert one["schema_version"] == other["schema_version"] == 0
                ids = [MessageId.parse(slot.pop("messageId")) for slot in one["messageIds"]]
                later = [MessageId.parse(slot.pop("messageId")) for slot in other["messageIds"]]
                assert [msgspec.structs.replace(i, entry=i.entry + 1) for i in ids] == later
                assert one == other
                assert ids[0].entry == 1 + 2 * round_
            where = "/topics/public/default/t/partitions/" + ("2" if partitions else "0")
            assert await server.values(where, max_messages=10_000) == ["first", *values * 6]

    await both(0, TOPIC)
    await both(3, f"{TOPIC}/partitions/2")


async def test_everything_a_message_can_say() -> None:
    async with RestServer.open() as server:
        message = {
            "value": "v",
            "key": "k",
            "properties": {"a": "b"},
            "eventTime": 5,
            "sequenceId": 7,
            "replicationClusters": ["x", "y"],
        }
        await server.post(TOPIC, {"producer_name": "me", "messages": [message]})
        await server.post(
            TOPIC, {"messages": [{"value": "w", "disableReplication": True, "deliverAfterMs": 50}]}
        )
        await server.post(TOPIC, {"messages": [{"value": None, "key": "k"}]})
        one, two, three = (await server.get(f"{TOPIC}/partitions/0/messages"))["messages"]
        assert one == {
            "messageId": "CAAQAA==",
            "partition": 0,
            "offset": 0,
            "key": "k",
            "value": "v",
            "properties": {"a": "b"},
            "publishTime": server.clock.now_ms(),
            "eventTime": 5,
            "sequenceId": 7,
            "producerName": "me",
            "schema_version": 0,
            "replicationClusters": ["x", "y"],
        }
        assert two["deliverAt"] == server.clock.now_ms() + 50
        assert two["replicationClusters"] == ["__local__"]
        assert (three["value"], three["key"], three["schema_version"]) == (None, "k", None)


async def test_a_bad_message_fails_alone() -> None:
    async with RestServer.open() as server:
        messages: list[dict[str, Any]] = [
            {"value": "a"},
            {"value": {"no": "schema"}},
            {"key": "no value"},
            {"value": "b", "key": 5},
            {"value": "c", "colour": 1},
            {"value": "d", "eventTime": -1},
            {"value": "e", "deliverAt": 1, "deliverAfterMs": 1},
            {"value": "f", "partition": 9},
            {"value": "g"},
        ]
        answer = await server.post(TOPIC, {"messages": messages})
        codes = [slot["error_code"] for slot in answer["messageIds"]]
        assert codes == [None, 1, 1, 1, 1, 1, 1, 1, None]
        bad = answer["messageIds"][1]
        assert (bad["messageId"], bad["partition"]) == (None, None)
        assert all(slot["error"] for slot in answer["messageIds"][1:8])
        assert await server.values() == ["a", "g"]


async def test_numbered_errors() -> None:
    async with RestServer.open() as server:
        await refused(server, b"{", 422, 42205)
        await refused(server, b"\xff", 422, 42205)
        await refused(server, b'{"messages":[{"value":"\xff"}]}', 422, 42205)
        await refused(server, b"[" * 100_000, 422, 42205)
        await refused(server, b"5", 422, 42205)
        await refused(server, {}, 422, 42205)
        await refused(server, {"messages": []}, 422, 42205)
        await refused(server, {"messages": [{"value": {}, "keys": "b"}, {"key": "a"}]}, 422, 42205)
        await refused(server, {"schema_type": "avro", "messages": [{"value": {}}]}, 422, 42202)
        await refused(server, {"schema_type": "key_value", "messages": [{"value": {}}]}, 422, 42201)
        await refused(server, {"key_schema": AVRO, "messages": [{"value": {}}]}, 422, 42201)
        await refused(
            server, {"key_schema": 5, "value_schema": AVRO, "messages": [{"value": {}}]}, 422, 42203
        )
        await refused(
            server,
            {
                "key_schema": {"type": "AVRO", "schema": "{}"},
                "value_schema": AVRO,
                "messages": [{"value": {}}],
            },
            422,
            42203,
        )
        await refused(server, {"value_schema": 5, "messages": [{"value": {}}]}, 422, 42204)
        await refused(
            server,
            {"value_schema": {"type": "AVRO", "schema": "{}"}, "messages": [{"value": {}}]},
            422,
            42204,
        )
        await refused(server, {"schema_version": 3, "messages": [{"value": "a"}]}, 422, 42204)
        await refused(server, {"schema_version": "x", "messages": [{"value": "a"}]}, 400, 40001)
        await refused(server, {"schema_type": "x", "messages": [{"value": "a"}]}, 400, 40001)
        await refused(server, {"colour": 1, "messages": [{"value": "a"}]}, 400, 40001)
        await refused(server, {"messages": [{"value": "a"}]}, 404, 40402, f"{TOPIC}/partitions/1")
        await refused(server, {"messages": [{"value": "a"}]}, 412, 41201, "/topics/a%20b/c/d")
        await refused(server, {"messages": [{"value": "x"}] * 10_001}, 413, 41301)
        assert server.broker.topics.names(NAME.namespace_name) == []  # none of them made the topic
        await refused(server, {"value_schema": AVRO, "messages": [{"value": {"x": "no"}}]}, 422, 42205)
        assert server.broker.schemas.all(NAME) == []


async def test_topics_are_not_made_where_they_must_not_be() -> None:
    async with RestServer.open(BrokerSettings(auto_create_topics=False)) as server:
        await refused(server, {"messages": [{"value": "a"}]}, 404, 40401)
        await refused(server, {"messages": [{"value": "a"}]}, 404, 40401, f"{TOPIC}/partitions/0")


async def test_methods_and_paths() -> None:
    async with RestServer.open() as server:
        response = await server.client.put(TOPIC)
        assert (response.status_code, response.headers["allow"]) == (405, "POST")
        assert response.json()["error_code"] == 40501
        response = await server.client.get(f"{TOPIC}/nothing")
        assert (response.status_code, response.json()["error_code"]) == (404, 40400)


async def test_bodies_too_large_are_not_read() -> None:
    async with RestServer.open(limits=Limits(max_request_bytes=1000)) as server:
        await refused(server, {"messages": [{"value": "x" * 1000}]}, 413, 41301)
        sent = []

        async def endless() -> Any:
            while True:
                sent.append(1)
                yield b"x" * 400

        response = await server.client.post(TOPIC, content=endless())
        assert (response.status_code, response.json()["error_code"]) == (413, 41301)
        assert len(sent) < 6
        response = await server.client.post(TOPIC, content=b"x", headers={"content-encoding": "br"})
        assert (response.status_code, response.json()["error_code"]) == (415, 41501)


async def test_messages_too_large() -> None:
    async with RestServer.open(BrokerSettings(max_message_bytes=100)) as server:
        await refused(server, {"messages": [{"value": "x" * 101}]}, 413, 41301)
        answer = await server.post(TOPIC, {"messages": [{"value": "x" * 101}, {"value": "y"}]})
        assert [slot["error_code"] for slot in answer["messageIds"]] == [1, None]


async def test_curl_says_form_and_means_json() -> None:
    async with RestServer.open() as server:
        response = await server.client.post(
            TOPIC,
            content=b'{"messages":[{"value":"a"}]}',
            headers={"content-type": "application/x-www-form-urlencoded"},
        )
        assert response.status_code == 200


async def test_repeats_are_stored_once() -> None:
    async with RestServer.open(BrokerSettings(deduplication=True)) as server:
        body = {
            "producer_name": "p",
            "messages": [{"value": "a", "sequenceId": 3}, {"value": "b", "sequenceId": 4}],
        }
        first = await server.post(TOPIC, body)
        again = await server.post(TOPIC, body)
        assert again == first
        await server.post(TOPIC, {"producer_name": "p", "messages": [{"value": "counted"}]})
        await server.post(TOPIC, {"producer_name": "q", "messages": [{"value": "counted"}]})
        plain = {"messages": [{"value": "c", "sequenceId": 1}, {"value": "c", "sequenceId": 1}]}
        await server.post(TOPIC, plain)  # without a name there is nobody to repeat
        assert await server.values() == ["a", "b", "counted", "counted", "c", "c"]


async def test_keys_choose_partitions_and_the_rest_goes_round() -> None:
    async with RestServer.open() as server:
        await server.broker.topics.create(NAME, 4)
        keyed = await server.post(TOPIC, {"messages": [{"value": "x", "key": "k"}] * 5})
        assert len({slot["partition"] for slot in keyed["messageIds"]}) == 1
        round_ = await server.post(TOPIC, {"messages": [{"value": "x"}] * 8})
        chosen = [slot["partition"] for slot in round_["messageIds"]]
        assert sorted(chosen) == [0, 0, 1, 1, 2, 2, 3, 3]
        own = await server.post(TOPIC, {"messages": [{"value": "x", "partition": 2}]})
        assert own["messageIds"][0]["partition"] == 2
        await refused(
            server, {"messages": [{"value": "x", "partition": 1}]}, 422, 42205, f"{TOPIC}/partitions/2"
        )
        await server.broker.topics.set_partitions(NAME, 6)
        grown = await server.post(TOPIC, {"messages": [{"value": "x"}] * 6})
        assert sorted(slot["partition"] for slot in grown["messageIds"]) == [0, 1, 2, 3, 4, 5]


async def test_avro_by_schema_then_by_version() -> None:
    async with RestServer.open() as server:
        answer = await server.post(TOPIC, {"value_schema": AVRO, "messages": [{"value": {"x": 1, "s": "a"}}]})
        assert answer["schema_version"] == 0
        await server.post(
            TOPIC, {"schema_version": 0, "messages": [{"value": {"x": 2}}, {"value": {"x": 3, "s": None}}]}
        )
        wider = {**RECORD, "fields": [*RECORD["fields"], {"name": "y", "type": "int", "default": 9}]}
        answer = await server.post(
            TOPIC, {"schema_type": "avro", "value_schema": wider, "messages": [{"value": {"x": 4}}]}
        )
        assert answer["schema_version"] == 1
        found = await server.get(f"{TOPIC}/partitions/0/messages", include_schema="true")
        assert [m["value"] for m in found["messages"]] == [
            {"x": 1, "s": "a"},
            {"x": 2, "s": None},
            {"x": 3, "s": None},
            {"x": 4, "s": None, "y": 9},
        ]
        assert [(s["type"], s["version"]) for s in found["schemas"]] == [("AVRO", 0), ("AVRO", 1)]
        await refused(server, {"messages": [{"value": "text"}]}, 422, 42202)
        await refused(
            server, {"value_schema": {"type": "STRING"}, "messages": [{"value": "text"}]}, 409, 40903
        )
        narrow = {**RECORD, "fields": [{"name": "z", "type": "int"}]}
        refusal = await refused(
            server,
            {"value_schema": {"type": "AVRO", "schema": narrow}, "messages": [{"value": {"z": 1}}]},
            409,
            40903,
        )
        assert "z" in refusal
        partly = await server.post(
            TOPIC, {"schema_version": 1, "messages": [{"value": {"x": "no"}}, {"value": {"x": 5}}]}
        )
        assert "x" in partly["messageIds"][0]["error"]
        await refused(server, {"schema_version": 1, "messages": [{"value": {"x": "no"}}]}, 422, 42205)


async def test_a_schema_per_message() -> None:
    async with RestServer.open() as server:
        wider = {**RECORD, "fields": [*RECORD["fields"], {"name": "y", "type": "int", "default": 9}]}
        answer = await server.post(
            TOPIC,
            {
                "value_schema": AVRO,
                "messages": [
                    {"value": {"x": 1}},
                    {"value": {"x": 2, "y": 1}, "value_schema": {"type": "AVRO", "schema": wider}},
                    {"value": "x", "schema_type": "string"},
                    {"value": {"x": 3}, "value_schema": AVRO},
                    {"value": {"x": 4}, "schema_version": 8},
                ],
            },
        )
        assert answer["schema_version"] == 0
        assert [slot["schema_version"] for slot in answer["messageIds"]] == [0, 1, None, 0, None]
        assert [slot["error_code"] for slot in answer["messageIds"]] == [None, None, 1, None, 1]
        found = (await server.get(f"{TOPIC}/partitions/0/messages"))["messages"]
        assert [(m["value"]["x"], m["schema_version"]) for m in found] == [(1, 0), (2, 1), (3, 0)]
        answer = await server.post(
            TOPIC,
            {
                "messages": [
                    {"value": {"x": 5}, "schema_version": 0},
                    {"value": {"x": 6, "y": 0}, "schema_version": 1},
                ]
            },
        )
        assert (answer["schema_version"], [s["schema_version"] for s in answer["messageIds"]]) == (
            None,
            [0, 1],
        )


@pytest.mark.parametrize("encoding", ["separated", "inline"])
async def test_pairs(encoding: str) -> None:
    async with RestServer.open() as server:
        body = {
            "key_schema": {"type": "INT32"},
            "value_schema": AVRO,
            "key_value_encoding": encoding,
            "messages": [
                {"key": 5, "value": {"x": 1}},
                {"key": None, "value": {"x": 2}},
                {"key": 6, "value": None},
            ],
        }
        answer = await server.post(TOPIC, body)
        assert [slot["error"] for slot in answer["messageIds"]] == [None, None, None]
        found = (await server.get(f"{TOPIC}/partitions/0/messages"))["messages"]
        shown = [(m["key"], m["value"]) for m in found]
        assert shown == [(5, {"x": 1, "s": None}), (None, {"x": 2, "s": None}), (6, None)]
        await refused(server, {"messages": [{"value": "text"}]}, 422, 42201)
        raw = b64encode((7).to_bytes(4, "big")).decode()
        payload = b64encode(b"\x02\x00").decode()
        bytes_body = {"schema_version": 0, "encoding": "base64", "messages": [{"key": raw, "value": payload}]}
        await server.post(TOPIC, bytes_body)
        last = (await server.get(f"{TOPIC}/partitions/0/messages", offset=3))["messages"][0]
        assert (last["key"], last["value"]) == (7, {"x": 1, "s": None})


async def test_bytes_and_what_they_claim_to_be() -> None:
    async with RestServer.open() as server:
        plain = await server.post(
            TOPIC, {"schema_type": "bytes", "messages": [{"value": "/wA="}, {"value": "!"}]}
        )
        assert plain["schema_version"] is None
        assert [slot["error_code"] for slot in plain["messageIds"]] == [None, 1]
        await server.post(TOPIC, {"encoding": "base64", "messages": [{"value": "/wE="}]})
        assert await server.values() == ["/wA=", "/wE="]
        claimed = await server.post(
            TOPIC,
            {"value_schema": AVRO, "encoding": "base64", "messages": [{"value": "AgA="}, {"value": "AgAA"}]},
        )
        assert [slot["error_code"] for slot in claimed["messageIds"]] == [None, 1]
        assert (await server.values())[2] == {"x": 1, "s": None}
        assert await server.values(encoding="base64") == ["/wA=", "/wE=", "AgA="]


async def test_json_without_a_definition() -> None:
    async with RestServer.open() as server:
        await server.post(
            TOPIC, {"schema_type": "json", "messages": [{"value": {"a": [1, None]}}, {"value": "x"}]}
        )
        assert await server.values() == [{"a": [1, None]}, "x"]
        other = f"{TOPIC}2"
        definition = {"type": "JSON", "schema": RECORD}
        await server.post(other, {"value_schema": definition, "messages": [{"value": {"x": 1}}]})
        await server.post(other, {"schema_type": "json", "messages": [{"value": {"x": 2}}]})
        await refused(server, {"schema_type": "json", "messages": [{"value": {"a": 1}}]}, 422, 42205, other)


async def test_a_deleted_schema_is_looked_up_again() -> None:
    async with RestServer.open() as server:
        await server.produce("a")
        await server.broker.schemas.delete(NAME)
        assert (await server.post(TOPIC, {"messages": [{"value": "b"}]}))["schema_version"] == 2
        await server.broker.schemas.delete(NAME, force=True)
        assert (await server.post(TOPIC, {"messages": [{"value": "c"}]}))["schema_version"] == 0


async def test_where_schemas_are_enforced() -> None:
    async with RestServer.open() as server:
        await server.produce("a")
        await server.broker.namespaces.update(
            NAME.namespace_name, NamespacePolicies(schema_validation_enforced=True)
        )
        await refused(server, {"schema_type": "bytes", "messages": [{"value": "AA=="}]}, 409, 40903)
        await refused(server, {"encoding": "base64", "messages": [{"value": "AA=="}]}, 409, 40903)


async def test_topics_that_go_and_come() -> None:
    async with RestServer.open() as server:
        await server.produce("a")
        await server.broker.administration.delete_topic(NAME, force=True, schema=True)
        await server.produce("b")
        assert await server.values() == ["b"]
        await server.broker.topics.terminate(NAME)
        await refused(server, {"messages": [{"value": "c"}]}, 503, 50303)


async def test_the_bound_of_messages_holds_on_every_path() -> None:
    async with RestServer.open(limits=Limits(max_messages_per_request=2)) as server:
        for _ in range(3):  # the first request makes what the fast path needs
            await server.produce("a", "b")
            await refused(server, {"messages": [{"value": "c"}] * 3}, 413, 41301)
        assert await server.values() == ["a", "b"] * 3


async def test_an_exclusive_producer_keeps_others_out() -> None:
    async with RestServer.open() as server:
        await server.produce("a")
        options = ProducerOptions(name="only", access_mode=AccessMode.EXCLUSIVE)
        producer = await server.broker.producer(NAME, options)
        await refused(server, {"messages": [{"value": "b"}]}, 409, 40905)
        producer.close()
        await server.produce("c")


async def test_a_full_disk_is_told_and_gets_over() -> None:
    async with RestServer.open() as server:
        await server.produce("a")
        topic = await server.broker.topics.get(NAME)
        append = topic.store.append

        def full(*_: Any) -> Any:
            raise PenstockError(ErrorKind.STORAGE_FULL, "the disk is full")

        topic.store.append = full  # type: ignore[method-assign]
        for body in ({"messages": [{"value": "b"}]}, {"messages": [{"value": "b", "key": "k"}]}):
            assert await refused(server, body, 503, 50302) == "the disk is full"
        assert await server.values() == ["a"]
        topic.store.append = append  # type: ignore[method-assign]
        await server.produce("b")


async def test_errors_of_ours_tell_nothing_of_the_inside(caplog: pytest.LogCaptureFixture) -> None:
    async with RestServer.open() as server:
        await server.produce("a")
        topic = await server.broker.topics.get(NAME)

        def broken(*_: Any) -> Any:
            raise RuntimeError("secret")

        topic.store.append = broken  # type: ignore[method-assign]
        response = await server.client.post(TOPIC, content=b'{"messages":[{"value":"b"}]}')
        assert (response.status_code, response.json()["error_code"]) == (500, 50001)
        assert "secret" not in response.text
        assert "secret" in caplog.text


async def test_a_draining_server_takes_no_work() -> None:
    async with RestServer.open() as server:
        server.context.draining = True
        response = await server.client.post(TOPIC, content=b'{"messages":[{"value":"b"}]}')
        assert (response.status_code, response.json()["error_code"]) == (503, 50301)
        assert response.headers["retry-after"] == "1"


async def test_requests_and_replies() -> None:
    async with RestServer.open() as server:
        created = await server.post(f"{TOPIC}/subscription/s", {"subscription_type": "Shared"})
        asked = asyncio.get_running_loop().create_task(
            server.post(f"{TOPIC}/request?timeout=5000", {"value": "ping"})
        )
        got = (await server.get(f"{created['base_uri']}/messages", timeout=60_000))["messages"][0]
        assert got["value"] == "ping"
        assert got["properties"] == {"REQUEST_TIMEOUT_MILLIS": "5000"}
        answer = {"messageId": got["messageId"], "replyContent": "cG9uZw==", "isErrorResult": True}
        acked = await server.post(f"{TOPIC}/subscription/s/cursor", {"messageIds": [answer]})
        assert acked["messageIds"][0]["reply"] == "ok"
        replied = await asked
        assert replied["replyContent"] == "cG9uZw=="
        assert replied["isErrorResult"] is True
        assert MessageId.parse(replied["requestMessageId"]).entry == 0
        late = asyncio.get_running_loop().create_task(
            server.client.post(f"{TOPIC}/request?timeout=5", content=b'{"messages":[{"value":"x"}]}')
        )
        await settle()
        await server.clock.advance(5)
        response = await late
        assert (response.status_code, response.json()["error_code"]) == (504, 50401)
        await refused(server, {"messages": [{"value": "x"}] * 2}, 422, 42205, f"{TOPIC}/request")
        await refused(server, {"value": "x"}, 400, 40001, f"{TOPIC}/request?timeout=0")


# -- the shipped dialect


@pytest.mark.parametrize(
    "body",
    [
        {"payload": "ping", "key": "k"},
        {"messages": [{"payload": "ping", "key": "k"}]},
        {"value": "ping", "key": "k"},
    ],
)
async def test_a_request_in_the_shipped_dialect(body: dict[str, Any]) -> None:
    async with RestServer.open() as server:
        topic = await server.broker.topics.get(TopicName.parse("t"))
        asked = asyncio.get_running_loop().create_task(
            server.client.post(f"{SHIPPED}/request?timeout=5", content=msgspec.json.encode(body))
        )
        await settle()
        await server.clock.advance(5)
        assert (await asked).status_code == 504
        entry = await topic.entry(0)
        (message,) = wire.decode(entry)
        assert (message.payload, message.key) == (b"ping", "k")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (TOPIC, {"value": "ping"}),
        (TOPIC, {"messages": [{"value": "ping"}]}),
        (SHIPPED, {"value": "ping"}),
        (SHIPPED, {"payload": "ping"}),
        (SHIPPED, {"messages": [{"payload": "ping"}]}),
    ],
)
async def test_a_request_of_a_text_alone_is_stored_as_any_other(path: str, body: dict[str, Any]) -> None:
    """The second time the topic and its schema are known, and nothing but the text is looked at."""
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    async with RestServer.open() as server:
        url, content = f"{path}/request?timeout=5", msgspec.json.encode(body)
        for headers in ({}, {}, trace):
            asked = asyncio.get_running_loop().create_task(
                server.client.post(url, content=content, headers=headers)
            )
            await settle()
            await server.clock.advance(5)
            response = await asked
            assert (response.status_code, response.json()["reason" if path == SHIPPED else "message"]) == (
                504,
                "no reply within 5 ms",
            )
        topic = await server.broker.topics.get(TopicName.parse("t"))
        first, second, third = [
            message for entry in await topic.read(0, 10) for message in wire.decode(entry)
        ]
        assert [one.sequence_id for one in (first, second, third)] == [0, 1, 2]
        assert (
            (first.payload, first.schema_version) == (second.payload, second.schema_version) == (b"ping", 0)
        )
        assert first.properties == second.properties == {"REQUEST_TIMEOUT_MILLIS": "5"}
        assert third.properties.keys() == {"REQUEST_TIMEOUT_MILLIS", "traceparent"}


async def test_a_text_alone_that_is_no_request_is_refused_whatever_is_known() -> None:
    async with RestServer.open() as server:
        asked = asyncio.get_running_loop().create_task(
            server.client.post(f"{TOPIC}/request?timeout=5", content=b'{"value":"x"}')
        )
        await settle()
        await server.clock.advance(5)
        await asked
        url = f"{TOPIC}/request"
        await refused(server, {"messages": [{"value": "x"}] * 2}, 422, 42205, url)
        await refused(server, {"messages": []}, 422, 42205, url)
        await refused(server, {"payload": "x"}, 400, 40001, url)
        await refused(server, {"value": 5}, 422, 42202, url)
        topic = await server.broker.topics.get(TopicName.parse("t"))
        assert topic.next_offset == 1
        assert len(server.broker.requests) == 0


async def shipped(server: RestServer, body: Any, path: str = SHIPPED) -> httpx.Response:
    return await server.client.post(path, content=msgspec.json.encode(body))


@pytest.mark.parametrize(
    "envelope",
    [{}, {"schemaVersion": -1}, {"valueSchema": '{"type": "INT32"}'}, {"schemaVersion": 0}],
)
async def test_shipped_payloads_alone_are_published_as_others(envelope: dict[str, Any]) -> None:
    """Payloads and nothing else take a shorter way; a field that means nothing keeps them from it."""
    async with RestServer.open() as server:
        named = envelope.get("valueSchema") or envelope.get("schemaVersion") == 0
        if named:
            first = {"valueSchema": '{"type": "INT32"}', "messages": [{"payload": "0"}]}
        else:
            first = {"messages": [{"payload": "0"}]}
        await shipped(server, first)
        for payloads in (["1"], ["1", "2", "3"]):
            plain = [{"payload": one} for one in payloads]
            others = [{"payload": one, "unknown": 1} for one in payloads]
            answers = [
                (await shipped(server, {**envelope, "messages": messages})).json()
                for messages in (plain, others)
            ]
            for answer in answers:
                for result in answer["messagePublishResults"]:
                    ledger, _, rest = result["messageId"].split(":", 2)
                    result["messageId"] = f"{ledger}:{rest}"
            assert answers[0] == answers[1]
            assert len(answers[0]["messagePublishResults"]) == len(payloads)
        values = [m["value"] for m in (await server.get(f"{SHIPPED}/partitions/0/messages"))["messages"]]
        expected = ["0", "1", "1", *("1", "2", "3") * 2]
        assert values == ([int(one) for one in expected] if named else expected)
        bad = await shipped(server, {**envelope, "messages": [{"payload": "1"}, {"payload": "x"}]})
        codes = [result["errorCode"] for result in bad.json()["messagePublishResults"]]
        assert codes == ([0, 1] if named else [0, 0])


@pytest.mark.parametrize(
    "values", [["plain"], ["plain", "ü"], ["a\u0001", "b", "\\"], ["x" * 127, "x" * 128], ["🌊"] * 3]
)
async def test_texts_are_stored_as_utf_8(values: list[str]) -> None:
    async with RestServer.open() as server:
        await server.produce("first")
        await server.post(SHIPPED, {"messages": [{"payload": "first"}]})
        for encode in (msgspec.json.encode, lambda body: json.dumps(body).encode()):
            for path, field in ((TOPIC, "value"), (SHIPPED, "payload")):
                body = encode({"messages": [{field: value} for value in values]})
                assert (await server.client.post(path, content=body)).status_code == 200
        found = await server.values()
        assert found == ["first", "first", *values * 4]


async def test_a_shipped_request_of_a_named_producer_is_published_under_its_name() -> None:
    async with RestServer.open() as server:
        for _ in range(2):  # the schema is known to the second
            await server.post(SHIPPED, {"producerName": "me", "messages": [{"payload": "a"}]})
        await server.post(SHIPPED, {"messages": [{"payload": "a"}]})
        messages = (await server.get(f"{TOPIC}/partitions/0/messages"))["messages"]
        assert [message["producerName"] == "me" for message in messages] == [True, True, False]


async def test_shipped_answers() -> None:
    async with RestServer.open() as server:
        response = await shipped(
            server, {"messages": [{"payload": "a", "key": "k", "eventTime": "12"}, {"payload": "b"}]}
        )
        assert response.json() == {
            "messagePublishResults": [
                {"messageId": "0:0:-1:0", "errorCode": 0, "schemaVersion": 0},
                {"messageId": "0:0:-1:1", "errorCode": 0, "schemaVersion": 0},
            ],
            "schemaVersion": 0,
        }
        found = (await server.get(f"{SHIPPED}/partitions/0/messages"))["messages"]
        assert [(m["key"], m["value"], m["eventTime"]) for m in found] == [("k", "a", 12), (None, "b", None)]
        await server.broker.topics.create(TopicName.parse("p"), 2)
        response = await shipped(
            server, {"messages": [{"payload": "a"}]}, "/topics/persistent/public/default/p/partitions/1"
        )
        assert response.json()["messagePublishResults"][0]["messageId"].endswith(":0:1")


@pytest.mark.parametrize(
    ("schema", "payload", "value"),
    [
        ({"type": "INT32", "schema": ""}, "-5", -5),
        ({"type": "DOUBLE"}, "1.5", 1.5),
        ({"type": "BOOLEAN"}, "TRUE", True),
        ({"type": "TIMESTAMP"}, "1700000000000", "2023-11-14T22:13:20.000Z"),
        ({"type": "LOCAL_DATE"}, "2024-02-29", "2024-02-29"),
        ({"type": "BYTES"}, "abc", "YWJj"),
        ({"type": "JSON", "schema": RECORD}, '{"x":1}', {"x": 1, "s": None}),
        ({"type": "AVRO", "schema": RECORD}, '{"x":1,"s":{"string":"q"}}', {"x": 1, "s": "q"}),
    ],
)
async def test_shipped_payloads_are_texts(schema: Any, payload: str, value: Any) -> None:
    async with RestServer.open() as server:
        text = msgspec.json.encode(schema).decode()
        response = await shipped(
            server, {"valueSchema": text, "messages": [{"payload": payload}, {"payload": "{"}]}
        )
        results = response.json()["messagePublishResults"]
        assert results[0]["errorCode"] == 0, results
        if schema["type"] != "BYTES":
            assert results[1]["errorCode"] == 1
            assert results[1]["errorMsg"]
        assert (await server.values())[0] == value


async def test_shipped_pairs_and_versions() -> None:
    async with RestServer.open() as server:
        body = {
            "keySchema": '{"type":"INT32"}',
            "valueSchema": '{"type":"STRING"}',
            "messages": [{"key": "5", "payload": "v"}],
        }
        assert (await shipped(server, body)).json()["schemaVersion"] == 0
        await shipped(server, {"schemaVersion": 0, "messages": [{"key": "6", "payload": "w"}]})
        found = (await server.get(f"{SHIPPED}/partitions/0/messages"))["messages"]
        assert [(m["key"], m["value"]) for m in found] == [(5, "v"), (6, "w")]


async def test_shipped_errors_have_a_reason_too() -> None:
    async with RestServer.open() as server:
        response = await shipped(server, {"messages": [{"payload": 5}]})
        assert response.status_code == 422
        assert response.json()["reason"] == response.json()["message"]
        response = await shipped(server, {"schemaVersion": 5, "messages": [{"payload": "x"}]})
        assert (response.status_code, response.json()["error_code"]) == (422, 42204)
        response = await shipped(server, {"messages": [{"payload": "x", "eventTime": "soon"}]})
        assert response.status_code == 422
        partly = await shipped(server, {"messages": [{"payload": 5}, {"payload": "x", "unknown": 1}]})
        assert [r["errorCode"] for r in partly.json()["messagePublishResults"]] == [1, 0]


async def test_non_persistent_topics() -> None:
    async with RestServer.open() as server:
        path = "/topics/non-persistent/public/default/t"
        await shipped(server, {"messages": [{"payload": "a"}]}, path)
        assert await server.values(f"{path}/partitions/0") == ["a"]
