"""What is passed on to a cluster's admin REST: the bytes that it is sent, by whom, and what comes back."""

import re
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, Self, cast
from urllib.parse import quote, unquote, urlsplit

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.admin_stub import AdminStub, Given, StubCluster, admin_stub
from tests.support.server import ThreadedServer

from penstock.broker.namespaces import TenantInfo
from penstock.model.names import NamespaceName
from penstock.server.app import build_for
from penstock.testing.credentials import Issuer

ISSUER: Final = Issuer()
ORDERS: Final = "persistent://acme/shop/orders"
SLASHED: Final = "persistent://acme/shop/a/b c"
LOOKUP: Final = "/lookup/v2/topic/persistent/acme/shop/orders"
SCHEMAS: Final = "/admin/v2/schemas/acme/shop/orders"
DOTS: Final = "/.." * 7


class ForwardingServer(ThreadedServer):
    """Over memory, with a cluster whose admin REST is a stub. `user` may consume one topic, `boss` administers acme."""

    cluster: StubCluster

    @classmethod
    @contextmanager
    def before(cls, stub: AdminStub) -> Iterator[Self]:
        grants = {ORDERS: {"user": ("consume",)}, SLASHED: {"user": ("consume",)}}
        auth = ISSUER.settings(super_users=("root",), permissions=grants)
        with cls.running(auth=auth, stub=stub) as server:
            yield server

    def __init__(self, *args: Any, stub: AdminStub, **options: Any) -> None:
        super().__init__(*args, **options)
        self.cluster = StubCluster(stub.url)
        cast(Any, self.broker).cluster = self.cluster
        self.app = build_for(self.context)

    @classmethod
    @asynccontextmanager
    async def open(cls, *args: Any, **options: Any) -> AsyncIterator[Self]:
        async with super().open(*args, **options) as server:
            await server.broker.namespaces.set_tenant("acme", TenantInfo(("boss",)), new=True)
            await server.broker.namespaces.set_tenant("other", TenantInfo(("chief",)), new=True)
            await server.broker.namespaces.create(NamespaceName("acme", "shop"))
            yield server

    async def disconnect(self) -> None:
        await self.cluster.close()


@pytest.fixture(scope="module")
def stub() -> Iterator[AdminStub]:
    with admin_stub() as made:
        yield made


@pytest.fixture(scope="module")
def server(stub: AdminStub) -> Iterator[ForwardingServer]:
    with ForwardingServer.before(stub) as made:
        yield made


@pytest.fixture(autouse=True)
def _quiet(stub: AdminStub) -> None:
    stub.sent.clear()
    stub.answer = lambda _: Given()


class Answered(msgspec.Struct):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


def ask(
    server: ForwardingServer, role: str, method: str, target: str, body: bytes = b"", **headers: str
) -> Answered:
    """One request whose target no client touches; `_` in the names of headers is a hyphen."""
    lines = [
        f"{method} {target} HTTP/1.1",
        "Host: localhost",
        *(() if role == "" else (f"Authorization: Bearer {ISSUER.token(role)}",)),
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
        f"Content-Length: {len(body)}",
    ]
    if "Connection" not in headers:
        lines.append("Connection: close")
    with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        data = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, content = data.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    found = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
    return Answered(int(first.split(" ")[1]), found, content)


# -- paths


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "POST"])
@pytest.mark.parametrize(
    "target",
    [
        f"{LOOKUP}{DOTS}/admin/v2/tenants/acme",
        f"{LOOKUP}{DOTS.replace('..', '%2e%2e')}/admin/v2/tenants/acme",
        f"{LOOKUP}{DOTS.replace('..', '.%2E')}/admin/v2/tenants/acme",
        f"{LOOKUP}/..%2f..%2f..%2f..%2f..%2f..%2f..%2fadmin/v2/tenants/acme",
        f"{LOOKUP}/%252e%252e/%252e%252e/admin/v2/tenants/acme",
        f"{SCHEMAS}/../../../../tenants/acme",
        f"{SCHEMAS}/schema/../../../../../tenants/other",
        "/admin/v2/namespaces/acme/../../tenants/other",
        "/admin/v2/namespaces/acme/../other/shop",
        "/admin/v2/namespaces/acme/shop/./retention",
        "/admin/v2/namespaces/acme//shop",
        "/admin/v2/namespaces/acme/shop/",
        "/admin/v2/namespaces/acme/shop;x=y/retention",
        "/admin/v2/namespaces/acme/shop%3bx/retention",
        "/admin/v2/namespaces/acme\\..\\other/shop",
        "/admin/v2/namespaces/acme%5c..%5cother/shop",
        "/admin/v2/namespaces/acme%2fshop/retention",
        "/admin/v2/namespaces/acme/shop%2fretention",
        "/admin/v2/namespaces/acme/shop/permissions/a%2f..%2fb",
        "/admin/v2/namespaces/acme/shop/property/%00/x",
        "/admin/v2/namespaces/acme/shop/property/%250a/x",
        "/admin/v2/namespaces/acme/shop/%zz",
        "/admin/v2/namespaces/acme/shop/%ff",
        "/admin/v2/persistent/acme/shop/orders/subscription/%2e%2e",
        "/admin/v2/persistent/acme/shop/orders/subscription/%252e%252e",
        "/admin/v2/persistent/acme/shop/orders/subscription/..",
        f"http://localhost{LOOKUP}{DOTS}/admin/v2/tenants/acme",
    ],
)
@pytest.mark.parametrize("role", ["user", "boss", "root"])
def test_a_path_that_could_mean_another_is_refused(
    server: ForwardingServer, stub: AdminStub, method: str, target: str, role: str
) -> None:
    answer = ask(server, role, method, target, Content_Type="application/json")
    assert (answer.status, answer.json["reason"]) == (400, answer.json["message"])
    assert stub.sent == []


LOOKED_UP: Final = [
    LOOKUP,
    f"{LOOKUP}/bundle",
    "/lookup/v2/topic/persistent/acme/shop/%6frders",
    "/lookup/v2/topic/persistent/acme/shop/a%2Fb%20c",
    "/lookup/v2/topic/persistent/acme/shop/a%2fb+c",
    "/admin/v2/persistent/acme/shop/orders/partitions",
    f"{SCHEMAS}/schema",
    f"{SCHEMAS}/schema/0",
    f"{SCHEMAS}/schemas",
    f"{SCHEMAS}/metadata",
    "/admin/v2/schemas/acme/shop/a%2Fb+c/schema",
    f"http://localhost{LOOKUP}",
]


@pytest.mark.parametrize("target", LOOKED_UP)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_who_uses_a_topic_looks_it_up(
    server: ForwardingServer, stub: AdminStub, method: str, target: str
) -> None:
    assert ask(server, "user", method, target).status == 200
    path = urlsplit(target).path
    segments = [quote(unquote(one.replace("+", " ")), safe="") for one in path[1:].split("/")]
    assert [(one.method, one.target) for one in stub.sent] == [(method, "/" + "/".join(segments))]


@pytest.mark.parametrize("target", LOOKED_UP)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_who_looks_up_changes_nothing(
    server: ForwardingServer, stub: AdminStub, method: str, target: str
) -> None:
    status = 405 if "/lookup/" in target else 403
    assert ask(server, "user", method, target).status == status
    assert stub.sent == []


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", f"{LOOKUP}/bundle/more"),
        ("GET", f"{LOOKUP}/elsewhere"),
        ("GET", "/lookup/v2/topic/persistent/acme/shop"),
        ("GET", "/lookup/v2/topic/persistent/acme/shop/another"),
        ("GET", "/lookup/v2/destination/persistent/acme/shop/orders"),
        ("GET", f"{SCHEMAS}/elsewhere"),
        ("GET", f"{SCHEMAS}/schema/0/more"),
        ("GET", "/admin/v2/schemas/acme/shop/another/schema"),
        ("POST", f"{SCHEMAS}/schema"),
        ("POST", f"{SCHEMAS}/compatibility"),
        ("GET", "/admin/v2/persistent/acme/shop/orders/stats"),
        ("GET", "/admin/persistent/acme/shop/orders/partitions"),
        ("GET", "/admin/v3/persistent/acme/shop/orders/partitions"),
        ("GET", "/admin/v4/persistent/acme/shop/orders/partitions"),
        ("GET", "/admin"),
        ("GET", "/lookup"),
    ],
)
def test_who_uses_a_topic_is_refused_what_is_not_of_its_lookup(
    server: ForwardingServer, stub: AdminStub, method: str, target: str
) -> None:
    assert ask(server, "user", method, target).status == 403
    assert stub.sent == []


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PROPFIND"])
def test_methods_that_are_no_operations_are_refused(
    server: ForwardingServer, stub: AdminStub, method: str
) -> None:
    answer = ask(server, "root", method, "/admin/v2/clusters")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS")
    assert stub.sent == []


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        # Pulsar decodes subscriptions twice.
        ("subscription/a%252Fb", "subscription/a%2Fb"),
        ("subscription/a%2Bb", "subscription/a%20b"),
        ("subscription/a%252Bb", "subscription/a%252Bb"),
        ("subscription/a%25252Fb", "subscription/a%25252Fb"),
        ("a+b/dispatchRate", "a%20b/dispatchRate"),
        ("a%2Bb/dispatchRate", "a%2Bb/dispatchRate"),
    ],
)
def test_a_subscription_is_the_one_that_pulsar_would_read(
    server: ForwardingServer, stub: AdminStub, sent: str, seen: str
) -> None:
    base = "/admin/v2/persistent/acme/shop/orders"
    assert ask(server, "boss", "DELETE", f"{base}/{sent}").status == 200
    assert [one.target for one in stub.sent] == [f"{base}/{seen}"]


# -- superusers and administrators of tenants

SUPERUSERS: Final = [
    ("PUT", "/admin/v2/tenants/acme"),
    ("POST", "/admin/v2/tenants/acme"),
    ("DELETE", "/admin/v2/tenants/acme"),
    ("GET", "/admin/v2/tenants"),
    ("GET", "/admin/v2/clusters/standalone"),
    ("PUT", "/admin/v2/namespaces/acme/shop/unload"),
    ("PUT", "/admin/v2/namespaces/acme/shop/0x00000000_0xffffffff/unload"),
    ("PUT", "/admin/v2/namespaces/acme/shop/0x00000000_0xffffffff/split"),
    ("POST", "/admin/v2/namespaces/acme/shop/delayedDelivery"),
    ("DELETE", "/admin/v2/namespaces/acme/shop/delayedDelivery"),
    ("POST", "/admin/v2/namespaces/acme/shop/persistence/bookieAffinity"),
    ("GET", "/admin/v2/namespaces/acme/shop/persistence/bookieAffinity"),
    ("DELETE", "/admin/v2/namespaces/acme/shop/persistence/bookieAffinity"),
    ("POST", "/admin/v2/namespaces/acme/shop/migration"),
    ("GET", "/admin/v2/namespaces/acme/antiAffinity/retention"),
    ("POST", "/admin/v2/namespaces/grantPermissionsOnTopics"),
    ("POST", "/admin/v2/namespaces/revokePermissionsOnTopics"),
    ("GET", "/admin/v2/namespaces/acme/shop/unheard-of"),
    ("PATCH", "/admin/v2/namespaces/acme/shop/retention"),
    ("GET", "/admin/v2/resource-quotas/acme/shop/0x00000000_0xffffffff"),
    ("GET", "/admin/v3/functions/acme/shop"),
    ("GET", "/admin/v3/packages/function/acme/shop"),
]


@pytest.mark.parametrize(("method", "path"), SUPERUSERS)
def test_what_pulsar_keeps_for_superusers(
    server: ForwardingServer, stub: AdminStub, method: str, path: str
) -> None:
    assert ask(server, "boss", method, path).status == 403
    assert stub.sent == []
    assert ask(server, "root", method, path).status == 200
    assert [(one.method, one.target) for one in stub.sent] == [(method, path)]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/tenants/acme"),
        ("GET", "/namespaces/acme"),
        ("PUT", "/namespaces/acme/new"),
        ("POST", "/namespaces/acme/shop/retention"),
        ("POST", "/namespaces/acme/shop/permissions/subscription/a%2Fb"),
        ("POST", "/namespaces/acme/shop/subscriptionAuthMode"),
        ("DELETE", "/persistent/acme/shop/orders"),
        ("PUT", "/persistent/acme/shop/orders/unload"),
        ("DELETE", "/non-persistent/acme/shop/orders/subscription/s"),
        ("DELETE", "/schemas/acme/shop/orders/schema"),
    ],
)
def test_what_is_the_tenants(server: ForwardingServer, stub: AdminStub, method: str, path: str) -> None:
    assert ask(server, "boss", method, f"/admin/v2{path}").status == 200
    assert [(one.method, one.target) for one in stub.sent] == [(method, f"/admin/v2{path}")]
    other = f"/admin/v2{path.replace('acme', 'other')}"
    assert ask(server, "boss", method, other).status == 403
    assert ask(server, "user", method, f"/admin/v2{path}").status == 403
    assert len(stub.sent) == 1


# -- any path

_PART: Final = st.sampled_from(
    [
        *("admin", "lookup", "v2", "v3", "topic", "tenants", "namespaces", "schemas", "persistent"),
        *("acme", "other", "shop", "orders", "another", "partitions", "bundle", "schema", "subscription"),
        *("unload", "retention", "permissions", "antiAffinity", "0x00000000_0xffffffff", "delayedDelivery"),
        *("..", ".", "", "%2e%2e", "%2E.", "%252e%252e", "%25252e%25252e", "..%2f..", "%2f", "%2F..%2F"),
        *("%5c..", "\\", ";", "orders;x", "%3b", "+", "a+b", "%00", "%0a", "%zz", "%ff", "caf%C3%A9", "#x"),
        *("%61cme", "%6frders", "ORDERS", "acme%2fshop", "orders%23", "orders%3f", "*", "@", "http:"),
    ]
)
_BASE: Final = st.sampled_from(
    [
        LOOKUP,
        SCHEMAS,
        f"{SCHEMAS}/schema",
        "/lookup/v2/topic/persistent/acme/shop",
        "/admin/v2/persistent/acme/shop",
        "/admin/v2/persistent/acme/shop/orders",
        "/admin/v2/persistent/acme/shop/orders/subscription",
        "/admin/v2/namespaces/acme",
        "/admin/v2/namespaces/acme/shop",
        "/admin/v2/tenants/acme",
        "/admin/v2",
        "",
    ]
)
_TARGET: Final = st.builds(
    lambda prefix, base, parts, query: prefix + base + "".join(f"/{part}" for part in parts) + query,
    st.sampled_from(["", "", "", "http://localhost", "//"]),
    _BASE,
    st.lists(_PART, max_size=9),
    st.sampled_from(["", "", "?a=b%2F..%2F&token=x", "?/../../admin", "#/../x", "?x=#y"]),
)
_METHOD: Final = st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
_USERS: Final = re.compile(
    r"/lookup/v2/topic/persistent/acme/shop/orders(/bundle)?"
    r"|/admin/v2/persistent/acme/shop/orders/partitions"
    r"|/admin/v2/schemas/acme/shop/orders/(schema(/[^/]+)?|schemas|metadata|version)"
)
_BOSSES: Final = re.compile(
    r"/lookup/v2/topic/(non-)?persistent/acme/[^/]+/[^/]+(/bundle)?"
    r"|/admin/v2/((non-)?persistent|namespaces|schemas)/acme(/.*)?"
    r"|/admin/v2/tenants/acme"
)
_SUPERS: Final = re.compile(
    r".*/namespaces/[^/]+/[^/]+(/0x\w+)?/(unload|split)|.*/bookieAffinity|.*/namespaces/[^/]+/antiAffinity/.*"
)


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(method=_METHOD, target=_TARGET, role=st.sampled_from(["user", "boss", ""]))
@example(method="DELETE", target=f"{LOOKUP}{DOTS}/admin/v2/persistent/acme/shop/orders", role="user")
@example(method="GET", target=LOOKUP, role="user")
def test_what_the_cluster_is_sent_is_what_was_allowed(
    server: ForwardingServer, stub: AdminStub, method: str, target: str, role: str
) -> None:
    stub.sent.clear()
    server.cluster.targets.clear()
    answer = ask(server, role, method, target)
    assert answer.status != 500
    paths = [one.target.partition("?")[0] for one in stub.sent]
    assert paths == [one.path for _, one in server.cluster.targets]
    assert [one.method for one in stub.sent] == [asked for asked, _ in server.cluster.targets]
    for one, path in zip(stub.sent, paths, strict=True):
        assert one.method == method
        assert role != ""
        for segment in path[1:].split("/"):
            decoded = unquote(segment)
            assert quote(decoded, safe="") == segment
            while True:  # however often it is decoded
                assert decoded not in ("", ".", "..")
                assert not set(decoded) & {"\\", ";", "\x00", "\n"}
                if unquote(decoded) == decoded:
                    break
                decoded = unquote(decoded)
        assert (_USERS if role == "user" else _BOSSES).fullmatch(path), path
        assert not _SUPERS.fullmatch(path), path
        if "/lookup/" in path or role == "user":
            assert method in ("GET", "HEAD") or (method == "POST" and path.endswith("/version"))
        if path.startswith("/admin/v2/tenants"):
            assert method in ("GET", "HEAD")
        assert "token" not in one.target.partition("?")[2]


# -- credentials


def test_what_is_the_callers_stays_here(server: ForwardingServer, stub: AdminStub) -> None:
    headers = {
        "Accept": "text/plain",
        "Content_Type": "application/json",
        "Cookie": "session=1",
        "Connection": "close, X-Named, traceparent",
        "X_Named": "1",
        "X_Other": "1",
        "X_Original_Principal": "root",
        "X_Pulsar_Auth_Method_Name": "basic",
        "Proxy_Authorization": "Basic eDp5",
        "Keep_Alive": "timeout=5",
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "tracestate": "a=b",
    }
    body = b'{"retentionTimeInMinutes": 1}'
    path = "/admin/v2/namespaces/acme/shop/retention"
    answer = ask(server, "root", "POST", f"{path}?force=true&token=t&%74oken=u&x=a+b", body, **headers)
    assert answer.status == 200
    (sent,) = stub.sent
    assert sent.target == f"{path}?force=true&x=a%20b"
    assert sent.body == body
    assert sent.headers.pop("host") == stub.url.removeprefix("http://")
    assert sent.headers.pop("user-agent")
    assert sent.headers == {
        "authorization": "Bearer secret",
        "accept": "text/plain",
        "accept-encoding": sent.headers["accept-encoding"],
        "connection": "keep-alive",
        "content-length": str(len(body)),
        "content-type": "application/json",
        "tracestate": "a=b",
    }


def test_a_token_in_the_query_admits_and_is_not_sent(server: ForwardingServer, stub: AdminStub) -> None:
    assert ask(server, "", "GET", f"{LOOKUP}?authoritative=true&token={ISSUER.token('user')}").status == 200
    assert [one.target for one in stub.sent] == [f"{LOOKUP}?authoritative=true"]


def test_what_is_of_the_brokers_connection_stays_there(server: ForwardingServer, stub: AdminStub) -> None:
    stub.answer = lambda _: Given(
        headers=[
            ("Content-Type", "application/json"),
            ("Connection", "keep-alive, X-Named"),
            ("X-Named", "1"),
            ("Set-Cookie", "a=b"),
            ("X-Pulsar-PROPERTY", "{}"),
        ]
    )
    answer = ask(server, "root", "GET", "/admin/v2/clusters")
    assert not {"x-named", "set-cookie"} & answer.headers.keys()
    assert answer.headers["x-pulsar-property"] == "{}"


# -- refusals of the cluster

PAGE: Final = b"""<html>
<head>
<meta http-equiv="Content-Type" content="text/html;charset=ISO-8859-1"/>
<title>Error 405 Method Not Allowed</title>
</head>
<body><h2>HTTP ERROR 405 Method Not Allowed</h2>
<table>
<tr><th>URI:</th><td>/admin/v2/clusters</td></tr>
<tr><th>STATUS:</th><td>405</td></tr>
<tr><th>MESSAGE:</th><td>%s</td></tr>
<tr><th>SERVLET:</th><td>org.glassfish.jersey.servlet.ServletContainer-654b899f</td></tr>
</table>
<hr/><a href="https://jetty.org/">Powered by Jetty:// 9.4.58.v20250814</a><hr/>

</body>
</html>
"""


@pytest.mark.parametrize(
    ("status", "body", "code", "message"),
    [
        (405, PAGE % b"Method Not Allowed", 40501, "the cluster answers: Method Not Allowed"),
        (404, PAGE % b"Not &lt;here&gt;\n  at all", 40400, "the cluster answers: Not <here> at all"),
        (
            500,
            b"<html><head><title>Error 500 It broke</title></head></html>",
            50001,
            "the cluster answers: It broke",
        ),
        (
            400,
            b"<h1>Bad Message 400</h1><pre>reason: Bad Request</pre>",
            40001,
            "the cluster answers: Bad Request",
        ),
        (503, b"<p>upstream <b>away</b></p>", 50301, "the cluster answers: upstream away"),
        (503, b"<title>" + b" " * 65_000, 50301, "the cluster answers: Service Unavailable"),
        (503, b"<pre>" + b" " * 65_000 + b"x", 50301, "the cluster answers: x"),
        (405, b"", 40501, "the cluster answers: Method Not Allowed"),
        (418, b"x" * 100_000, 40001, "the cluster answers: " + "x" * 500),
    ],
)
def test_an_error_page_becomes_json(
    server: ForwardingServer, stub: AdminStub, status: int, body: bytes, code: int, message: str
) -> None:
    kept = ("Allow", "GET,OPTIONS")
    stub.answer = lambda _: Given(status, body, [("Content-Type", "text/html;charset=iso-8859-1"), kept])
    answer = ask(server, "root", "PATCH", "/admin/v2/clusters")
    assert answer.status == status
    assert (answer.headers["content-type"], answer.headers["allow"]) == ("application/json", "GET,OPTIONS")
    assert answer.json == {"error_code": code, "message": message, "reason": message}


def test_json_of_the_cluster_is_not_touched(server: ForwardingServer, stub: AdminStub) -> None:
    stub.answer = lambda _: Given(409, b'{"reason":"This topic already exists"}')
    answer = ask(server, "root", "PUT", "/admin/v2/persistent/acme/shop/orders")
    assert (answer.status, answer.body) == (409, b'{"reason":"This topic already exists"}')
