"""What is behind the console in the browser: its files, and the operations that only it asks."""

import asyncio
import gzip
import json
from typing import Any

import httpx
import msgspec
import pytest
from tests.support.admin import ADMIN, AdminServer

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.protocols.http.examples import EXAMPLES
from penstock.server.app import build_for
from penstock.server.config import Config, ConsoleSettings
from penstock.server.console.history import PERIOD_MS
from penstock.server.console.topics import LIMIT, ROWS_AT_ONCE
from penstock.testing.clock import settle
from penstock.testing.credentials import Issuer

API = "/console/api"


async def test_the_page_and_its_files() -> None:
    async with AdminServer.open() as server:
        for path in ("/console", "/console/", "/docs"):
            page = await server.client.get(path)
            assert page.status_code == 200
            assert page.headers["content-type"].startswith("text/html")
            policy = page.headers["content-security-policy"]
            assert "script-src 'self'" in policy
            assert "unsafe" not in policy
        script = await server.client.get("/console/static/js/main.js", headers={"accept-encoding": "gzip"})
        assert script.headers["content-encoding"] == "gzip"
        assert script.headers["content-type"].startswith("text/javascript")
        plain = await server.client.get("/console/static/js/main.js", headers={"accept-encoding": "identity"})
        assert plain.content == script.content
        assert gzip.compress(plain.content)  # httpx unpacked the other
        again = await server.client.get(
            "/console/static/js/main.js", headers={"if-none-match": plain.headers["etag"]}
        )
        assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path",
    [
        "nothing.js",
        "../assets.py",
        "..%2fassets.py",
        "js/../../assets.py",
        "js",
        "",
        "/etc/passwd",
        ".hidden",
        "js//main.js",
    ],
)
async def test_nothing_but_its_files(path: str) -> None:
    async with AdminServer.open() as server:
        assert (await server.client.get(f"/console/static/{path}")).status_code == 404


async def test_only_get() -> None:
    async with AdminServer.open() as server:
        for path in ("/console", "/console/static/js/main.js", f"{API}/server"):
            answer = await server.client.post(path)
            assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
        assert (await server.client.head("/console")).content == b""
        await server.get("/console/nothing", 404)


async def test_the_welcome_has_the_addresses_that_lead_here() -> None:
    async with AdminServer.open() as server:
        page = await server.client.get("/", headers={"accept": "text/html", "host": "penstock.internal:81"})
        assert "http://penstock.internal:81/topics/public/default/hello" in page.text
        assert 'href="/console"' in page.text
        assert 'href="/docs"' in page.text
        bad = await server.client.get("/", headers={"accept": "text/html", "host": 'a"><script>'})
        assert "<script>" not in bad.text


async def test_off_by_configuration() -> None:
    async with AdminServer.open() as server:
        app = build_for(server.context, Config(console=ConsoleSettings(enabled=False)))
        assert app.history is None
        transport = httpx.ASGITransport(app.asgi)
        async with httpx.AsyncClient(transport=transport, base_url="http://penstock") as client:
            assert (await client.get("/console")).status_code == 404
            assert (await client.get(f"{API}/server")).status_code == 404
            assert (await client.get("/docs")).status_code == 200
            assert (await client.get("/console/static/js/main.js")).status_code == 200
            assert 'href="/console"' not in (await client.get("/", headers={"accept": "text/html"})).text


async def test_what_the_server_is() -> None:
    async with AdminServer.open() as server:
        said = await server.get(f"{API}/server")
        assert (said["engine"], said["authentication"], said["superuser"], said["role"]) == (
            "embedded",
            False,
            True,
            None,
        )
        assert "offsets" in said["capabilities"]
        assert said["namespaces"] == said["administered"] == ["penstock/system", "public/default"]
        assert said["cluster"] is None
        assert said["limits"]["connections"][1] > 0


async def test_topics_are_searched_sorted_and_paged() -> None:
    async with AdminServer.open() as server:
        for number in range(12):
            await server.put(f"{ADMIN}/topic-{number:02}")
        await server.put(f"{ADMIN}/parts/partitions", 3)
        await server.produce("topic-03", "a", "b")
        await server.produce("topic-07", "a", "b", "c")
        for each in "abcdef":
            await server.produce("parts", each)
        await server.put(f"{ADMIN}/topic-03/subscription/s", "earliest")

        page = await server.get(f"{API}/topics", limit=5)
        assert (page["total"], page["matched"], len(page["topics"])) == (13, 13, 5)
        assert page["topics"][0]["topic"] == "persistent://public/default/parts"
        assert (page["topics"][0]["partitions"], page["topics"][0]["messages"]) == (3, 6)
        rest = await server.get(f"{API}/topics", start=5)
        assert len(rest["topics"]) == 8
        found = await server.get(f"{API}/topics", search="PIC-1")
        assert [row["topic"][-2:] for row in found["topics"]] == ["10", "11"]
        most = await server.get(f"{API}/topics", sort="messages", descending="true", limit=3)
        assert [row["messages"] for row in most["topics"]] == [6, 3, 2]
        behind = await server.get(f"{API}/topics", sort="backlog", descending="true", limit=1)
        assert (behind["topics"][0]["backlog"], behind["topics"][0]["subscriptions"]) == (2, 1)
        assert (await server.get(f"{API}/topics", limit=0))["topics"] == []
        await server.get(f"{API}/topics", 400, sort="colour")
        await server.get(f"{API}/topics", 404, namespace="public/nothing")
        await server.get(f"{API}/topics", 400, unknown="1")


async def test_a_page_of_many_topics_stays_small() -> None:
    async with AdminServer.open() as server:
        for number in range(LIMIT * 2):
            await server.put(f"{ADMIN}/{'long-' * 20}{number}")
        answer = await server.client.get(f"{API}/topics")
        assert len(answer.json()["topics"]) == LIMIT
        assert len(answer.content) < 100_000


async def test_a_cluster_is_asked_for_the_topics_of_a_page_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was deleted meanwhile is left out."""
    asked: list[TopicName] = []
    together = asyncio.Event()

    async def learn(name: TopicName, *, whole: bool) -> None:
        asked.append(name)
        if len(asked) == ROWS_AT_ONCE:
            together.set()
        await together.wait()
        if name.local == "topic-03":
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, "gone")

    async with AdminServer.open() as server:
        for number in range(ROWS_AT_ONCE + 4):
            await server.put(f"{ADMIN}/topic-{number:02}")
        monkeypatch.setattr(server.broker.topics, "learn", learn)
        async with asyncio.timeout(60):
            page = await server.get(f"{API}/topics")
        names = [row["topic"].rpartition("/")[2] for row in page["topics"]]
        assert names == [f"topic-{number:02}" for number in range(ROWS_AT_ONCE + 4) if number != 3]
        assert len(asked) == ROWS_AT_ONCE + 4


async def test_the_history_has_rates_and_latencies() -> None:
    async with AdminServer.open() as server:
        history = server.app.history
        assert history is not None
        await server.produce("t", *"abcdefghij")
        history.look()  # too early
        await server.clock.advance(PERIOD_MS)
        history.look()
        await settle()
        await server.clock.advance(PERIOD_MS)
        await history.sample()
        columns = await server.get(f"{API}/history")
        assert len(columns["at"]) == 2
        assert columns["messages_in"] == [1.0, 0.0]  # ten in ten seconds
        assert columns["requests"][0] > 0
        assert columns["request_p50"][0] <= columns["request_p99"][0]
        later = await server.get(f"{API}/history", since=columns["at"][0])
        assert later["at"] == columns["at"][1:]


async def test_what_pipelines_say() -> None:
    async with AdminServer.open() as server:
        assert (await server.get(f"{API}/pipelines"))["pipelines"] == []
        for event in (
            {"pipeline": "a", "state": "running", "rows": 5},
            {"pipeline": "a", "state": "failed", "error": "no disk"},
        ):
            body = {"messages": [{"value": json.dumps(event)}]}
            await server.post("/topics/penstock/system/pipelines", body, 200)
        (said,) = (await server.get(f"{API}/pipelines"))["pipelines"]
        assert (said["pipeline"], said["state"], said["error"]) == ("a", "failed", "no disk")


async def test_callers_see_what_they_may() -> None:
    issuer = Issuer()
    async with AdminServer.open(auth=issuer.settings(super_users=("root",))) as server:
        headers = {role: {"authorization": f"Bearer {issuer.token(role)}"} for role in ("root", "guest")}

        async def ask(role: str, path: str, status: int = 200, **params: Any) -> Any:
            answer = await server.client.get(path, headers=headers[role], params=params)
            assert answer.status_code == status, answer.text
            return answer.json()

        for name in ("seen", "hidden"):
            assert (await server.client.put(f"{ADMIN}/{name}", headers=headers["root"])).status_code == 204
        granted = await server.client.post(
            f"{ADMIN}/seen/permissions/guest", headers=headers["root"], json=["consume"]
        )
        assert granted.status_code == 204
        assert (await server.client.get(f"{API}/server")).status_code == 401
        assert (await server.client.get("/console")).status_code == 200  # the page holds nothing
        said = await ask("guest", f"{API}/server")
        assert (said["role"], said["superuser"], said["storage"], said["limits"]) == ("guest", False, {}, {})
        assert (said["namespaces"], said["administered"], said["cluster"]) == (["public/default"], [], None)
        page = await ask("guest", f"{API}/topics")
        assert [row["topic"].rpartition("/")[2] for row in page["topics"]] == ["seen"]
        assert page["total"] == 1
        may = await ask("guest", f"{API}/permissions", topic="persistent://public/default/seen")
        assert may == {"produce": False, "consume": True, "admin": False}
        assert await ask("root", f"{API}/permissions", topic="hidden") == dict.fromkeys(may, True)
        await ask("guest", f"{API}/history", 403)
        await ask("guest", f"{API}/pipelines", 403)
        await ask("root", f"{API}/history")


async def test_every_example_of_openapi_is_taken() -> None:
    names = {
        "tenant": "public",
        "namespace": "default",
        "topic": "hello",
        "domain": "persistent",
        "partition": "0",
    }
    names |= {"subscription": "sub", "role": "guest", "writer": "w", "batch": "0"}
    later = (
        "/partitions",
        "/request",
        "/namespaces/{tenant}/{namespace}/",
        "/commit",
        "/cursors",
        "/sizes",
        "/backlogSize",
    )
    async with AdminServer.open() as server:
        await server.produce("hello", "one")
        await server.put(f"{ADMIN}/hello/subscription/sub", "earliest")
        for (method, path), body in EXAMPLES.items():
            if (
                path.endswith(later)
                or "{consumer_id}" in path
                or path == "/admin/v2/namespaces/{tenant}/{namespace}"
            ):
                continue  # they ask for another state of the server; that their shape is right is a test of its own
            answer = await server.client.request(method, path.format(**names), json=body)
            # Some things are there already, or are for another engine: they are not refused for their shape.
            assert answer.status_code < 300 or answer.status_code in (405, 409, 412, 501), (
                f"{method} {path}: {answer.text}"
            )


def test_every_example_has_the_shape_of_its_operation() -> None:
    from penstock.protocols.admin.routes import OPERATIONS as ADMIN_OPERATIONS
    from penstock.protocols.rest.endpoint import OPERATIONS
    from penstock.protocols.rest.stages import OPERATIONS as STAGES

    declared = {(each.method, each.path): each for each in (*OPERATIONS, *STAGES, *ADMIN_OPERATIONS)}
    asked = {key for key, each in declared.items() if each.request is not None}
    assert asked == EXAMPLES.keys()
    for key, body in EXAMPLES.items():
        msgspec.convert(body, declared[key].request)
