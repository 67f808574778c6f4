"""A client of Confluent's REST proxy, and the stories that are told before every engine."""

import itertools
import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any, Final, Self
from urllib.parse import quote
from uuid import uuid4

import httpx

V2: Final = "application/vnd.kafka.v2+json"
USER: Final = {
    "type": "record",
    "name": "User",
    "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": "int", "default": 0}],
}

_RUN: Final = uuid4().hex[:8]
_numbers: Final = itertools.count(1)


def media(kind: str, version: str = "v2") -> str:
    return f"application/vnd.kafka.{kind}.{version}+json"


def b64(text: str) -> str:
    return b64encode(text.encode()).decode()


class Proxy:
    """One REST proxy, of several processes if there are several addresses: each call is for the next one, and checks the status that it
    expects."""

    def __init__(self, *urls: str, headers: dict[str, str] | None = None) -> None:
        self.url = urls[0]
        made = [httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=60) for url in urls]
        self.http = made[0]
        self._clients = made
        self._next = itertools.cycle(made)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        for client in self._clients:
            client.close()

    def name(self, prefix: str = "topic") -> str:
        """A name that nothing has yet."""
        return f"{prefix}-{_RUN}-{next(_numbers)}"

    def ask(self, method: str, path: str, status: int = 200, code: int | None = None, **more: Any) -> Any:
        answer = next(self._next).request(method, path, **more)
        assert answer.status_code == status, answer.text
        if status == 204:
            assert not answer.content
            return None
        found = answer.json()
        if code is not None:
            assert found["error_code"] == code, found
        return found

    def post(self, path: str, body: Any, status: int = 200, code: int | None = None, kind: str = "") -> Any:
        headers = {"content-type": media(kind) if kind else V2}
        return self.ask("POST", path, status, code, headers=headers, json=body)

    def produce(self, topic: str, records: Sequence[Any], kind: str = "json", **more: Any) -> Any:
        answer = self.post(f"/topics/{quote(topic, safe='')}", {"records": records, **more}, kind=kind)
        assert [one["error"] for one in answer["offsets"]] == [None] * len(records)
        return answer

    def consumer(self, group: str, kind: str = "json", **options: Any) -> "Consumer":
        given = {
            "format": kind,
            "auto.offset.reset": "earliest",
            "auto.commit.enable": "false",
            "consumer.request.timeout.ms": 20_000,
            **options,
        }
        answer = self.post(f"/consumers/{quote(group, safe='')}", given)
        assert answer["base_uri"].startswith(("http://", "https://"))
        assert answer["base_uri"].endswith(
            f"/consumers/{quote(group, safe='')}/instances/{answer['instance_id']}"
        )
        path = answer["base_uri"][answer["base_uri"].index("/consumers/") :]
        return Consumer(self, path, kind)


class Consumer:
    """A consumer instance."""

    def __init__(self, proxy: Proxy, path: str, kind: str) -> None:
        self.proxy = proxy
        self.path = path
        self.kind = kind

    def post(self, path: str, body: Any, status: int = 204, code: int | None = None) -> Any:
        return self.proxy.post(f"{self.path}/{path}", body, status, code)

    def get(self, path: str, body: Any = None) -> Any:
        return self.proxy.ask("GET", f"{self.path}/{path}", json=body, headers={"content-type": V2})

    def subscribe(self, *topics: str) -> None:
        self.post("subscription", {"topics": topics})

    def records(self, timeout: int = 20_000, **query: Any) -> Any:
        return self.proxy.ask(
            "GET",
            f"{self.path}/records",
            params={"timeout": timeout, **query},
            headers={"accept": media(self.kind)},
        )

    def values(self, count: int, timeout: int = 5000) -> list[Any]:
        """So many values, however many fetches they take."""
        found: list[Any] = []
        for _ in range(20):
            found += [one["value"] for one in self.records(timeout)]
            if len(found) >= count:
                break
        return found

    def committed(self, *places: tuple[str, int]) -> list[tuple[str, int, int]]:
        asked = {"partitions": [{"topic": topic, "partition": number} for topic, number in places]}
        found = self.get("offsets", asked)["offsets"]
        return [(one["topic"], one["partition"], one["offset"]) for one in found]

    def delete(self) -> None:
        self.proxy.ask("DELETE", self.path, 204)


def place(topic: str, partition: int = 0, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, **more}


# -- stories


def produces_and_reads_what_others_see(proxy: Proxy) -> None:
    topic = proxy.name()
    first = proxy.produce(topic, [{"value": {"n": 1}}, {"key": "k", "value": [2]}, {"key": "k"}])["offsets"]
    assert [one["offset"] for one in first] == [0, 1, 2]
    assert topic in proxy.ask("GET", "/topics")
    assert proxy.ask("GET", f"/topics/{topic}")["configs"]
    assert proxy.ask("GET", f"/topics/{topic}/partitions/0/offsets") == {
        "beginning_offset": 0,
        "end_offset": 3,
    }
    consumer = proxy.consumer(proxy.name("group"))
    consumer.subscribe(topic)
    records = consumer.records()
    assert [(one["key"], one["value"], one["offset"]) for one in records] == [
        (None, {"n": 1}, 0),
        ("k", [2], 1),
        ("k", None, 2),
    ]
    assert all(one["topic"] == topic and one["partition"] == 0 for one in records)
    assert all(one["timestamp"] > 0 and "headers" not in one for one in records)


def keeps_headers_and_timestamps(proxy: Proxy) -> None:
    topic = proxy.name()
    headers = [
        {"name": "a", "value": b64("x")},
        {"name": "a", "value": b64("y")},
        {"name": "none", "value": None},
        {"name": "raw", "value": b64encode(b"\xff\x00").decode()},
    ]
    records = [{"value": 1, "headers": headers, "timestamp": 1_700_000_000_000}, {"value": 2}]
    proxy.produce(topic, records)
    consumer = proxy.consumer(proxy.name("group"))
    consumer.subscribe(topic)
    first, second = consumer.records()
    assert first["headers"] == headers
    assert first["timestamp"] == 1_700_000_000_000
    assert "headers" not in second


def commits_offsets_of_records(proxy: Proxy) -> None:
    topic, group = proxy.name(), proxy.name("group")
    proxy.produce(topic, [{"value": n} for n in range(5)])
    consumer = proxy.consumer(group)
    consumer.post("assignments", {"partitions": [place(topic)]})
    assert consumer.committed((topic, 0)) == []
    consumer.post("offsets", {}, 200)  # nothing was fetched
    consumer.post("offsets", {"offsets": [place(topic, offset=1)]}, 200)
    assert consumer.committed((topic, 0)) == [(topic, 0, 2)]
    consumer.delete()
    again = proxy.consumer(group)
    again.subscribe(topic)
    assert again.values(3) == [2, 3, 4]
    again.post("offsets", {}, 200)
    assert again.committed((topic, 0)) == [(topic, 0, 5)]
    again.post("positions/beginning", {"partitions": [place(topic)]})
    assert again.values(5) == [0, 1, 2, 3, 4]
    again.post("positions", {"offsets": [place(topic, offset=3)]})
    assert again.values(2) == [3, 4]
    again.post("positions/end", {"partitions": [place(topic)]})
    assert again.records(0) == []
    again.delete()


def commits_by_itself(proxy: Proxy) -> None:
    topic, group = proxy.name(), proxy.name("group")
    proxy.produce(topic, [{"value": 1}, {"value": 2}])
    consumer = proxy.consumer(group, **{"auto.commit.enable": True})
    consumer.subscribe(topic)
    assert consumer.values(2) == [1, 2]
    consumer.delete()
    proxy.produce(topic, [{"value": 3}])
    again = proxy.consumer(group)
    again.subscribe(topic)
    assert again.values(1) == [3]
    again.delete()


def subscribes_by_pattern(proxy: Proxy) -> None:
    prefix = proxy.name("pattern")
    topics = [f"{prefix}-{n}" for n in range(2)]
    proxy.produce(topics[0], [{"value": 0}])
    consumer = proxy.consumer(proxy.name("group"))
    consumer.post("subscription", {"topic_pattern": f"{prefix}-.*"})
    assert consumer.values(1) == [0]
    proxy.produce(topics[1], [{"value": 1}])
    assert consumer.values(1) == [1]
    assert consumer.get("subscription") == {"topics": topics}
    consumer.proxy.ask("DELETE", f"{consumer.path}/subscription", 204)
    assert consumer.get("subscription") == {"topics": []}


def goes_on_behind_a_record_that_cannot_be_read(proxy: Proxy) -> None:
    topic = proxy.name()
    proxy.produce(topic, [{"value": b64("1")}, {"value": b64("test")}, {"value": b64("3")}], "binary")
    consumer = proxy.consumer(proxy.name("group"))
    consumer.subscribe(topic)
    assert [one["value"] for one in consumer.records()] == [1]
    answer = proxy.ask("GET", f"{consumer.path}/records", 422, params={"timeout": 20_000})
    assert "value deserialization error for format json" in answer["message"]
    assert f"topic {topic}, partition 0, offset 1" in answer["message"]
    assert consumer.values(1) == [3]


def bounds_an_answer_by_bytes(proxy: Proxy) -> None:
    topic = proxy.name()
    proxy.produce(topic, [{"value": b64("x" * 1000)} for _ in range(20)], "binary")
    consumer = proxy.consumer(proxy.name("group"), "binary")
    consumer.subscribe(topic)
    assert 1 <= len(consumer.records(max_bytes=10)) <= 2
    assert 5 <= len(consumer.records(max_bytes=10_000)) <= 12
    assert len(consumer.values(8)) >= 8


def serves_instances_by_name(proxy: Proxy) -> None:
    topic, group = proxy.name(), proxy.name("group")
    proxy.produce(topic, [{"value": 1}])
    consumer = proxy.consumer(group, name="mine")
    assert consumer.path == f"/consumers/{group}/instances/mine"
    for _ in range(3):  # at every process, if there are three
        proxy.post(f"/consumers/{group}", {"name": "mine"}, 409, 40902)
    consumer.subscribe(topic)
    assert consumer.values(1) == [1]
    consumer.delete()
    proxy.ask("DELETE", consumer.path, 404, 40403)


def takes_a_name_again_that_was_made_up(proxy: Proxy) -> None:
    topic, group = proxy.name(), proxy.name("group")
    proxy.produce(topic, [{"value": 1}])
    consumer = proxy.consumer(group)
    name = consumer.path.rpartition("/")[2]
    for _ in range(3):  # at every process, if there are three
        proxy.post(f"/consumers/{group}", {"name": name}, 409, 40902)
    consumer.delete()
    again = proxy.consumer(group, name=name)
    assert again.path == consumer.path
    again.subscribe(topic)
    assert again.values(1) == [1]
    again.delete()


STORIES: Final[Sequence[Callable[[Proxy], None]]] = (
    produces_and_reads_what_others_see,
    keeps_headers_and_timestamps,
    commits_offsets_of_records,
    commits_by_itself,
    subscribes_by_pattern,
    goes_on_behind_a_record_that_cannot_be_read,
    bounds_an_answer_by_bytes,
    serves_instances_by_name,
    takes_a_name_again_that_was_made_up,
)


# -- stories of schemas, where there is a registry


def writes_and_reads_by_avro(proxy: Proxy) -> None:
    topic = proxy.name()
    people = [{"name": "Ada", "age": 36}, {"name": "Grace", "age": 85}]
    records = [{"key": one["name"], "value": one} for one in people]
    made = proxy.produce(topic, records, "avro", key_schema='"string"', value_schema=json.dumps(USER))
    again = proxy.produce(topic, [{"value": people[0]}], "avro", value_schema_id=str(made["value_schema_id"]))
    assert again["value_schema_id"] == made["value_schema_id"]
    assert again["key_schema_id"] is None
    consumer = proxy.consumer(proxy.name("group"), "avro")
    consumer.subscribe(topic)
    found = consumer.records()
    assert [(one["key"], one["value"]) for one in found] == [
        ("Ada", people[0]),
        ("Grace", people[1]),
        (None, people[0]),
    ]


def writes_and_reads_by_json_schema_and_protobuf(proxy: Proxy) -> None:
    shape = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}})
    message = 'syntax = "proto3"; message M { string a = 1; repeated int32 b = 2; }'
    for kind, schema, value, wrong in (
        ("jsonschema", shape, {"n": 1}, {"n": "x"}),
        ("protobuf", message, {"a": "x", "b": [1, 2]}, {"a": 1}),
    ):
        topic = proxy.name()
        proxy.produce(topic, [{"key": None, "value": value}], kind, value_schema=schema)
        path, body = f"/topics/{topic}", {"value_schema": schema, "records": [{"value": wrong}]}
        assert proxy.post(path, body, 422, 42205, kind)["message"]
        consumer = proxy.consumer(proxy.name("group"), kind)
        consumer.subscribe(topic)
        assert consumer.values(1) == [value]


SCHEMA_STORIES: Final[Sequence[Callable[[Proxy], None]]] = (
    writes_and_reads_by_avro,
    writes_and_reads_by_json_schema_and_protobuf,
)
