"""Before a cluster, what a role may do is learned with a topic: it counts for the request that names the topic first."""

from collections.abc import Iterator
from typing import Any, cast

import httpx
import msgspec
import pytest
from tests.support.server import ThreadedServer

from penstock.broker.namespaces import TenantInfo
from penstock.engines.kafka.framing import Framing
from penstock.engines.kafka.naming import Naming
from penstock.engines.kafka.schema_registry.formats import KafkaRecordFormats
from penstock.model.names import NamespaceName, TopicName
from penstock.model.policy import NamespacePolicies
from penstock.testing.clock import ManualClock
from penstock.testing.credentials import Issuer

ISSUER = Issuer()
SHOP = NamespaceName("acme", "shop")
NAME = "persistent://acme/shop/orders"


class NoIds:
    """A registry without ids."""

    def framing(self, topic: TopicName) -> Framing:
        return Framing(topic, ManualClock(), keyed=False, own=True)


@pytest.fixture
def server() -> Iterator[ThreadedServer]:
    """`user` is granted everything in the namespace as it is learned; `guest` is configured to consume, and what is learned
    leaves the subscription `s` to `user`."""
    auth = ISSUER.settings(permissions={"acme/shop": {"guest": ("consume",)}})
    with ThreadedServer.running(auth=auth) as server:
        namespaces, topics = server.broker.namespaces, cast(Any, server.broker.topics)

        async def prepare() -> None:
            await namespaces.set_tenant("acme", TenantInfo(), new=True)
            await namespaces.create(SHOP)
            await server.broker.topics.create(TopicName.parse(NAME), 0)

        def granted(policies: NamespacePolicies) -> NamespacePolicies:
            return msgspec.structs.replace(
                policies, permissions={"user": ("produce", "consume")}, subscription_roles={"s": ("user",)}
            )

        async def learn(name: TopicName | NamespaceName, *, whole: bool = False) -> None:
            await namespaces.change(SHOP, granted)

        cast(Any, server.broker).record_formats = KafkaRecordFormats(Naming({}), cast(Any, NoIds()))
        server.run(prepare())
        topics.learn = topics.learn_names = learn
        yield server


def post(server: ThreadedServer, role: str, path: str, body: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {ISSUER.token(role)}"}
    return httpx.post(server.url + path, json=body, headers=headers, trust_env=False)


MARK = {"subscription": "s", "marks": [{"topic": NAME, "partition": -1, "ledger": 1, "offset": 0}]}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/topics/offsets", {"topics": [NAME]}),
        ("/topics/offsets", {"patterns": [{"namespace": "acme/shop", "regex": ".*"}]}),
        ("/topics/offsets", {"topics": [NAME], "seen": "", "wait_ms": 60_000}),
        ("/topics/records", {"topic": NAME}),
        ("/topics/sizes", {"ranges": [{"topic": NAME, "partition": -1, "offset": 0}]}),
        ("/topics/cursors", MARK),
        ("/stages", {"topics": [NAME]}),
    ],
)
def test_what_is_granted_in_the_cluster_counts_at_once(server: ThreadedServer, path: str, body: Any) -> None:
    answer = post(server, "user", path, body)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("path", ["topics?namespace=acme/shop", f"topic?topic={NAME}"])
def test_the_console_shows_it_at_once(server: ThreadedServer, path: str) -> None:
    headers = {"Authorization": f"Bearer {ISSUER.token('user')}"}
    answer = httpx.get(f"{server.url}/console/api/{path}", headers=headers, trust_env=False)
    assert answer.status_code == 200, answer.text


def test_the_console_says_at_once_what_is_allowed(server: ThreadedServer) -> None:
    headers = {"Authorization": f"Bearer {ISSUER.token('user')}"}
    path = f"{server.url}/console/api/permissions?topic={NAME}"
    answer = httpx.get(path, headers=headers, trust_env=False)
    assert answer.json() == {"produce": True, "consume": True, "admin": False}


def test_a_subscription_is_left_to_its_roles_at_once(server: ThreadedServer) -> None:
    answer = post(server, "guest", "/topics/cursors", MARK)
    assert (answer.status_code, answer.json()["error_code"]) == (403, 40301)


def test_how_records_lie_is_for_consumers(server: ThreadedServer) -> None:
    answer = post(server, "guest", "/topics/records", {"topic": NAME})
    assert (answer.status_code, answer.json()["topic"]) == (200, "acme.shop.orders")
    answer = post(server, "stranger", "/topics/records", {"topic": NAME})
    assert (answer.status_code, answer.json()["error_code"]) == (403, 40301)
