"""What permissions mean: lists, patterns, dead letters, replies, tenants, topics; and how long they last."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pulsar
import pytest
import websockets
from tests.support.auth import AUDIENCE, GRANTS, headers_of, issuer, token, upgrade
from tests.support.websocket import base64

from penstock.testing.server import Address, running

BOUND_S = 90.0
TOPICS = "/admin/v2/persistent/public/default"


@contextmanager
def serving(folder: Path | None = None) -> Iterator[Address]:
    with running(
        folder, auth=issuer.settings(audience=AUDIENCE, super_users=("root",), leeway_s=0)
    ) as address:
        yield address


@pytest.fixture
def server() -> Iterator[Address]:
    with serving() as address:
        yield address


def as_(role: str, server: Address) -> httpx.Client:
    return httpx.Client(base_url=server.url, headers=headers_of(token(role)), trust_env=False)


def grant(server: Address, path: str, *actions: str, status: int = 204) -> None:
    with as_("root", server) as root:
        answer = root.post(path, json=list(actions))
        assert answer.status_code == status, answer.text


def make(server: Address, *topics: str) -> None:
    with as_("root", server) as root:
        for topic in topics:
            assert root.put(f"{TOPICS}/{topic}").status_code == 204


# -- the admin paths


def test_granting_and_revoking(server: Address) -> None:
    make(server, "t")
    with as_("root", server) as root:
        assert root.get(GRANTS).json() == {}
        grant(server, f"{GRANTS}/alice", "consume", "produce")
        grant(server, f"{GRANTS}/spark%2Fjobs", "sources")  # Pulsar's, and means nothing here
        assert root.get(GRANTS).json() == {"alice": ["produce", "consume"], "spark/jobs": ["sources"]}
        grant(server, f"{GRANTS}/alice", "consume")  # in place of the others
        assert root.get(GRANTS).json()["alice"] == ["consume"]
        own = f"{TOPICS}/t/permissions"
        grant(server, f"{own}/alice", "produce")
        grant(server, f"{own}/bob", "consume")
        assert root.get(own).json() == {
            "alice": ["produce", "consume"],
            "bob": ["consume"],
            "spark/jobs": ["sources"],
        }
        assert root.delete(f"{own}/alice").status_code == 204
        assert root.get(own).json()["alice"] == ["consume"]
        assert root.delete(f"{own}/alice").status_code == 412
        assert root.delete(f"{GRANTS}/alice").status_code == 204
        assert "alice" not in root.get(GRANTS).json()
        assert root.delete(f"{GRANTS}/nobody").status_code == 204
        refused = root.post(f"{GRANTS}/alice", json=["consume", "fly"])
        assert refused.status_code == 400
        assert "'fly'" in refused.json()["message"]
        assert root.post(f"{GRANTS}/alice", json={"consume": True}).status_code == 400
        assert root.post("/admin/v2/namespaces/no/where/permissions/alice", json=[]).status_code == 404
        assert "alice" not in root.get(GRANTS).json()


def test_an_administrator_of_a_namespace_has_that_one(server: Address) -> None:
    with as_("root", server) as root:
        assert root.put("/admin/v2/tenants/acme").status_code == 204
        assert root.put("/admin/v2/namespaces/acme/shop").status_code == 204
        assert root.put("/admin/v2/namespaces/acme/bank").status_code == 204
    grant(server, "/admin/v2/namespaces/acme/shop/permissions/boss", "admin")
    with as_("boss", server) as boss:
        assert (
            boss.post("/admin/v2/namespaces/acme/shop/permissions/clerk", json=["consume"]).status_code == 204
        )
        assert boss.put("/admin/v2/persistent/acme/shop/t").status_code == 204
        assert boss.post("/topics/acme/shop/t", json={"messages": [{"value": "x"}]}).status_code == 200
        assert boss.get("/admin/v2/namespaces/acme").json() == ["acme/shop"]
        for path in ("/admin/v2/namespaces/acme/bank/permissions/boss", f"{GRANTS}/boss"):
            assert boss.post(path, json=["admin"]).status_code == 403
        for path in ("/admin/v2/tenants", "/admin/v2/tenants/acme", "/admin/v2/namespaces/public"):
            assert boss.get(path).status_code == 403
        assert boss.put("/admin/v2/namespaces/acme/new").status_code == 403


def test_an_administrator_of_a_tenant_has_all_of_it(server: Address) -> None:
    info = {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}
    with as_("root", server) as root, as_("boss", server) as boss:
        assert root.put("/admin/v2/tenants/acme", json=info).status_code == 204
        assert root.get("/admin/v2/tenants/acme").json() == info
        assert boss.put("/admin/v2/namespaces/acme/new").status_code == 204
        assert boss.post("/topics/acme/new/t", json={"messages": [{"value": "x"}]}).status_code == 200
        assert boss.put("/admin/v2/namespaces/other/new").status_code == 403
        assert boss.post("/admin/v2/tenants/acme", json=info).status_code == 403
        assert root.post("/admin/v2/tenants/acme", json={"adminRoles": []}).status_code == 204
        assert boss.get("/topics/acme/new/t/partitions/0/offsets").status_code == 403


def test_a_topic_of_ones_own(server: Address) -> None:
    make(server, "mine", "others")
    grant(server, f"{TOPICS}/mine/permissions/alice", "produce", "consume")
    with as_("alice", server) as alice:
        assert (
            alice.post("/topics/public/default/mine", json={"messages": [{"value": "x"}]}).status_code == 200
        )
        assert alice.get("/topics/public/default/mine/partitions/0/offsets").status_code == 200
        assert alice.get("/topics/public/default/others/partitions/0/offsets").status_code == 403
        # Lists are of what may be seen.
        mine = ["persistent://public/default/mine"]
        assert alice.get("/admin/v2/namespaces/public/default/topics").json() == mine
        assert alice.get(TOPICS).json() == mine
        assert alice.get("/kafka/topics").json() == ["mine"]
        assert alice.get("/kafka", headers={"Accept": "text/html"}).text.count("others") == 0
        assert alice.delete(f"{TOPICS}/mine").status_code == 403
    with as_("root", server) as root:
        # A topic that comes later under the name begins without them.
        assert root.delete(f"{TOPICS}/mine").status_code == 204
    make(server, "mine")
    with as_("alice", server) as alice:
        assert alice.get("/topics/public/default/mine/partitions/0/offsets").status_code == 403


def test_partitions_have_their_topics_permissions(server: Address) -> None:
    with as_("root", server) as root:
        assert root.put(f"{TOPICS}/wide/partitions", json=2).status_code == 204
    grant(server, f"{TOPICS}/wide/permissions/alice", "consume")
    with as_("alice", server) as alice:
        assert alice.get("/topics/public/default/wide/partitions/1/offsets").status_code == 200
        assert alice.get("/topics/public/default/wide-partition-1/partitions/0/offsets").status_code == 200


def test_permissions_are_kept(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        make(server, "t")
        grant(server, f"{GRANTS}/alice", "consume")
        grant(server, f"{TOPICS}/t/permissions/bob", "consume")
        with as_("root", server) as root:
            root.put("/admin/v2/tenants/acme", json={"adminRoles": ["boss"]})
    with serving(tmp_path) as server:
        for role in ("alice", "bob"):
            with as_(role, server) as client:
                assert client.get("/topics/public/default/t/partitions/0/offsets").status_code == 200
        with as_("boss", server) as boss:
            assert boss.put("/admin/v2/namespaces/acme/new").status_code == 204


# -- patterns


async def test_a_pattern_has_what_may_be_consumed(server: Address) -> None:
    make(server, "one", "two")
    for topic in ("one", "three"):
        await asyncio.to_thread(grant, server, f"{TOPICS}/{topic}/permissions/alice", "consume")
    url = f"{server.ws}/ws/v3/consumer/s?topicsPattern=public/default/.*&subscriptionInitialPosition=Earliest"
    async with asyncio.timeout(BOUND_S):
        async with websockets.connect(url, additional_headers=headers_of(token("alice"))) as socket:
            with as_("root", server) as root:
                for topic in ("two", "one", "four", "three"):  # two of them come now
                    body = {"messages": [{"value": topic}]}
                    answer = await asyncio.to_thread(root.post, f"/topics/public/default/{topic}", json=body)
                    assert answer.status_code == 200
            seen = [json.loads(await socket.recv())["payload"] for _ in range(2)]
            assert sorted(seen) == sorted((base64("one"), base64("three")))
            await socket.send(json.dumps({"type": "isEndOfTopic"}))
            assert "endOfTopic" in json.loads(await socket.recv())
    with as_("root", server) as root:
        for topic, subscriptions in (("one", 1), ("two", 0), ("three", 1), ("four", 0)):
            stats = root.get(f"{TOPICS}/{topic}/stats").json()
            assert len(stats["subscriptions"]) == subscriptions, topic


def test_a_pattern_of_the_official_client(server: Address) -> None:
    import re

    make(server, "one", "two")
    grant(server, f"{TOPICS}/one/permissions/alice", "consume")
    client = pulsar.Client(
        server.pulsar,
        authentication=pulsar.AuthenticationToken(token("alice")),
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    try:
        consumer = client.subscribe(
            re.compile("persistent://public/default/.*"),
            "s",
            initial_position=pulsar.InitialPosition.Earliest,
        )
        with as_("root", server) as root:
            for topic in ("two", "one"):
                root.post(f"/topics/public/default/{topic}", json={"messages": [{"value": topic}]})
        assert consumer.receive(30_000).value() == b"one"
        with pytest.raises(pulsar.Timeout):
            consumer.receive(300)
    finally:
        client.close()


# -- dead letters and replies


def test_dead_letters_go_where_one_may_produce(server: Address) -> None:
    make(server, "t")
    grant(server, f"{TOPICS}/t/permissions/alice", "consume")
    headers = headers_of(token("alice"))
    consumer = "/ws/v2/consumer/persistent/public/default/t/s?maxRedeliverCount=1&subscriptionType=Shared"
    v3 = "/ws/v3/consumer/s?topics=t&maxRedeliverCount=1"
    rest = "/topics/public/default/t/subscription/s"
    with as_("alice", server) as alice:
        for letters, said in (("", "t-s-DLQ"), ("graveyard", "graveyard")):
            more = f"&deadLetterTopic={letters}" if letters else ""
            for path in (consumer, v3):
                refused = upgrade(server, path + more, headers)
                assert (refused.status, said in refused.text) == (403, True)
            body = {"max_redeliver_count": 1, **({"dead_letter_topic": letters} if letters else {})}
            answer = alice.post(rest, json=body)
            assert (answer.status_code, said in answer.text) == (403, True)
        grant(server, f"{TOPICS}/t-s-DLQ/permissions/alice", "produce")
        assert upgrade(server, consumer, headers).status == 101
        assert upgrade(server, f"{consumer}&deadLetterTopic=graveyard", headers).status == 403
        assert (
            alice.post(rest, json={"max_redeliver_count": 1, "subscription_type": "Shared"}).status_code
            == 200
        )


def test_only_who_received_a_request_may_answer_it(server: Address) -> None:
    for role in ("asker", "answerer", "intruder"):
        grant(server, f"{GRANTS}/{role}", "produce", "consume")
    rest = "/topics/public/default/questions"
    with as_("answerer", server) as answerer, as_("intruder", server) as intruder:
        made = answerer.post(f"{rest}/subscription/s", json={"subscription_type": "Shared"}).json()
        other = intruder.post(f"{rest}/subscription/s", json={"subscription_type": "Shared"}).json()
        fetch = made["base_uri"].removeprefix(server.url) + "/messages"
        # Somebody else's consumer is nobody's business.
        assert intruder.get(fetch).status_code == 404
        assert intruder.delete(fetch.removesuffix("/messages")).status_code == 404
        assert intruder.delete(other["base_uri"].removeprefix(server.url)).status_code == 204
        other = intruder.post(f"{rest}/subscription/other").json()

        async def ask() -> str:
            headers = headers_of(token("asker"))
            async with httpx.AsyncClient(base_url=server.url, headers=headers, trust_env=False) as asker:
                path, content = f"{rest}/request?timeout=60000", {"value": "6 * 7?"}
                asked = asyncio.gather(asker.post(path, json=content, timeout=BOUND_S))
                got = await asyncio.to_thread(answerer.get, f"{fetch}?timeout=50000")
                (message,) = got.json()["messages"]

                async def reply(client: httpx.Client, text: str) -> dict[str, object]:
                    content = base64(text)
                    ids = [{"messageId": message["messageId"], "replyContent": content}]
                    body = {"type": "individual", "messageIds": ids}
                    answer = await asyncio.to_thread(client.post, f"{rest}/subscription/s/cursor", json=body)
                    found: dict[str, object] = answer.json()["messageIds"][0]
                    return found

                assert "error" in await reply(intruder, "43")
                assert (await reply(answerer, "42"))["reply"] == "ok"
                (answer,) = await asked
                assert answer.status_code == 200, answer.text
                return str(answer.text)

        assert base64("42") in asyncio.run(ask())


def test_the_systems_namespace_is_closed(server: Address) -> None:
    grant(server, f"{GRANTS}/alice", "produce", "consume", "admin")
    body = {"messages": [{"key": "p", "value": "{}"}]}
    with as_("alice", server) as alice, as_("root", server) as root:
        assert alice.post("/topics/penstock/system/pipelines", json=body).status_code == 403
        assert root.post("/topics/penstock/system/pipelines", json=body).status_code == 200
        grant(server, "/admin/v2/persistent/penstock/system/pipelines/permissions/alice", "produce")
        assert alice.post("/topics/penstock/system/pipelines", json=body).status_code == 200
