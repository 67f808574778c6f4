"""Every endpoint of a server with authentication, each asked once under some credentials."""

import base64
import http.client
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Final

import httpx

import penstock
from penstock.client.errors import AuthenticationError, AuthorizationError
from penstock.pipeline.http.stages import MEDIA
from penstock.testing.credentials import Issuer
from penstock.testing.server import Address
from penstock.wire.batch import pack_plain
from penstock.wire.bulk import batch_entry, pack_sections

AUDIENCE: Final = "these tests"
NAMESPACE: Final = "public/default"
TOPIC: Final = "locked"
FULL: Final = f"persistent://{NAMESPACE}/{TOPIC}"
REST: Final = f"/topics/{NAMESPACE}/{TOPIC}"
SHIPPED: Final = f"/topics/persistent/{NAMESPACE}/{TOPIC}"
ADMIN: Final = f"/admin/v2/persistent/{NAMESPACE}/{TOPIC}"
GRANTS: Final = f"/admin/v2/namespaces/{NAMESPACE}/permissions"

issuer = Issuer()


def token(role: str, **claims: Any) -> str:
    """A token that is right in every way, unless `claims` say otherwise."""
    return issuer.token(role, **{"aud": AUDIENCE, **claims})


class Through(str):
    """A proxy's token, for requests that name an original principal."""

    original: str

    def __new__(cls, given: str, original: str) -> "Through":
        made = super().__new__(cls, given)
        made.original = original
        return made


class Asked:
    """What an endpoint answered: a status as of HTTP, and whatever text."""

    def __init__(self, status: int, text: str = "", headers: Any = None) -> None:
        self.status = status
        self.text = text
        self.headers = headers or {}


Ask = Callable[[Address, str | None], Asked]


def headers_of(given: str | None) -> dict[str, str]:
    if given is None:
        return {}
    return {"Authorization": f"Bearer {given}", **_original(given)}


def _original(given: str | None) -> dict[str, str]:
    return {"X-Original-Principal": given.original} if isinstance(given, Through) else {}


def over_http(method: str, path: str, content: Any = None, kind: str = "application/json") -> Ask:
    body = content if isinstance(content, bytes) or content is None else json.dumps(content).encode()

    def ask(server: Address, given: str | None) -> Asked:
        headers = {**headers_of(given), **({"Content-Type": kind} if body is not None else {})}
        with httpx.Client(trust_env=False) as client:
            answer = client.request(method, server.url + path, content=body, headers=headers)
        return Asked(answer.status_code, answer.text, answer.headers)

    return ask


def staging(server: Address, given: str | None) -> Asked:
    """Stage under a writer of one's own: a writer belongs to the role that staged under it first."""
    writer = sha256((given or "").encode()).hexdigest()[:16]
    return over_http("PUT", f"/stages/{writer}/1/stage/0", _SECTIONS, MEDIA)(server, given)


def upgrade(server: Address, path: str, headers: dict[str, str]) -> Asked:
    """Ask for a WebSocket, and hang up."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request(
            "GET",
            path,
            headers={
                "Connection": "Upgrade",
                "Upgrade": "websocket",
                "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
                **headers,
            },
        )
        response = connection.getresponse()
        text = "" if response.status == 101 else response.read().decode()
        return Asked(response.status, text, response.headers)
    finally:
        connection.close()


def over_websocket(path: str, *, in_query: bool = False) -> Ask:
    def ask(server: Address, given: str | None) -> Asked:
        if not in_query or given is None:
            return upgrade(server, path, headers_of(given))
        return upgrade(server, f"{path}{'&' if '?' in path else '?'}token={given}", _original(given))

    return ask


@contextmanager
def connected(server: Address, given: str | None) -> Iterator[penstock.Client]:
    """Our own client over Pulsar's protocol."""
    authentication = None if given is None else penstock.AuthenticationToken(given)
    client = penstock.Client(
        server.pulsar,
        authentication=authentication,
        operation_timeout_seconds=20,
        original_principal=(given.original or None) if isinstance(given, Through) else None,
    )
    try:
        yield client
    finally:
        client.close()


def over_pulsar(use: Callable[[penstock.Client], object]) -> Ask:
    def ask(server: Address, given: str | None) -> Asked:
        with connected(server, given) as client:
            try:
                use(client)
            except AuthenticationError as error:
                return Asked(401, str(error))
            except AuthorizationError as error:
                return Asked(403, str(error))
        return Asked(200)

    return ask


_MESSAGE: Final = {"messages": [{"value": "hello"}]}
_SECTIONS: Final = b"".join(
    pack_sections(
        [(FULL, [batch_entry(pack_plain([b"hello"]), 1, producer="p", sequence_id=0, publish_time=1)])]
    )
)
_WS: Final = f"persistent/{NAMESPACE}/{TOPIC}"

# By name: how an endpoint is asked, and the action that it takes.
ENDPOINTS: Final[dict[str, tuple[Ask, str]]] = {
    "rest produce": (over_http("POST", REST, _MESSAGE), "produce"),
    "rest produce, shipped": (over_http("POST", SHIPPED, {"messages": [{"payload": "hello"}]}), "produce"),
    "rest produce, to a partition": (over_http("POST", f"{REST}/partitions/0", _MESSAGE), "produce"),
    "rest request": (over_http("POST", f"{REST}/request?timeout=1", {"value": "hello"}), "produce"),
    "rest read": (over_http("GET", f"{REST}/partitions/0/messages"), "consume"),
    "rest offsets": (over_http("GET", f"{REST}/partitions/0/offsets"), "consume"),
    "rest consumer": (
        over_http("POST", f"{REST}/subscription/r", {"subscription_type": "Shared"}),
        "consume",
    ),
    "rest fetch": (over_http("GET", f"{REST}/subscription/kept/consumer/none/messages"), "consume"),
    "rest cursor": (over_http("GET", f"{REST}/subscription/kept/cursor"), "consume"),
    "rest ack": (
        over_http("POST", f"{REST}/subscription/kept/cursor", {"type": "seek", "messageIds": ["earliest"]}),
        "consume",
    ),
    "rest many offsets": (over_http("POST", "/topics/offsets", {"topics": [FULL]}), "consume"),
    "rest offsets of a pattern": (
        over_http("POST", "/topics/offsets", {"patterns": [{"namespace": NAMESPACE, "regex": "lock.*"}]}),
        "consume",
    ),
    "rest many cursors": (
        over_http(
            "POST",
            "/topics/cursors",
            {"subscription": "m", "marks": [{"topic": FULL, "partition": 0, "ledger": 0, "offset": 0}]},
        ),
        "consume",
    ),
    "rest stages": (over_http("POST", "/stages", {"topics": [FULL]}), "produce"),
    "rest stage": (staging, "produce"),
    "rest entries": (over_http("POST", "/entries", _SECTIONS, MEDIA), "produce"),
    "kafka write": (over_http("POST", f"/kafka/topics/{TOPIC}/0", b"hello", "text/plain"), "produce"),
    "kafka read": (over_http("GET", f"/kafka/topics/{TOPIC}/0"), "consume"),
    "kafka topic": (over_http("GET", f"/kafka/topics/{TOPIC}"), "consume"),
    "websocket producer": (over_websocket(f"/ws/v2/producer/{_WS}"), "produce"),
    "websocket producer, by query": (over_websocket(f"/ws/v2/producer/{_WS}", in_query=True), "produce"),
    "websocket consumer": (over_websocket(f"/ws/v2/consumer/{_WS}/w?subscriptionType=Shared"), "consume"),
    "websocket reader": (over_websocket(f"/ws/v2/reader/{_WS}", in_query=True), "consume"),
    "websocket topics": (over_websocket(f"/ws/v3/consumer/w3?topics={FULL}"), "consume"),
    "websocket pattern": (
        over_websocket(f"/ws/v3/consumer/wp?topicsPattern={NAMESPACE}/lock.*", in_query=True),
        "consume",
    ),
    "pulsar producer": (over_pulsar(lambda client: client.create_producer(FULL)), "produce"),
    "pulsar consumer": (
        over_pulsar(lambda client: client.subscribe(FULL, "p", penstock.ConsumerType.Shared)),
        "consume",
    ),
    "pulsar reader": (
        over_pulsar(lambda client: client.create_reader(FULL, penstock.MessageId.earliest)),
        "consume",
    ),
    "pulsar partitions": (over_pulsar(lambda client: client.get_topic_partitions(FULL)), "produce"),
    "lookup": (over_http("GET", f"/lookup/v2/topic/{_WS}"), "produce"),
    "admin partitions": (over_http("GET", f"{ADMIN}/partitions"), "consume"),
    "admin stats": (over_http("GET", f"{ADMIN}/stats"), "consume"),
    "admin subscriptions": (over_http("GET", f"{ADMIN}/subscriptions"), "consume"),
    "admin peek": (over_http("GET", f"{ADMIN}/subscription/kept/position/1"), "consume"),
    "admin skip": (over_http("POST", f"{ADMIN}/subscription/kept/skip_all"), "consume"),
    "admin topics": (over_http("GET", f"/admin/v2/namespaces/{NAMESPACE}/topics"), "produce"),
    "admin schema": (over_http("GET", f"/admin/v2/schemas/{NAMESPACE}/{TOPIC}/schema"), "consume"),
    "admin new schema": (
        over_http("POST", f"/admin/v2/schemas/{NAMESPACE}/{TOPIC}/schema", {"type": "STRING", "schema": ""}),
        "produce",
    ),
    "admin create": (over_http("PUT", ADMIN), "admin"),
    "admin terminate": (over_http("POST", f"{ADMIN.replace(TOPIC, 'none')}/terminate"), "admin"),
    "admin policies": (over_http("GET", f"/admin/v2/namespaces/{NAMESPACE}/deduplication"), "admin"),
    "admin permissions": (over_http("GET", GRANTS), "admin"),
    "admin grant": (over_http("POST", f"{GRANTS}/somebody", ["consume"]), "admin"),
    "admin topic's permissions": (over_http("GET", f"{ADMIN}/permissions"), "admin"),
}
