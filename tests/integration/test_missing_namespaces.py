"""A topic whose namespace nobody created is not found, whoever asks, and nothing comes into being by asking."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pulsar
import pytest
from tests.support.auth import Asked, over_http, over_websocket

import penstock
from penstock.broker.settings import BrokerSettings
from penstock.client.access import Access
from penstock.client.errors import TopicNotFound
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.http.stages import MEDIA, Stages
from penstock.testing.server import Address, launch, running
from penstock.wire.batch import pack_plain
from penstock.wire.bulk import batch_entry, pack_sections

TYPO: Final = "pubic/defalt"
FULL: Final = f"persistent://{TYPO}/x"
REST: Final = f"/topics/{TYPO}/x"
ADMIN: Final = f"/admin/v2/persistent/{TYPO}/x"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """`penstock serve` as it is without any setting."""
    with launch(tmp_path_factory.mktemp("data")) as address:
        yield address


@pytest.fixture(autouse=True)
def nothing_came_into_being(server: Address) -> Iterator[None]:
    yield
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        assert client.get("/admin/v2/tenants").json() == ["penstock", "public"]
        assert client.get("/admin/v2/namespaces/public").json() == ["public/default"]
        assert client.get(f"/admin/v2/persistent/{TYPO}").status_code == 404


def _sections(topic: str) -> bytes:
    entry = batch_entry(pack_plain([b"hello"]), 1, producer="p", sequence_id=0, publish_time=1)
    return b"".join(pack_sections([(topic, [entry])]))


_MESSAGE: Final = {"messages": [{"value": "hello"}]}
_SHIPPED: Final = f"/topics/persistent/{TYPO}/x"

NOT_FOUND: Final = {  # 404 with PIP-64's 40401
    "produce": over_http("POST", REST, _MESSAGE),
    "produce to a partition": over_http("POST", f"{REST}/partitions/0", _MESSAGE),
    "produce, shipped": over_http("POST", _SHIPPED, {"messages": [{"payload": "hello"}]}),
    "produce, non-persistent": over_http(
        "POST", f"/topics/non-persistent/{TYPO}/x", {"messages": [{"payload": "hello"}]}
    ),
    "request": over_http("POST", f"{REST}/request?timeout=1", {"value": "hello"}),
    "read": over_http("GET", f"{REST}/partitions/0/messages"),
    "offsets": over_http("GET", f"{REST}/partitions/0/offsets"),
    "consumer": over_http("POST", f"{REST}/subscription/s", {"subscription_type": "Shared"}),
    "cursor": over_http("GET", f"{REST}/subscription/s/cursor"),
    "stages": over_http("POST", "/stages", {"topics": [FULL]}),
    "a stage": over_http("PUT", "/stages/writer/1/stage/0", _sections(FULL), MEDIA),
    "entries": over_http("POST", "/entries", _sections(FULL), MEDIA),
    "lookup": over_http("GET", f"/lookup/v2/topic/persistent/{TYPO}/x"),
    "partitions": over_http("GET", f"{ADMIN}/partitions?checkAllowAutoCreation=true"),
    "subscription": over_http("PUT", f"{ADMIN}/subscription/s", "earliest"),
    "stats": over_http("GET", f"{ADMIN}/stats"),
    "dead letters": over_http(
        "POST",
        "/topics/public/default/source/subscription/s",
        {"subscription_type": "Shared", "max_redeliver_count": 1, "dead_letter_topic": FULL},
    ),
}


@pytest.mark.parametrize("what", NOT_FOUND)
def test_over_http(server: Address, what: str) -> None:
    answer = NOT_FOUND[what](server, None)
    assert answer.status == 404, answer.text
    body = json.loads(answer.text)
    assert body.get("error_code", 40401) == 40401
    assert f"there is no namespace {TYPO}" in answer.text


def test_the_text_names_the_namespace(server: Address) -> None:
    answer = NOT_FOUND["produce"](server, None)
    assert json.loads(answer.text) == {
        "error_code": 40401,
        "message": f"topic {FULL} does not exist: there is no namespace {TYPO}",
    }


# Pulsar's answers: the namespace, or the tenant, is not there.
ADMINISTERED: Final = {
    "a topic": (over_http("PUT", ADMIN), f"namespace {TYPO} does not exist"),
    "a partitioned topic": (over_http("PUT", f"{ADMIN}/partitions", 3), f"namespace {TYPO} does not exist"),
    "a schema": (
        over_http("POST", f"/admin/v2/schemas/{TYPO}/x/schema", {"type": "STRING", "schema": ""}),
        f"namespace {TYPO} does not exist",
    ),
    "a permission": (
        over_http("POST", f"/admin/v2/namespaces/{TYPO}/permissions/alice", ["consume"]),
        f"namespace {TYPO} does not exist",
    ),
    "a policy": (
        over_http("POST", f"/admin/v2/namespaces/{TYPO}/messageTTL", 10),
        f"namespace {TYPO} does not exist",
    ),
    "a namespace": (over_http("PUT", f"/admin/v2/namespaces/{TYPO}"), "tenant pubic does not exist"),
    "topics": (over_http("GET", f"/admin/v2/namespaces/{TYPO}/topics"), f"namespace {TYPO} does not exist"),
}


@pytest.mark.parametrize("what", ADMINISTERED)
def test_over_the_admin_paths(server: Address, what: str) -> None:
    ask, body = ADMINISTERED[what]
    answer = ask(server, None)
    assert answer.status == 404, answer.text
    assert body in answer.text


_LETTERS: Final = f"maxRedeliverCount=1&deadLetterTopic={FULL}"


@pytest.mark.parametrize(
    "path",
    [
        f"/ws/v2/producer/persistent/{TYPO}/x",
        f"/ws/v2/consumer/persistent/{TYPO}/x/s",
        f"/ws/v2/reader/persistent/{TYPO}/x",
        f"/ws/v2/producer/non-persistent/{TYPO}/x",
        f"/ws/v3/consumer/s?topics={FULL}",
        f"/ws/v2/consumer/persistent/public/default/source/s?subscriptionType=Shared&{_LETTERS}",
    ],
)
def test_over_websocket(server: Address, path: str) -> None:
    answer = over_websocket(path)(server, None)
    # Pulsar answers every failure of a reader with 500.
    assert answer.status == (500 if "/reader/" in path else 404), answer.text
    assert f"there is no namespace {TYPO}" in answer.text


def test_a_pattern_waits_for_its_namespace(server: Address) -> None:
    assert over_websocket(f"/ws/v3/consumer/s?topicsPattern={TYPO}/.*")(server, None).status == 101


OFFICIAL: Final[dict[str, Callable[[Any], object]]] = {
    "producer": lambda client: client.create_producer(FULL),
    "consumer": lambda client: client.subscribe(FULL, "s"),
    "reader": lambda client: client.create_reader(FULL, pulsar.MessageId.earliest),
    "non-persistent": lambda client: client.create_producer(FULL.replace("persistent", "non-persistent")),
}
OURS: Final = {
    **OFFICIAL,
    "reader": lambda client: client.create_reader(FULL, penstock.MessageId.earliest),
}


@pytest.mark.parametrize("what", OFFICIAL)
@pytest.mark.parametrize("over", ["pulsar", "url"])
def test_the_official_client(server: Address, what: str, over: str) -> None:
    client = pulsar.Client(
        getattr(server, over),
        operation_timeout_seconds=20,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    # Over HTTP its lookup takes every refusal for a lost connection.
    expected = pulsar.TopicNotFound if over == "pulsar" else pulsar.ConnectError
    try:
        with pytest.raises(expected):
            OFFICIAL[what](client)
    finally:
        client.close()


@pytest.mark.parametrize("what", OURS)
@pytest.mark.parametrize("over", ["pulsar", "url"])
def test_our_client(server: Address, what: str, over: str) -> None:
    with (
        penstock.Client(getattr(server, over), operation_timeout_seconds=20) as client,
        pytest.raises(TopicNotFound, match="no namespace pubic/defalt"),
    ):
        OURS[what](client)


def test_what_the_spark_sink_asks_first(server: Address) -> None:
    with Stages(Access(url=server.url)) as stages, pytest.raises(PenstockError) as refused:
        stages.open_topics([TopicName.parse(FULL)])
    assert refused.value.kind is ErrorKind.TOPIC_NOT_FOUND


# -- the command line


def cli(server: Address, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        env={**os.environ, "PENSTOCK_URL": server.url},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("produce", FULL, "hello"),
        ("read", FULL),
        ("read", FULL, "--follow"),
        ("consume", FULL, "-s", "s"),
        ("consume", FULL, "-s", "s", "--create"),
        ("request", FULL, "hello"),
        ("topics", "create", FULL),
        ("topics", "describe", FULL),
        ("topics", "list", TYPO),
    ],
    ids=" ".join,
)
def test_the_command_line(server: Address, arguments: tuple[str, ...]) -> None:
    done = cli(server, *arguments)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert f"namespace {TYPO}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [("read",), ("consume", "-s", "s"), ("consume", "-s", "s", "--follow")])
def test_a_topic_that_is_not_there_is_told_of(server: Address, command: tuple[str, ...]) -> None:
    done = cli(server, command[0], "missing", *command[1:])
    assert (done.returncode, done.stdout) == (1, "")
    said = "penstock: topic persistent://public/default/missing does not exist; penstock topics list shows those of a namespace\n"
    assert done.stderr == said
    assert httpx.get(f"{server.url}/admin/v2/persistent/public/default/missing").status_code == 404


def test_consume_creates_it_when_told_so(server: Address) -> None:
    done = cli(server, "consume", "made", "-s", "s", "--create")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    found = httpx.get(f"{server.url}/admin/v2/persistent/public/default/made").json()
    assert found["subscriptions"] == ["s"]


# -- what exists all the same


def test_namespaces_that_always_exist(server: Address) -> None:
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        for namespace in ("public/default", "penstock/system"):
            path = f"/topics/{namespace}/x"
            assert client.post(path, json=_MESSAGE).status_code == 200
            # Deleting them empties them.
            assert client.delete(f"/admin/v2/namespaces/{namespace}?force=true").status_code == 204
            assert client.get(f"/admin/v2/persistent/{namespace}").json() == []
            assert client.post(path, json=_MESSAGE).status_code == 200
            client.delete(f"/admin/v2/namespaces/{namespace}?force=true").raise_for_status()


def test_kafka_s_topics_are_those_of_the_default_namespace(server: Address) -> None:
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        headers = {"content-type": "text/plain"}
        assert client.post("/kafka/topics/words/0", content=b"hello", headers=headers).status_code == 204
        assert client.post(f"/kafka/topics/{TYPO}/x/0", content=b"hello", headers=headers).status_code == 404


# -- otherwise


def test_created_by_an_administrator_it_is_there(tmp_path: Path) -> None:
    with launch(tmp_path) as address, httpx.Client(base_url=address.url, trust_env=False) as client:
        assert client.put(f"/admin/v2/namespaces/{TYPO}").status_code == 404
        assert client.put("/admin/v2/tenants/pubic").status_code == 204
        assert client.put(f"/admin/v2/namespaces/{TYPO}").status_code == 204
        assert client.post(REST, json=_MESSAGE).status_code == 200
        # A namespace that is deleted is not there any more, though requests keep producers.
        assert client.delete(f"/admin/v2/namespaces/{TYPO}?force=true").status_code == 204
        assert client.post(REST, json=_MESSAGE).status_code == 404


def test_the_setting_brings_back_namespaces_on_the_way_and_they_stay(tmp_path: Path) -> None:
    with launch(tmp_path, "--set", "broker.auto_create_namespaces=true") as address:
        assert NOT_FOUND["produce"](address, None).status == 200
        with penstock.Client(address.pulsar) as client:
            client.create_producer("persistent://acme/shop/orders").send(b"tea")
        done: Asked = over_http("PUT", "/admin/v2/namespaces/other/made")(address, None)
        assert done.status == 204
    with launch(tmp_path) as address:  # as before the setting, or after an upgrade
        assert NOT_FOUND["produce"](address, None).status == 200
        assert over_http("POST", f"/topics/{TYPO}/another", _MESSAGE)(address, None).status == 200
        with penstock.Client(address.pulsar) as client:
            reader = client.create_reader("persistent://acme/shop/orders", penstock.MessageId.earliest)
            assert reader.read_next(30_000).data() == b"tea"
        assert over_http("POST", "/topics/acme/shoop/orders", _MESSAGE)(address, None).status == 404


def test_without_topics_on_the_way_the_setting_creates_nothing() -> None:
    strict = BrokerSettings(auto_create_topics=False, auto_create_namespaces=True)
    with running(broker=strict) as address:
        assert NOT_FOUND["produce"](address, None).status == 404
        assert httpx.get(f"{address.url}/admin/v2/namespaces/{TYPO}/topics").status_code == 404
