"""Confluent's REST proxy over the embedded engine: its stories, and every shape, code and text that clients compare."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.auth import AUDIENCE, headers_of, issuer, token
from tests.support.ports import kept_port
from tests.support.rest_proxy import SCHEMA_STORIES, STORIES, USER, V2, Consumer, Proxy, b64, media, place
from tests.support.waiting import until
from tests.support.workers import serving

from penstock.testing.server import Running, running

ONE_WAY = (
    "IllegalStateError: You must choose only one way to configure your consumer: (1) subscribe to specific topics by name,"
    " (2) subscribe to topics matching a regex pattern, (3) assign itself specific topic-partitions."
)
RECORD = {"records": [{"value": 1}]}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(settings={"rest_proxy": {"listen": "127.0.0.1:0"}}) as address:
        yield address


@pytest.fixture(scope="module")
def proxy(server: Running) -> Iterator[Proxy]:
    with Proxy(server.rest_proxy_url) as made:
        yield made


@pytest.fixture(scope="module", params=["memory", "sqlite", "workers"])
def any_proxy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder: Path = tmp_path_factory.mktemp("data")
    if request.param == "workers":
        with serving(folder) as several, Proxy(f"{several.url}/rest") as made:
            yield made
    else:
        given = None if request.param == "memory" else folder
        with running(given) as address, Proxy(address.rest_proxy_url) as made:
            yield made


@pytest.mark.parametrize("story", [*STORIES, *SCHEMA_STORIES], ids=lambda story: story.__name__)
def test_stories(any_proxy: Proxy, story: Callable[[Proxy], None]) -> None:
    story(any_proxy)


# -- topics


def test_metadata(proxy: Proxy) -> None:
    for path in ("", "/"):
        for method in ("GET", "POST"):
            assert proxy.ask(method, path) == {}
    topic = proxy.name()
    proxy.produce(topic, [{"value": 1}])
    replica = {"broker": 0, "leader": True, "in_sync": True}
    partition = {"partition": 0, "leader": 0, "replicas": [replica]}
    found = proxy.ask("GET", f"/topics/{topic}/")
    assert (found["name"], found["partitions"]) == (topic, [partition])
    assert found["configs"]["cleanup.policy"] == "delete"
    assert proxy.ask("GET", f"/topics/{topic}/partitions/") == [partition]
    assert proxy.ask("GET", f"/topics/{topic}/partitions/0") == partition
    assert proxy.ask("GET", "/brokers") == {"brokers": [0]}


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/topics/fooo", 40403),
        ("/topics/fooo/partitions", 40401),
        ("/topics/fooo/partitions/0", 40401),
        ("/topics/fooo/partitions/0/offsets", 40401),
        ("/topics/there/partitions/10", 40402),
        ("/topics/there/partitions/10/offsets", 40402),
        ("/topics/there/partitions/foo/offsets", 404),
        ("/nothing", 404),
        ("/consumers/g/instances/none/records", 40403),
    ],
)
def test_what_is_not_there(proxy: Proxy, path: str, code: int) -> None:
    proxy.produce("there", [{"value": 1}])
    answer = proxy.ask("GET", path, 404, code)
    if code == 40401:
        assert answer["message"] == "Topic fooo not found."


def test_full_names_are_of_other_namespaces(server: Running, proxy: Proxy) -> None:
    httpx.put(f"{server.url}/admin/v2/namespaces/public/other", trust_env=False)
    full = "persistent://public/other/flights"
    proxy.produce(full, [{"value": 1}])
    assert proxy.ask("GET", "/topics/persistent:%2F%2Fpublic%2Fother%2Fflights")["name"] == full
    consumer = proxy.consumer("full")
    consumer.subscribe(full)
    (record,) = consumer.records()
    assert record["topic"] == full
    assert consumer.get("subscription") == {"topics": [full]}
    assert "flights" not in proxy.ask("GET", "/topics")


# -- content types


@pytest.mark.parametrize(
    "kind",
    [
        "application/vnd.kafka.v1+json",
        "application/vnd.kafka.binary.v1+json",
        "application/vnd.kafka.json+json",
        "application/vnd.kafka+json",
        "application/json",
        "application/octet-stream",
        "application/vnd.kafka.json.v2+json; charset=utf-8",
    ],
)
def test_content_types_that_are_taken(proxy: Proxy, kind: str) -> None:
    body = RECORD if "json+json" in kind or ".json.v2" in kind else {"records": [{"value": "Zm9v"}]}
    proxy.ask("POST", "/topics/types", headers={"content-type": kind}, json=body)


@pytest.mark.parametrize(
    "kind",
    [
        "application/vnd.kafka.v3+json",
        "application/vnd.kafka.binary.v1+foo",
        "application/vnd.kafka.avro.v0+json",
        "application/vnd.kafka.json+avro",
        "application/vnd.kafka",
        "application/text",
        "bar/baz",
    ],
)
def test_content_types_that_are_not(proxy: Proxy, kind: str) -> None:
    answer = proxy.ask("POST", "/topics/types", 415, 415, headers={"content-type": kind}, json=RECORD)
    assert answer["message"] == "HTTP 415 Unsupported Media Type"


@pytest.mark.parametrize(
    ("accept", "answered"),
    [
        ("application/vnd.kafka.v1+json", "application/vnd.kafka.v1+json"),
        ("application/vnd.kafka+json", "application/vnd.kafka+json"),
        ("application/json", "application/json"),
        ("application/*", V2),
        ("*/json", V2),
        ("*/*", V2),
        ("application/json;q=0.5, application/vnd.kafka.v2+json;q=0.4", "application/json"),
        ("application/vnd.kafka.avro.v2+json, application/vnd.kafka.v2+json, application/json, */*", V2),
    ],
)
def test_accepted(proxy: Proxy, accept: str, answered: str) -> None:
    answer = proxy.http.get("/brokers", headers={"accept": accept})
    assert (answer.status_code, answer.headers["content-type"]) == (200, answered)


@pytest.mark.parametrize(
    "accept", ["application/octet-stream", "application/text", "foo/*", "bar/json", "*/baz"]
)
def test_not_acceptable(proxy: Proxy, accept: str) -> None:
    answer = proxy.ask("GET", "/brokers", 406, 406, headers={"accept": accept})
    assert answer["message"] == "HTTP 406 Not Acceptable"


# -- produce


@pytest.mark.parametrize(
    ("body", "kind", "status", "code"),
    [
        ({"records": []}, "json", 422, 422),
        ({"foo": "bar"}, "json", 422, 422),
        ({"records": [{"valur": 1}]}, "json", 422, 422),
        ({"records": "x"}, "json", 400, 400),
        ({"records": ["x"]}, "json", 400, 400),
        ([1], "json", 400, 400),
        ({"records": [{"value": "not base64"}]}, "binary", 400, 400),
        ({"records": [{"value": "Zm9v="}]}, "binary", 400, 400),
        ({"records": [{"value": {"a": 1}}]}, "binary", 400, 400),
        ({"records": [{"value": {"a": 1}}]}, "avro", 422, 42202),
        ({"records": [{"key": {"a": 1}}]}, "avro", 422, 42201),
        ({"records": [{"value": {"a": 1}}], "value_schema": "{"}, "avro", 422, 42205),
        ({"records": [{"value": {"a": 1}}], "value_schema_id": 666}, "avro", 422, 42207),
        ({"records": [{"value": 1}], "value_schema_id": 1, "value_schema": "x"}, "avro", 422, 42205),
        ({"records": [{"value": 1, "headers": [{"name": "a", "value": "!"}]}]}, "json", 422, 422),
        ({"records": [{"value": 1, "headers": {"a": "b"}}]}, "json", 422, 422),
        ({"records": [{"value": 1, "timestamp": "now"}]}, "json", 422, 422),
        ({"records": [{"value": 1, "partition": 7}]}, "json", 404, 40402),
        ({"records": [{"value": 1, "partition": -1}]}, "json", 404, 40402),
        ({"records": [{"value": 1, "partition": "x"}]}, "json", 400, 400),
    ],
)
def test_bad_requests_store_nothing(proxy: Proxy, body: Any, kind: str, status: int, code: int) -> None:
    proxy.produce("strict", [{"value": 1}])
    before = proxy.ask("GET", "/topics/strict/partitions/0/offsets")
    for path in ("/topics/strict", "/topics/strict/partitions/0"):
        proxy.post(path, body, status, code, kind)
    assert proxy.ask("GET", "/topics/strict/partitions/0/offsets") == before


def test_a_body_that_is_not_json(proxy: Proxy) -> None:
    proxy.ask("POST", "/topics/strict", 400, 400, headers={"content-type": V2}, content=b"{")


def test_schemas_are_checked(server: Running, proxy: Proxy) -> None:
    topic, path = "checked", "/topics/checked"
    made = proxy.produce(topic, [{"value": {"name": "x"}}], "avro", value_schema=json.dumps(USER))
    answer = proxy.post(
        path,
        {"value_schema_id": made["value_schema_id"], "records": [{"value": {"heat": 25}}]},
        422,
        42205,
        "avro",
    )
    assert answer["message"] == "Object does not fit to stored schema"
    assert answer["detail"] == "value.name: missing"
    other = {"type": "record", "name": "Other", "fields": [{"name": "heat", "type": "int"}]}
    body = {"value_schema": json.dumps(other), "records": [{"value": {"heat": 25}}]}
    assert "Error when registering schema" in proxy.post(path, body, 408, 40801, "avro")["message"]
    with httpx.Client(base_url=server.registry_url, trust_env=False) as registry:
        found = registry.post("/subjects/apart-value/versions", json={"schema": json.dumps(other)}).json()
        assert registry.get(f"/subjects/{topic}-value/versions").json() == [1]
    body = {"value_schema_id": found["id"], "records": [{"value": {"heat": 25}}]}
    answer = proxy.post(path, body, 422, 42205, "avro")
    assert f"Invalid schema. format = AVRO, schema_id = {found['id']}" in answer["message"]


def test_json_schema_names_the_place(proxy: Proxy) -> None:
    shape = {"type": "object", "properties": {"n": {"type": "integer"}}}
    made = proxy.produce("shape", [{"value": {"n": 1}}], "jsonschema", value_schema=json.dumps(shape))
    body = {"value_schema_id": made["value_schema_id"], "records": [{"value": {"n": "x"}}]}
    answer = proxy.post("/topics/shape", body, 422, 42205, "jsonschema")
    assert answer["message"].startswith("'x' is not of type 'integer'\n\nFailed validating 'type' in")


def test_avro_takes_tagged_and_plain_unions(proxy: Proxy) -> None:
    fields = [
        {"name": "a", "type": ["null", "string", "long"]},
        {"name": "b", "type": ["null", "int"]},
        {"name": "c", "type": "bytes"},
    ]
    schema = json.dumps({"type": "record", "name": "Unions", "fields": fields})
    given = [
        {"a": {"string": "x"}, "b": {"int": 1}, "c": "\u00ff"},
        {"a": 5, "b": 2, "c": ""},
        {"a": None, "b": None, "c": "abcd"},
    ]
    proxy.produce("unions", [{"value": one} for one in given], "avro", value_schema=schema)
    consumer = proxy.consumer("unions", "avro")
    consumer.subscribe("unions")
    assert consumer.values(3) == [
        {"a": "x", "b": 1, "c": "/w=="},
        {"a": 5, "b": 2, "c": ""},
        {"a": None, "b": None, "c": b64("abcd")},
    ]


def test_protobuf_by_id_whatever_the_content_type(server: Running, proxy: Proxy) -> None:
    with httpx.Client(base_url=server.registry_url, trust_env=False) as registry:
        inner = 'syntax = "proto3"; message Inner { string name = 1; }'
        outer = 'syntax = "proto3"; import "Inner.proto"; message Outer { Inner inner = 1; }'
        registry.post("/subjects/inner/versions", json={"schemaType": "PROTOBUF", "schema": inner})
        used = [{"name": "Inner.proto", "subject": "inner", "version": 1}]
        given = {"schemaType": "PROTOBUF", "schema": outer, "references": used}
        schema_id = registry.post("/subjects/nested-value/versions", json=given).json()["id"]
    value = {"inner": {"name": "x"}}
    proxy.produce("nested", [{"value": value}], "avro", value_schema_id=schema_id)
    consumer = proxy.consumer("nested", "avro")
    consumer.subscribe("nested")
    assert consumer.values(1) == [value]


def test_keys_that_are_not_of_the_format_are_base64(proxy: Proxy) -> None:
    proxy.produce("keys", [{"key": b64("testkey")}], "binary")
    for kind in ("avro", "protobuf", "jsonschema", "json"):
        consumer = proxy.consumer(f"keys-{kind}", kind)
        consumer.subscribe("keys")
        assert [(one["key"], one["value"]) for one in consumer.records()] == [(b64("testkey"), None)]


def test_a_record_that_is_too_large(proxy: Proxy) -> None:
    large = {"records": [{"value": b64("x")}, {"value": "A" * 7_000_000}]}
    proxy.post("/topics/large", large, 413, 413, "binary")
    with (
        running(settings={"broker": {"max_message_bytes": 1000}}) as small,
        Proxy(small.rest_proxy_url) as other,
    ):
        answer = other.post(
            "/topics/large",
            {"records": [{"value": b64("x" * 1001)}, {"value": b64("x")}]},
            422,
            None,
            "binary",
        )
        assert answer["offsets"][0]["offset"] is None
        assert answer["offsets"][0]["error"].startswith("The server has a configurable maximum message size")
        assert answer["offsets"][1]["offset"] == 0


def test_records_without_key_are_spread(server: Running, proxy: Proxy) -> None:
    httpx.put(f"{server.url}/admin/v2/persistent/public/default/spread/partitions", json=8, trust_env=False)
    seen = {proxy.produce("spread", [{"value": n}])["offsets"][0]["partition"] for n in range(20)}
    assert len(seen) >= 2
    same = {proxy.produce("spread", [{"key": "k", "value": n}])["offsets"][0]["partition"] for n in range(5)}
    assert len(same) == 1
    answer = proxy.post(
        "/topics/spread/partitions/3", {"records": [{"value": 1}, {"value": 2, "partition": 4}]}, kind="json"
    )
    assert [one["partition"] for one in answer["offsets"]] == [3, 4]


def test_a_trace_is_carried_on(proxy: Proxy) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    own = {"name": "traceparent", "value": b64("mine")}
    body = {"records": [{"value": 1}, {"value": 2, "headers": [own]}]}
    headers = {"content-type": media("json"), "traceparent": parent}
    proxy.ask("POST", "/topics/traced", headers=headers, json=body)
    consumer = proxy.consumer("traced")
    consumer.subscribe("traced")
    assert [one["headers"] for one in consumer.records()] == [
        [{"name": "traceparent", "value": b64(parent)}],
        [own],
    ]


def test_headers_are_bounded(proxy: Proxy) -> None:
    record = {"value": 1, "headers": [{"name": "a", "value": b64("x" * 300_000)}]}
    proxy.post("/topics/headers", {"records": [record]}, 413, 413, "json")


def test_workers_answer_at_their_port(tmp_path: Path) -> None:
    with kept_port() as port:
        pass
    with (
        serving(tmp_path, "--rest-proxy", f"127.0.0.1:{port}"),
        Proxy(f"http://127.0.0.1:{port}") as proxy,
    ):
        made = proxy.post("/consumers/g", {"name": "x"})
        assert made["base_uri"] == f"{proxy.url}/consumers/g/instances/x"


def test_topics_that_are_not_created(tmp_path: Path) -> None:
    with (
        running(settings={"broker": {"auto_create_topics": False}}) as strict,
        Proxy(strict.rest_proxy_url) as proxy,
    ):
        for path in ("/topics/none", "/topics/none/partitions/0"):
            body = {"value_schema": json.dumps(USER), "records": [{"value": {"name": "x"}}]}
            assert proxy.post(path, body, 404, 40401, "avro")["message"] == "Topic none not found."
        assert httpx.get(f"{strict.registry_url}/subjects", trust_env=False).json() == []


# -- instances


def test_names_and_configurations_of_instances(proxy: Proxy) -> None:
    made = proxy.post("/consumers/names/", {"name": "one", "topic.metadata.refresh.interval.ms": 100})
    assert made == {"instance_id": "one", "base_uri": f"{proxy.url}/consumers/names/instances/one"}
    proxy.post("/consumers/names", {"name": "one"}, 409, 40902)
    proxy.post("/consumers/other", {"name": "one"})
    proxy.ask("DELETE", "/consumers/names/instances/one/", 204)
    proxy.post("/consumers/names", {"name": "one"})
    proxy.ask("POST", "/consumers/names")  # without a body
    for body, code in (
        ({"format": "xml"}, 422),
        ({"fetch.min.bytes": -10}, 40001),
        ({"fetch.min.bytes": 10_000_001}, 40001),
        ({"auto.offset.reset": "middle"}, 42204),
        ({"auto.commit.enable": "perhaps"}, 42204),
        ({"consumer.request.timeout.ms": "soon"}, 42204),
        ({"name": 5}, 42204),
    ):
        proxy.post("/consumers/names", body, 422, code)
    assert proxy.post("/consumers/names", {"format": "AVRO", "auto.commit.enable": True, "name": "two"})
    proxy.ask("DELETE", "/consumers/names/instances/none", 404, 40403)
    proxy.ask("GET", "/consumers/names/instances/one", 405, 405)


def test_one_way_to_partitions(proxy: Proxy) -> None:
    proxy.produce("ways", [{"value": 1}])
    consumer = proxy.consumer("ways")
    answer = proxy.ask("GET", f"{consumer.path}/records", 409, 40903)
    assert "not subscribed" in answer["message"]
    consumer.post("subscription", {}, 409, 40903)
    consumer.post("subscription", {"topics": "ways"}, 422, 422)
    consumer.post("subscription", {"topic_pattern": ["x"]}, 422, 422)
    both = consumer.post("subscription", {"topics": ["ways"], "topic_pattern": "x"}, 409, 40903)
    assert both == {"error_code": 40903, "message": ONE_WAY}
    assert consumer.get("assignments") == {"partitions": []}
    consumer.subscribe("ways")
    assert consumer.get("assignments/") == {"partitions": [place("ways")]}
    assert consumer.post("assignments", {"partitions": [place("ways")]}, 409, 40903)["message"] == ONE_WAY
    assert consumer.post("subscription", {"topic_pattern": "x"}, 409, 40903)["message"] == ONE_WAY
    proxy.ask("DELETE", f"{consumer.path}/subscription", 204)
    consumer.post("assignments", {"partitions": [place("ways")]})
    consumer.post("subscription", {"topics": ["ways"]}, 409, 40903)
    consumer.post("positions", {"offsets": [place("faulty", offset=10)]}, 409, 40903)
    consumer.post("positions", {"offsets": [place("ways", offset=10)]})
    consumer.post("positions", {"timestamps": [place("ways", timestamp="2020-01-01T00:00:00Z")]})
    assert consumer.values(1) == [1]
    for time_ in ("then", "2020-01-01", "2020-01-01T00:00:00"):  # these are of no zone
        consumer.post("positions", {"timestamps": [place("ways", timestamp=time_)]}, 422, 422)
    for wrong in ({"topic": "ways"}, place("ways", 2**31, offset=0), place("ways", offset=2**63 - 1)):
        consumer.post("positions", {"offsets": [wrong]}, 422, 422)
    for wrong in (5, "m" * 4097):
        consumer.post("offsets", {"offsets": [place("ways", offset=0, metadata=wrong)]}, 422, 422)


def test_a_subscription_that_fails_leaves_the_instance_free(server: Running, proxy: Proxy) -> None:
    proxy.produce("free", [{"value": 1}])
    path = f"{server.url}/topics/public/default/taken/subscription/free"
    httpx.post(path, json={"subscription_type": "Shared"}, trust_env=False)
    consumer = proxy.consumer("free")
    consumer.post("subscription", {"topics": ["free", "taken"]}, 409, 40903)
    assert consumer.get("subscription") == {"topics": []}
    consumer.post("assignments", {"partitions": [place("free")]})
    assert consumer.values(1) == [1]


def test_automatic_commits_by_the_name_of_kafkas_clients(proxy: Proxy) -> None:
    proxy.produce("named", [{"value": 1}])
    for number, (option, committed) in enumerate(((False, []), ("true", [("named", 0, 1)]))):
        group = f"named-{number}"
        made = proxy.post(
            f"/consumers/{group}",
            {"format": "json", "auto.offset.reset": "earliest", "enable.auto.commit": option},
        )
        consumer = Consumer(proxy, f"/consumers/{group}/instances/{made['instance_id']}", "json")
        consumer.post("assignments", {"partitions": [place("named")]})
        assert consumer.values(1) == [1]
        assert consumer.records(0) == []
        assert consumer.committed(("named", 0)) == committed
    proxy.post("/consumers/named", {"enable.auto.commit": "perhaps"}, 422, 42204)


def test_a_fetch_waits_for_the_bytes_that_its_instance_names(proxy: Proxy) -> None:
    proxy.produce("bytes", [{"value": 1}])
    consumer = proxy.consumer("bytes", **{"fetch.min.bytes": 20})
    consumer.subscribe("bytes")
    with ThreadPoolExecutor(1) as pool:
        fetched = pool.submit(consumer.records, 60_000)
        time.sleep(0.2)
        assert not fetched.done()
        proxy.produce("bytes", [{"value": "x" * 20}])
        assert [one["value"] for one in fetched.result(30)] == [1, "x" * 20]
    proxy.produce("bytes", [{"value": 2}])
    assert [one["value"] for one in consumer.records(timeout=100)] == [2], "the time is over"
    proxy.produce("bytes", [{"value": 3}])
    assert [one["value"] for one in consumer.records(timeout=30_000, max_bytes=1)] == [3]
    options = {"auto.offset.reset": "latest", "consumer.request.timeout.ms": 1000}
    short = proxy.consumer("bytes-short", **options)
    short.subscribe("bytes")
    began = time.monotonic()
    assert short.records(-1) == [], "a timeout of -1 is the instance's"
    assert 1 <= time.monotonic() - began < 15


def test_requests_without_records_keep_an_instance() -> None:
    with running() as server, Proxy(server.rest_proxy_url) as proxy:
        consumer = proxy.consumer("kept")
        for _ in range(3):
            server.advance(200_000)
            consumer.get("subscription")
        server.advance(300_001)
        proxy.ask("GET", f"{consumer.path}/subscription", 404, 40403)


def test_offsets_of_an_empty_topic(server: Running, proxy: Proxy) -> None:
    httpx.put(f"{server.url}/admin/v2/persistent/public/default/empty", trust_env=False)
    consumer = proxy.consumer("empty")
    consumer.post("assignments", {"partitions": [place("empty")]})
    for offset in (0, 1):
        consumer.post("offsets", {"offsets": [place("empty", offset=offset, metadata="m")]}, 200)
        found = consumer.get("offsets", {"partitions": [place("empty")]})
        assert found == {"offsets": [{**place("empty"), "offset": offset + 1, "metadata": "m"}]}
    consumer.post("offsets", {"offsets": [place("none", offset=0)]}, 404, 40401)
    consumer.post("offsets", {"offsets": [place("empty", 5, offset=0)]}, 404, 40402)


def test_the_format_is_the_instances(proxy: Proxy) -> None:
    proxy.produce("formats", [{"value": 1}])
    consumer = proxy.consumer("formats")
    consumer.subscribe("formats")
    path = f"{consumer.path}/records"
    proxy.ask("GET", path, 406, 40601, headers={"accept": media("avro")})
    proxy.ask("GET", path, 406, 406, headers={"accept": "text/plain"})
    for accept, answered in (
        (media("json"), media("json")),
        ("*/*", media("json")),
        (V2, V2),
        (f"{media('avro')}, {V2}, */*", media("json")),
        ("application/json", "application/json"),
    ):
        answer = proxy.http.get(path, headers={"accept": accept}, params={"timeout": 0})
        assert (answer.status_code, answer.headers["content-type"]) == (200, answered)


def test_a_fetch_waits_for_data_and_no_longer(proxy: Proxy) -> None:
    proxy.produce("waits", [{"value": 0}])
    consumer = proxy.consumer("waits", **{"auto.offset.reset": "latest", "consumer.request.timeout.ms": 700})
    consumer.subscribe("waits")
    for timeout, least in ((300, 0.3), (60_000, 0.7)):
        began = time.monotonic()
        assert consumer.records(timeout) == []
        assert least <= time.monotonic() - began < 5
    began = time.monotonic()
    long = proxy.consumer(
        "waits-long", **{"auto.offset.reset": "latest", "consumer.request.timeout.ms": 30_000}
    )
    long.subscribe("waits")
    timer = threading.Timer(0.3, proxy.produce, ("waits", [{"value": 1}]))
    timer.start()
    assert [one["value"] for one in long.records(30_000)] == [1]
    assert time.monotonic() - began < 10
    timer.join()


def test_a_stopping_server_ends_waits() -> None:
    with ThreadPoolExecutor(1) as pool, ExitStack() as clients:
        with running() as server:
            proxy = clients.enter_context(Proxy(server.rest_proxy_url))
            proxy.produce("stops", [{"value": 1}])
            options = {"auto.offset.reset": "latest", "consumer.request.timeout.ms": 60_000}
            consumer = proxy.consumer("stops", **options)
            consumer.subscribe("stops")
            fetched = pool.submit(consumer.records, 60_000)
            text = "penstock_http_requests_in_progress 2.0"  # the fetch, and this one
            until(lambda: text in httpx.get(f"{server.url}/metrics", trust_env=False).text)
        assert fetched.result(10) == []


def test_another_request_ends_the_wait_of_a_fetch(proxy: Proxy) -> None:
    proxy.produce("ends", [{"value": 1}])
    options = {"auto.offset.reset": "latest", "consumer.request.timeout.ms": 60_000}
    consumer = proxy.consumer("ends", **options)
    consumer.subscribe("ends")
    with ThreadPoolExecutor(1) as pool:
        fetched = pool.submit(consumer.records, 60_000)
        while not fetched.done():
            consumer.post("positions/beginning", {"partitions": [place("ends")]})
        assert len(fetched.result()) <= 1


def test_an_idle_instance_is_closed() -> None:
    with running() as server, Proxy(server.rest_proxy_url) as idle:
        idle.produce("idle", [{"value": 1}])
        first, second = idle.consumer("idle"), idle.consumer("idle")
        first.subscribe("idle")
        server.advance(200_000)
        assert first.values(1) == [1]
        second.subscribe("idle")
        server.advance(299_000)
        assert first.records(0) == []
        server.advance(2_000)
        idle.ask("GET", f"{second.path}/records", 404, 40403)
        assert first.get("assignments") == {"partitions": [place("idle")]}


def test_lists_are_bounded() -> None:
    with (
        running(settings={"limits": {"max_messages_per_request": 2}}) as server,
        Proxy(server.rest_proxy_url) as proxy,
    ):
        consumer = proxy.consumer("g")
        consumer.post("subscription", {"topics": ["a", "b", "c"]}, 413, 413)
        consumer.post("assignments", {"partitions": [place("a")] * 3}, 413, 413)
        consumer.post("offsets", {"offsets": [place("a", offset=0)] * 3}, 413, 413)


def test_instances_are_bounded() -> None:
    settings = {"limits": {"max_rest_consumers": 1}}
    with running(settings=settings) as server, Proxy(server.rest_proxy_url) as proxy:
        consumer = proxy.consumer("g")
        proxy.post("/consumers/g", {}, 429, 42901)
        consumer.delete()
        proxy.consumer("g")


def test_members_share_partitions(server: Running, proxy: Proxy) -> None:
    httpx.put(f"{server.url}/admin/v2/persistent/public/default/shared/partitions", json=4, trust_env=False)
    one, two = proxy.consumer("shared", name="a"), proxy.consumer("shared", name="b")
    one.subscribe("shared")
    two.subscribe("shared")
    parts = [
        each["partition"] for consumer in (one, two) for each in consumer.get("assignments")["partitions"]
    ]
    assert sorted(parts) == [0, 1, 2, 3]
    proxy.produce("shared", [{"value": n, "partition": n} for n in range(4)])
    found = one.values(2), two.values(2)
    assert sorted(found[0] + found[1]) == [0, 1, 2, 3]
    assert all(len(each) == 2 for each in found)
    two.delete()
    assert len(one.get("assignments")["partitions"]) == 4


def test_a_group_is_a_subscription(server: Running, proxy: Proxy) -> None:
    proxy.produce("both", [{"value": 1}, {"value": 2}])
    consumer = proxy.consumer("both")
    consumer.subscribe("both")
    assert consumer.values(2) == [1, 2]
    consumer.post("offsets", {}, 200)
    consumer.delete()
    path = f"{server.url}/topics/public/default/both/subscription/both"
    made = httpx.post(path, json={"subscription_type": "Failover"}, trust_env=False).json()
    proxy.produce("both", [{"value": 3}])
    found = httpx.get(f"{made['base_uri']}/messages", params={"timeout": 5000}, trust_env=False).json()
    assert [one["offset"] for one in found["messages"]] == [2]
    again = proxy.consumer("both")
    httpx.delete(made["base_uri"], trust_env=False)
    httpx.post(path, json={"subscription_type": "Shared"}, trust_env=False)
    again.post("subscription", {"topics": ["both"]}, 409, 40903)


# -- ports, roles


def test_the_proxy_has_its_own_port(server: Running, proxy: Proxy) -> None:
    with Proxy(f"http://127.0.0.1:{server.own_ports[0]}") as own:
        own.produce("port", [{"value": 1}])
        consumer = own.consumer("port", name="x")
        assert consumer.path == "/consumers/port/instances/x"
        consumer.subscribe("port")
        assert consumer.values(1) == [1]
        own.ask("GET", "/rest/topics", 404, 404)
        own.ask("GET", "/admin/v2/tenants", 404, 404)
    settings = {"rest_proxy": {"url": "https://proxy.example/kafka"}}
    with running(settings=settings) as address, Proxy(address.rest_proxy_url) as named:
        made = named.post("/consumers/g%2F1", {"name": "x y"})
        assert made["base_uri"] == "https://proxy.example/kafka/consumers/g%2F1/instances/x%20y"


def test_roles() -> None:
    auth = issuer.settings(audience=AUDIENCE, super_users=("root",), leeway_s=0)
    with running(auth=auth) as server, ExitStack() as stack:
        admin = f"{server.url}/admin/v2/persistent/public/default"
        root = headers_of(token("root"))
        for topic in ("open", "closed"):
            httpx.put(f"{admin}/{topic}", headers=root, trust_env=False)
        for role, topic, actions in (
            ("reader", "open", ["consume"]),
            ("writer", "open", ["produce"]),
            ("other", "closed", ["consume"]),
        ):
            grants = f"{admin}/{topic}/permissions/{role}"
            assert httpx.post(grants, json=actions, headers=root, trust_env=False).status_code == 204

        def proxy_of(role: str | None) -> Proxy:
            headers = None if role is None else headers_of(token(role))
            return stack.enter_context(Proxy(server.rest_proxy_url, headers=headers))

        anyone, reader, writer, third = map(proxy_of, (None, "reader", "writer", "other"))
        anyone.ask("GET", "/topics", 401, 401)
        anyone.post("/consumers/g", {}, 401, 401)
        writer.produce("open", [{"value": 1}])
        reader.post("/topics/open", RECORD, 403, 40301, "json")
        for one in (reader, writer):
            assert one.ask("GET", "/topics") == ["open"]
            one.ask("GET", "/topics/open/partitions/0/offsets")
            for path in ("/topics/closed", "/topics/none", "/topics/closed/partitions"):
                one.ask("GET", path, 403, 40301)
            one.post("/topics/closed", RECORD, 403, 40301, "json")
            one.post("/topics/none", RECORD, 403, 40301, "json")
        consumer = reader.consumer("g", name="mine")
        consumer.post("subscription", {"topics": ["open", "closed"]}, 403, 40301)
        consumer.post("assignments", {"partitions": [place("closed")]}, 403, 40301)
        consumer.post("offsets", {"offsets": [place("closed", offset=0)]}, 403, 40301)
        consumer.post("subscription", {"topic_pattern": ".*"})
        assert consumer.values(1) == [1]
        assert consumer.get("subscription") == {"topics": ["open"]}
        # A pattern goes on without a topic whose permission is revoked.
        second = f"{admin}/second"
        httpx.put(second, headers=root, trust_env=False)
        httpx.post(f"{second}/permissions/reader", json=["consume"], headers=root, trust_env=False)
        until(lambda: consumer.records(100) == [] and len(consumer.get("subscription")["topics"]) == 2)
        httpx.delete(f"{second}/permissions/reader", headers=root, trust_env=False)
        writer.produce("open", [{"value": 2}])
        assert consumer.values(1) == [2]
        assert consumer.get("subscription") == {"topics": ["open"]}
        # Another role does not see the instance, and may use its name.
        third.ask("GET", f"{consumer.path}/records", 404, 40403)
        third.ask("DELETE", consumer.path, 404, 40403)
        writer.post("/consumers/g", {}, 403, 40301)
        other = third.consumer("g", name="mine")
        other.post("subscription", {"topics": ["open"]}, 403, 40301)
        httpx.delete(f"{admin}/open/permissions/reader", headers=root, trust_env=False)
        reader.ask("GET", f"{consumer.path}/records", 403, 40301)


def test_schemas_of_subjects_that_a_role_may_not_see() -> None:
    auth = issuer.settings(audience=AUDIENCE, super_users=("root",), leeway_s=0)
    with running(auth=auth) as server:
        root, mine = headers_of(token("root")), headers_of(token("writer"))
        admin = f"{server.url}/admin/v2/persistent/public/default"
        for topic in ("mine", "theirs"):
            httpx.put(f"{admin}/{topic}", headers=root, trust_env=False)
        grants = f"{admin}/mine/permissions/writer"
        httpx.post(grants, json=["produce", "consume"], headers=root, trust_env=False)
        for name, subject in (("Secret", "theirs-value"), ("Mine", "mine-value")):
            schema = {"type": "record", "name": name, "fields": [{"name": "secret", "type": "int"}]}
            httpx.post(
                f"{server.registry_url}/subjects/{subject}/versions",
                json={"schema": json.dumps(schema)},
                headers=root,
                trust_env=False,
            ).raise_for_status()
        with Proxy(server.rest_proxy_url, headers=mine) as proxy:
            (cluster,) = proxy.ask("GET", "/v3/clusters")["data"]
            path = f"/v3/clusters/{cluster['cluster_id']}/topics/mine/records"
            new = {"type": "AVRO", "schema": '"int"', "data": 1}
            for value in (
                {**new, "subject": "theirs-value"},
                {"subject": "theirs-value", "data": {"secret": 1}},
                {"subject": "theirs-value", "schema_id": 1, "data": {"secret": 1}},
            ):
                answer = proxy.ask("POST", path, json={"value": value})
                assert answer["error_code"] == 40301, answer
            assert proxy.ask("POST", path, json={"value": {"data": {"secret": 1}}})["error_code"] == 200
            assert proxy.ask("POST", path, json={"key": {**new, "subject": "free"}})["error_code"] == 200
            keys = [b64(f"\0\0\0\0{number}\2") for number in ("\1", "\2")]
            proxy.produce("mine", [{"key": one} for one in keys], "binary")
            consumer = proxy.consumer("g", "avro")
            consumer.post("assignments", {"partitions": [place("mine")]})
            consumer.post("positions", {"offsets": [place("mine", offset=2)]})
            assert [one["key"] for one in consumer.records()] == [keys[0], {"secret": 1}]
        versions = f"{server.registry_url}/subjects/theirs-value/versions"
        assert httpx.get(versions, headers=root, trust_env=False).json() == [1]
