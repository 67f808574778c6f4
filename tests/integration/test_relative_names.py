"""Names that are steps in a path are refused wherever a client may name something, and change nothing."""

import http.client
import itertools
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

import penstock
from penstock.client.errors import InvalidTopicName
from penstock.testing.server import Address, running

# As they stand in a path. A topic's partition is of a topic, and a part between slashes may be taken for a segment.
NAMES = (".", "..", "%2e", "%2E%2e", ".%2E", "..-partition-0", "x%2F..%2Fy", "%2e%2e%2Fx")
ENTITIES = NAMES[:5]  # tenants and namespaces: what else they may not be is another rule

UPGRADE = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}
MESSAGES: Any = {"messages": [{"value": "x"}]}
ADMIN, SHORT, LONG = (
    "/admin/v2/persistent/public/default",
    "/topics/public/default",
    "/topics/persistent/public/default",
)
WS, KAFKA, LOOKUP = (
    "/ws/v2/{}/persistent/public/default",
    "/kafka/topics",
    "/lookup/v2/topic/persistent/public/default",
)

TOPICS = [
    ("POST", f"{SHORT}/NAME", MESSAGES),
    ("POST", f"{SHORT}/NAME/partitions/0", MESSAGES),
    ("GET", f"{SHORT}/NAME/partitions/0/messages", None),
    ("POST", f"{SHORT}/NAME/subscription/s", {}),
    ("POST", f"{SHORT}/NAME/subscription/s/cursor", {}),
    ("POST", f"{LONG}/NAME", MESSAGES),
    ("POST", f"{LONG}/NAME/partitions/0", MESSAGES),
    ("POST", "/topics/non-persistent/public/default/NAME", MESSAGES),
    ("GET", f"{KAFKA}/NAME", None),
    ("GET", f"{KAFKA}/NAME/0", None),
    ("POST", f"{KAFKA}/NAME/0", "x"),
    ("PUT", f"{ADMIN}/NAME", None),
    ("PUT", f"{ADMIN}/NAME/partitions", 2),
    ("DELETE", f"{ADMIN}/NAME?force=true", None),
    ("PUT", f"{ADMIN}/NAME/subscription/s", "earliest"),
    ("GET", f"{ADMIN}/NAME/stats", None),
    ("POST", f"{ADMIN}/NAME/permissions/role", ["produce"]),
    ("POST", "/admin/v2/schemas/public/default/NAME/schema", {"type": "STRING", "schema": ""}),
    ("GET", f"{LOOKUP}/NAME", None),
]
SUBSCRIPTIONS = [
    ("POST", f"{SHORT}/t/subscription/NAME", {}),
    ("POST", f"{LONG}/t/subscription/NAME", {}),
    ("GET", f"{SHORT}/t/subscription/NAME/cursor", None),
    ("POST", f"{SHORT}/t/subscription/NAME/cursor", {}),
    ("GET", f"{SHORT}/t/subscription/NAME/consumers/c/messages", None),
    ("DELETE", f"{SHORT}/t/subscription/NAME/consumers/c", None),
    ("PUT", f"{ADMIN}/t/subscription/NAME", "earliest"),
    ("DELETE", f"{ADMIN}/t/subscription/NAME?force=true", None),
    ("POST", f"{ADMIN}/t/subscription/NAME/skip_all", None),
    ("POST", f"{ADMIN}/t/subscription/NAME/resetcursor", "earliest"),
    ("POST", "/admin/v2/namespaces/public/default/unsubscribe/NAME", None),
    ("POST", "/admin/v2/namespaces/public/default/clearBacklog/NAME", None),
]
PLACES = [
    ("POST", "/topics/public/NAME/t", MESSAGES),
    ("POST", "/topics/NAME/default/t", MESSAGES),
    ("POST", "/topics/persistent/NAME/default/t", MESSAGES),
    ("PUT", "/admin/v2/tenants/NAME", {}),
    ("DELETE", "/admin/v2/tenants/NAME?force=true", None),
    ("PUT", "/admin/v2/namespaces/public/NAME", {}),
    ("DELETE", "/admin/v2/namespaces/public/NAME?force=true", None),
    ("PUT", "/admin/v2/persistent/public/NAME/t", None),
    ("GET", "/lookup/v2/topic/persistent/NAME/default/t", None),
]
SOCKETS = [
    f"{WS.format('producer')}/NAME",
    f"{WS.format('reader')}/NAME",
    f"{WS.format('consumer')}/NAME/s",
    f"{WS.format('consumer')}/t/NAME",
    "/ws/v3/consumer/NAME?topics=t",
]
IN_QUERIES = [
    "/ws/v3/consumer/s?topics=public/default/NAME",
    f"{WS.format('consumer')}/t/s?maxRedeliverCount=2&deadLetterTopic=public/default/NAME",
]
# Names in bodies, where nothing is encoded.
BODIES = [
    (
        "POST",
        f"{SHORT}/t/subscription/s",
        {"max_redeliver_count": 2, "dead_letter_topic": "NAME"},
    ),
    ("POST", "/stages/w/1/commit", {"stages": [], "topics": ["public/default/NAME"]}),
    ("POST", "/stages", {"topics": ["public/default/NAME"]}),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    with running() as address:
        assert ask(address, "POST", f"{SHORT}/t", MESSAGES)[0] == 200
        assert ask(address, "PUT", f"{ADMIN}/t/subscription/kept", "earliest")[0] == 204
        yield address


@pytest.fixture(autouse=True)
def unchanged(server: Address) -> Iterator[None]:
    """What there is, which nothing that is refused adds to or takes from."""

    def found() -> list[object]:
        paths = ("/admin/v2/tenants", "/admin/v2/namespaces/public", ADMIN, f"{ADMIN}/t/subscriptions")
        non_persistent = "/admin/v2/non-persistent/public/default"
        return [json.loads(ask(server, "GET", path)[1]) for path in (*paths, non_persistent)]

    before = found()
    assert before[-2] == ["kept"]
    yield
    assert found() == before


def ask(server: Address, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str]:
    """A request whose path is sent as it is: most clients take dots out of it."""
    url = urlsplit(server.url)
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=60)
    content = (
        None if body is None else body if isinstance(body, str) and "kafka" in path else json.dumps(body)
    )
    sort = {"content-type": "text/plain" if "kafka" in path else "application/json"} if content else {}
    try:
        connection.request(method, path, content, {**sort, **headers})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


CASES = [
    *itertools.product(TOPICS, NAMES),
    *itertools.product(SUBSCRIPTIONS, NAMES),
    *itertools.product(PLACES, ENTITIES),
]


@pytest.mark.parametrize(("request_", "name"), CASES, ids=lambda one: str(one[:2]) if len(one) == 3 else one)
def test_over_http(server: Address, request_: tuple[str, str, object], name: str) -> None:
    method, path, body = request_
    status, text = ask(server, method, path.replace("NAME", name), body)
    assert status == 412, text
    assert "name" in text
    if "/admin/" not in path and "/lookup/" not in path:
        assert json.loads(text)["error_code"] == 41201


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("path", [*SOCKETS, *IN_QUERIES])
def test_over_websocket(server: Address, path: str, name: str) -> None:
    status, text = ask(server, "GET", path.replace("NAME", name), None, **UPGRADE)
    assert status == 400, text
    assert "are not names" in text


@pytest.mark.parametrize("name", [".", "..", "..-partition-0", "x/../y"])
@pytest.mark.parametrize(("method", "path", "body"), BODIES)
def test_in_bodies(server: Address, method: str, path: str, body: object, name: str) -> None:
    named = json.loads(json.dumps(body).replace("NAME", name))
    status, text = ask(server, method, path, named)
    assert (status, json.loads(text)["error_code"]) == (412, 41201), text


@pytest.mark.parametrize("name", [".", "..", "x/../y"])
def test_over_the_binary_protocol(server: Address, name: str) -> None:
    """By clients that check nothing themselves: topics are checked before anything is sent."""
    with penstock.Client(server.pulsar) as client:
        for make in (client.create_producer, lambda topic: client.subscribe(topic, "s")):
            with pytest.raises(InvalidTopicName, match="are not names"):
                make(f"public/default/{name}")
        with pytest.raises(InvalidTopicName, match="are not names"):
            client.subscribe("not-made", name)
        with pytest.raises(InvalidTopicName, match="are not names"):
            client.create_producer("not-made", initial_subscription_name=name)


def test_names_with_dots_are_names(server: Address) -> None:
    """Three, and those within a name; a topic may be called what means a dot when it is decoded twice."""
    for name in ("...", ".x", "a..b", "..a", "%2e%2e"):
        path = quote(name, safe="")
        assert ask(server, "POST", f"{SHORT}/{path}/subscription/{path}", {})[0] == 200
        assert ask(server, "DELETE", f"{ADMIN}/{path}?force=true")[0] == 204
