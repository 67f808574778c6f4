"""What an engine does not have is one error at every endpoint: 501/50101 over HTTP."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.support.server import RunningServer
from tests.unit.protocols.binary.handlers import sessions

from penstock.broker.broker import Broker
from penstock.model.errors import ErrorKind
from penstock.protocols.rest.entries import MEDIA
from penstock.wire.batch import pack_plain
from penstock.wire.bulk import batch_entry, pack_sections
from penstock.wire.pulsar_pb2 import CommandError, CommandWatchTopicList

pytestmark = pytest.mark.anyio

TOPIC = "persistent/public/default/orders"


@contextmanager
def without(broker: Broker, part: str) -> Iterator[None]:
    """The broker of an engine that does not have this part."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker, part, None)
        yield


@pytest.mark.parametrize(
    ("part", "method", "path", "said"),
    [
        ("staging", "GET", "/stages", "staged publishing"),
        ("staging", "GET", "/stages/w", "staged publishing"),
        ("staging", "DELETE", "/stages/w/0", "staged publishing"),
        ("staging", "DELETE", "/stages/w", "staged publishing"),
        ("administration", "DELETE", f"/admin/v2/{TOPIC}", "administration of topics"),
        ("administration", "PUT", f"/admin/v2/{TOPIC}/unload", "administration of topics"),
        ("administration", "DELETE", "/admin/v2/namespaces/public/other", "administration of topics"),
        ("policies", "DELETE", f"/admin/v2/{TOPIC}/policies", "policies of its own"),
        ("policies", "GET", f"/admin/v2/{TOPIC}/retention", "policies of its own"),
    ],
)
async def test_a_part_that_is_absent_over_http(part: str, method: str, path: str, said: str) -> None:
    async with RunningServer.open() as server:
        assert (await server.client.put(f"/admin/v2/{TOPIC}")).status_code == 204
        assert (await server.client.put("/admin/v2/namespaces/public/other")).status_code == 204
        with without(server.broker, part):
            answer = await server.client.request(method, path)
        assert answer.status_code == 501, answer.text
        assert said in answer.text


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", f"/admin/v2/{TOPIC}/subscription/s", {"group": "orders-app"}),
        (
            "POST",
            "/topics/public/default/orders/subscription/s",
            {"initial_position": {"group": "orders-app"}},
        ),
    ],
)
async def test_an_engine_without_consumer_groups(method: str, path: str, body: dict[str, object]) -> None:
    async with RunningServer.open() as server:
        assert (await server.client.put(f"/admin/v2/{TOPIC}")).status_code == 204
        answer = await server.client.request(method, path, json=body)
        assert answer.status_code == 501, answer.text
        assert "the engine behind this server has no consumer groups" in answer.text
        assert (await server.client.get(f"/admin/v2/{TOPIC}/subscriptions")).json() == []
        moved = await server.client.post(f"/admin/v2/{TOPIC}/subscription/s/resetcursor", json={"group": "g"})
        assert moved.status_code == 400, moved.text


async def test_a_group_needs_a_durable_subscription_and_a_name() -> None:
    async with RunningServer.open() as server:
        for wanted in ({"durable": False}, {"initial_position": {"group": ""}}):
            body = {"initial_position": {"group": "orders-app"}, **wanted}
            answer = await server.client.post("/topics/public/default/orders/subscription/s", json=body)
            assert answer.status_code == 400, answer.text


async def test_the_code_of_an_absent_part() -> None:
    async with RunningServer.open() as server:
        with without(server.broker, "staging"):
            body = (await server.client.get("/stages")).json()
        assert body["error_code"] == ErrorKind.NOT_SUPPORTED.codes.code == 50101


async def test_entries_are_appended_without_staging() -> None:
    """What needs no stage works in an engine that has none."""
    async with RunningServer.open() as server:
        entry = batch_entry(pack_plain([b"a", b"b"]), 2, producer="p", sequence_id=0, publish_time=1)
        body = b"".join(pack_sections([("persistent://public/default/orders", [entry])]))
        with without(server.broker, "staging"):
            answer = await server.client.post("/entries", content=body, headers={"content-type": MEDIA})
        assert answer.status_code == 200, answer.text
        assert answer.json()["results"][0]["messages"] == 2


async def test_watches_that_are_absent_in_pulsars_protocol() -> None:
    async with sessions() as (one,):
        await one.connect()
        watch = CommandWatchTopicList(
            request_id=1, watcher_id=5, namespace="public/default", topics_pattern="public/default/.*"
        )
        with without(one.bench.broker, "watch"):
            answer = await one.ask(watch)
        assert isinstance(answer, CommandError)
        assert "no watches of topics" in answer.message
