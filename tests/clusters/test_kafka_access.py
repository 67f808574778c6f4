"""A Kafka with access control lists: what the server's principal needs, and who may write its internal topics."""

import asyncio
import logging
from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.support.kafka_broker import KafkaCluster, standalone
from tests.support.pages import ROOT
from tests.support.rest_proxy import Proxy, place
from tests.support.waiting import until

from penstock.broker.settings import ClusterSettings
from penstock.engines.kafka.access import Access, check_access
from penstock.model.secret import Secret
from penstock.testing.server import running

_ON = "listener.name.clients"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required user_penstock='it' user_app='it' user_lean='it';"
INTERNAL = ("__penstock", "__penstock_journals", "__penstock_replies")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A broker that knows `penstock` and `app`, and asks for rights; the test may do everything."""
    with standalone(
        tmp_path_factory.mktemp("kafka"),
        {
            f"{_ON}.sasl.enabled.mechanisms": "PLAIN",
            f"{_ON}.plain.sasl.jaas.config": _PLAIN,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        },
        "SASL_PLAINTEXT",
    ) as cluster:
        for line in _commands():
            cluster.tool("org.apache.kafka.tools.AclCommand", *line)
        yield cluster


def _commands() -> list[list[str]]:
    """The commands of docs/security.md for a server that may use all topics, without what says where the cluster is."""
    text = (ROOT / "docs" / "security.md").read_text()
    block = text.split("<!-- test: run by tests/clusters/test_kafka_access.py -->\n```sh\n")[1].split("```")[
        0
    ]
    lines = [
        line.split() for line in block.replace("\\\n", "").splitlines() if line.startswith("kafka-acls.sh")
    ]
    assert len(lines) == 5
    assert sum("--group" in line for line in lines) == 1
    return [[part.strip("'") for part in line if part not in ("kafka-acls.sh", "$KAFKA")] for line in lines]


def _settings(cluster: KafkaCluster, user: str = "penstock") -> ClusterSettings:
    return ClusterSettings(url=cluster.service_url, username=user, password=Secret("it"), learned_ms=0)


def _check(settings: ClusterSettings) -> Access:
    return asyncio.run(check_access(settings))


def _acl(
    cluster: KafkaCluster,
    allow: AclPermissionType,
    name: str,
    pattern: ResourcePatternType,
    kind: ResourceType = ResourceType.TOPIC,
) -> None:
    made = AclBinding(kind, name, pattern, "User:app", "*", AclOperation.ALL, allow)
    admin = AdminClient({"bootstrap.servers": cluster.plain})  # what it was asked for ends with it
    for done in admin.create_acls([made]).values():
        done.result(60)


def test_the_documented_rights_are_enough(guarded: KafkaCluster) -> None:
    name = f"t-{uuid4().hex[:10]}"
    topic, admin = f"/topics/public/default/{name}", f"/admin/v2/persistent/public/default/{name}"
    with (
        running(engine=_settings(guarded)) as address,
        httpx.Client(base_url=address.url, timeout=60) as rest,
    ):
        assert rest.put(f"{admin}/partitions", json=2).status_code == 204
        sent = rest.post(topic, json={"messages": [{"value": "a", "key": "k"}]}).json()["messageIds"]
        assert [one["error"] for one in sent] == [None]
        made = rest.post(f"{topic}/subscription/s", json={"initial_position": "earliest"})
        assert made.status_code == 200, made.text
        got = rest.get(f"{made.json()['base_uri']}/messages", params={"timeout": 60_000})
        assert [one["value"] for one in got.json()["messages"]] == ["a"], got.text
        assert (
            rest.post(
                "/admin/v2/namespaces/public/default/retention",
                json={"retentionTimeInMinutes": 60, "retentionSizeInMB": -1},
            ).status_code
            == 204
        )
        assert rest.get("/stages").status_code == 200  # which makes the topics of staged batches
        assert rest.delete(f"{admin}/partitions", params={"force": "true"}).status_code == 204


@pytest.fixture
def lean(guarded: KafkaCluster) -> Iterator[str]:
    """A principal with the documented rights, and of groups that of the lease alone."""
    lines = []
    for line in _commands():
        own = [part.replace("User:penstock", "User:lean") for part in line]
        if "--group" in own:
            own[own.index("--group") + 1] = "penstock-__penstock"
            at = own.index("--resource-pattern-type")
            del own[at : at + 2]
        lines.append(own)
    for line in lines:
        guarded.tool("org.apache.kafka.tools.AclCommand", *line)
    yield "lean"
    for line in lines:
        gone = ["--remove" if part == "--add" else part for part in line]
        guarded.tool("org.apache.kafka.tools.AclCommand", *gone, "--force")


def test_without_the_rights_to_show_positions_all_else_works(
    guarded: KafkaCluster, lean: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"/topics/public/default/t-{uuid4().hex[:10]}"
    caplog.set_level(logging.WARNING)
    with (
        running(engine=_settings(guarded, lean)) as address,
        httpx.Client(base_url=address.url, timeout=60) as rest,
    ):
        assert rest.post(topic, json={"messages": [{"value": "a"}]}).status_code == 200
        for name in ("s", "other"):
            path = f"{topic}/subscription/{name}"
            made = rest.post(path, json={"subscription_type": "Shared", "initial_position": "earliest"})
            assert made.status_code == 200, made.text
            got = rest.get(f"{made.json()['base_uri']}/messages", params={"timeout": 60_000})
            (message,) = got.json()["messages"]
            acked = rest.post(f"{path}/cursor", json={"messageIds": [message["messageId"]]})
            assert acked.status_code == 200, acked.text
            shown = rest.get(f"/admin/v2/persistent{topic.removeprefix('/topics')}/stats").json()
            assert shown["subscriptions"][name]["msgBacklog"] == 0, acked.text

        def told() -> list[logging.LogRecord]:
            return [one for one in caplog.records if "not shown to Kafka's tools" in one.getMessage()]

        until(told)
        refused = rest.put(
            f"/admin/v2/persistent{topic.removeprefix('/topics')}/subscription/x", json={"group": "g"}
        )
        assert (refused.status_code, refused.json()["error_code"]) == (403, 40301), refused.text
        with Proxy(address.rest_proxy_url) as proxy:
            name = topic.rpartition("/")[2]
            instance = proxy.consumer("g", "binary")
            proxy.post(f"{instance.path}/offsets", {"offsets": [place(name, offset=0)]}, 403, 40301)
            instance.subscribe(name)
            proxy.ask("GET", f"{instance.path}/records", 403, 40301, params={"timeout": 10_000})
            instance.delete()
    assert len(told()) == 1


def test_internal_topics_have_no_name_for_clients(guarded: KafkaCluster) -> None:
    with (
        running(engine=_settings(guarded)) as address,
        httpx.Client(base_url=address.url, timeout=60) as rest,
    ):
        rest.post("/topics/public/default/some", json={"messages": [{"value": "a"}]})
        for namespace in ("public/default", "a/b"):
            for name in INTERNAL:
                path, admin = f"/topics/{namespace}/{name}", f"/admin/v2/persistent/{namespace}/{name}"
                answers = [
                    rest.post(path, json={"messages": [{"value": "x"}]}),
                    rest.get(f"{path}/partitions/0/messages"),
                    rest.post(f"{path}/subscription/s", json={}),
                    rest.delete(admin, params={"force": "true"}),
                    rest.get(f"{admin}/stats"),
                    rest.put(admin),
                ]
                codes = [one.status_code for one in answers]
                assert all(code in (400, 404) for code in codes), (name, codes)
        for path in ("/admin/v2/persistent/public/default", "/topics/public/default"):
            assert "__" not in rest.get(path).text


def test_a_check_says_who_else_may_write_the_internal_topics(guarded: KafkaCluster) -> None:
    found = _check(_settings(guarded))
    assert found.doubts == []
    assert "__penstock_journals" in found.right[0]
    assert "this server is User:penstock" in found.right[0]
    _acl(guarded, AclPermissionType.ALLOW, "*", ResourcePatternType.LITERAL)
    (doubt,) = _check(_settings(guarded)).doubts
    assert doubt.startswith("User:app may write, delete or alter __penstock, ")
    _acl(guarded, AclPermissionType.DENY, "__penstock", ResourcePatternType.PREFIXED)
    assert _check(_settings(guarded)).doubts == []
    _acl(guarded, AclPermissionType.ALLOW, "*", ResourcePatternType.LITERAL, ResourceType.GROUP)
    (doubt,) = _check(_settings(guarded)).doubts
    assert doubt.startswith("User:app may join the consumer group penstock-__penstock in Kafka")


def test_what_cannot_be_checked_is_said(guarded: KafkaCluster, kafka_cluster: KafkaCluster) -> None:
    (doubt,) = _check(_settings(guarded, "app")).doubts
    assert "could not be checked" in doubt
    assert "authorization" in doubt.lower()
    (doubt,) = _check(ClusterSettings(url=kafka_cluster.service_url)).doubts
    assert "has no authorizer: any client may write __penstock" in doubt
