"""The cluster's admin REST as the engine asks it: redirects, refusals, and what is passed on."""

from collections.abc import Callable, Iterator

import httpx
import pytest
from tests.support.admin_stub import CREDENTIALS, AdminStub, Given, Sent, admin_stub

from penstock.client.admin_requests import REDIRECTS_MAX, ask
from penstock.client.errors import ConnectError
from penstock.engines.pulsar.admin import Admin, _refusal
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.target import Target

HERE = Target.of("admin", "v2", "here", "a b+c/d")
PATH = "/admin/v2/here/a%20b%2Bc%2Fd"


@pytest.fixture
def stub() -> Iterator[AdminStub]:
    with admin_stub() as made:
        yield made


@pytest.fixture
def owner() -> Iterator[AdminStub]:
    with admin_stub() as made:
        yield made


def redirecting(location: Callable[[Sent], str]) -> Callable[[Sent], Given]:
    return lambda sent: Given(307, b"", [("Location", location(sent))])


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("path", [PATH, "/admin/v2/here/a+b%2Bc%2Fd"])
async def test_a_redirect_keeps_method_body_and_credentials(
    stub: AdminStub, owner: AdminStub, method: str, path: str
) -> None:
    stub.answer = redirecting(lambda _: f"{owner.url}{path}?a=b%2F&authoritative=true")
    owner.answer = lambda _: Given(200, b"x", [("X-Pulsar-PROPERTY", '{"a":"b"}')])
    admin = Admin(stub.url, CREDENTIALS, False, 30)
    sent = [(b"authorization", b"Bearer of the caller"), (b"content-type", b"application/json")]
    answer = await admin.forward(method, HERE, [("a", "b/")], sent, b"\x00body")
    await admin.close()
    assert (answer.status, answer.body) == (200, b"x")
    assert (b"X-Pulsar-PROPERTY", b'{"a":"b"}') in answer.headers
    (first,), (second,) = stub.sent, owner.sent
    assert first.target == f"{PATH}?a=b%2F"
    assert second.target == f"{PATH}?a=b%2F&authoritative=true"
    for one in (first, second):
        assert (one.method, one.headers["authorization"], one.body) == (method, "Bearer secret", b"\x00body")


@pytest.mark.parametrize(
    "location",
    [
        "/admin/v2/elsewhere",
        f"{PATH}/more",
        f"/x/..{PATH}/../..",
        "/admin/v2/here/a%20b+c%2Fd",
        "/admin/v2/here/a%20b%2Bc/d",
        "ftp://127.0.0.1/",
        "http://[",
    ],
)
async def test_a_redirect_to_another_path_is_not_followed(stub: AdminStub, location: str) -> None:
    stub.answer = redirecting(lambda _: location)
    admin = Admin(stub.url, CREDENTIALS, False, 30)
    with pytest.raises(PenstockError) as refused:
        await admin.call("DELETE", HERE)
    await admin.close()
    assert refused.value.kind is ErrorKind.UNAVAILABLE
    assert len(stub.sent) == 1


async def test_redirects_come_to_an_end(stub: AdminStub) -> None:
    stub.answer = redirecting(lambda sent: sent.target)
    admin = Admin(stub.url, CREDENTIALS, False, 30)
    with pytest.raises(ConnectError, match="redirects"):
        await admin.get(HERE)
    await admin.close()
    assert len(stub.sent) == REDIRECTS_MAX


@pytest.mark.parametrize(("first", "second", "followed"), [("https", "http", False), ("http", "https", True)])
async def test_credentials_do_not_leave_tls(first: str, second: str, followed: bool) -> None:
    asked: list[tuple[str, str]] = []

    def broker(request: httpx.Request) -> httpx.Response:
        asked.append((str(request.url), request.headers["authorization"]))
        if request.url.scheme == first:
            return httpx.Response(307, headers={"location": f"{second}://other:8443{PATH}"})
        return httpx.Response(200)

    async with httpx.AsyncClient(transport=httpx.MockTransport(broker)) as http:
        asking = ask(http, "GET", f"{first}://one:1", HERE, headers={"authorization": "secret"})
        if followed:
            assert (await asking).status_code == 200
        else:
            with pytest.raises(ConnectError, match=f"from {first} to {second}"):
                await asking
    urls = [f"{first}://one:1{PATH}", *([f"{second}://other:8443{PATH}"] if followed else [])]
    assert asked == [(url, "secret") for url in urls]


async def test_a_path_that_the_client_would_change_is_not_sent() -> None:
    def broker(_: httpx.Request) -> httpx.Response:
        raise AssertionError("it was sent")

    async with httpx.AsyncClient(transport=httpx.MockTransport(broker)) as http:
        for segments in (("a", "..", "b"), ("a", ".")):
            with pytest.raises(ConnectError, match="would be changed"):
                await ask(http, "GET", "http://one:1", Target(segments), headers={})


STATUS: list[tuple[int, bytes, ErrorKind, str]] = [
    (401, b'{"reason": "r"}', ErrorKind.FORBIDDEN, "does not allow it to this server: r"),
    (403, b'{"reason": "r"}', ErrorKind.FORBIDDEN, "does not allow it to this server: r"),
    (401, b"<html>no</html>", ErrorKind.UNAVAILABLE, "the credentials of this server (engine.token)"),
    (404, b'{"reason": "r"}', ErrorKind.NOT_FOUND, "r"),
    (412, b'{"reason": "r"}', ErrorKind.BAD_PARAMETER, "r"),
    (500, b'{"reason": "r"}', ErrorKind.UNAVAILABLE, "r"),
]


@pytest.mark.parametrize(("status", "body", "kind", "text"), STATUS)
async def test_refusals(stub: AdminStub, status: int, body: bytes, kind: ErrorKind, text: str) -> None:
    stub.answer = lambda _: Given(status, body)
    admin = Admin(stub.url, CREDENTIALS, False, 30)
    with pytest.raises(PenstockError) as refused:
        await admin.get(HERE)
    await admin.close()
    assert (refused.value.kind, text in refused.value.message) == (kind, True)


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (404, "Topic not found", ErrorKind.TOPIC_NOT_FOUND),
        (409, "This topic already exists", ErrorKind.ALREADY_EXISTS),
        (412, "Topic name is not valid", ErrorKind.BAD_PARAMETER),
        (412, "Failed to find ownership for topic:persistent://a/b/c", ErrorKind.UNAVAILABLE),
        (503, "Service Unavailable", ErrorKind.UNAVAILABLE),
        (500, "Not enough non-faulty bookies available", ErrorKind.UNAVAILABLE),
    ],
)
def test_kinds_of_refusals(status: int, reason: str, kind: ErrorKind) -> None:
    error = _refusal(httpx.Response(status, json={"reason": reason}), ErrorKind.TOPIC_NOT_FOUND)
    assert error.kind is kind
    assert error.message == f"the cluster refuses it with status {status}: {reason}"
