"""What one server answers to what Pulsar's tools ask of a cluster: its truths, its refusals, and what is unknown."""

from typing import Any

import pytest
from tests.support.admin import ADMIN, AdminServer

SPACE = "/admin/v2/namespaces/public/default"
V2 = "/admin/v2"


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (f"{SPACE}/replication", ["standalone"]),
        (f"{SPACE}/encryptionRequired", False),
        (f"{SPACE}/subscriptionAuthMode", "None"),
        (f"{SPACE}/offloadThreshold", -1),
        (f"{SPACE}/offloadThresholdInSeconds", -1),
        (f"{SPACE}/offloadDeletionLagMs", None),
        (f"{SPACE}/offloadPolicies", None),
        (f"{SPACE}/persistence/bookieAffinity", None),
        (f"{SPACE}/dispatcherPauseOnAckStatePersistent", False),
        (f"{SPACE}/subscribeRate", None),
        (f"{SPACE}/maxUnackedMessagesPerSubscription", 0),
        (f"{ADMIN}/t/replication", ["standalone"]),
        (f"{ADMIN}/t/dispatcherPauseOnAckStatePersistent", False),
        (f"{ADMIN}/t/s/dispatchRate", None),
        (f"{ADMIN}/t/schemaCompatibilityStrategy", None),
        (f"{ADMIN}/t/schemaCompatibilityStrategy?applied=true", "FULL"),
        (f"{ADMIN}/t/schemaValidationEnforced", False),
        (f"{ADMIN}/t/subscription/s/replicatedSubscriptionStatus", {"persistent://public/default/t": False}),
        (f"{V2}/clusters/standalone/peers", []),
        (f"{V2}/clusters/standalone/failureDomains", {}),
        (f"{V2}/clusters/standalone/namespaceIsolationPolicies", {}),
        (f"{V2}/brokers/standalone", ["penstock"]),
        (f"{V2}/brokers/leaderBroker", {"serviceUrl": "http://penstock", "brokerId": "penstock"}),
        (f"{V2}/brokers/configuration", []),
        (f"{V2}/brokers/configuration/values", {}),
        (f"{V2}/broker-stats/mbeans", []),
        (f"{V2}/broker-stats/bookieops", {}),
        (f"{V2}/resourcegroups", []),
        (f"{V2}/bookies/all", {"bookies": []}),
        (f"{V2}/bookies/racks-info", {}),
    ],
)
async def test_truths_of_one_server(path: str, wanted: Any) -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/t")
        await server.put(f"{ADMIN}/t/subscription/s", "earliest")
        assert await server.get(path) == wanted


async def test_another_cluster_and_another_topic_are_404() -> None:
    async with AdminServer.open() as server:
        for path in ("brokers/other", "clusters/other/peers", "brokers/other/penstock/ownedNamespaces"):
            await server.get(f"{V2}/{path}", 404)
        await server.get(f"{V2}/namespaces/public/nothing/replication", 404)
        await server.get(f"{ADMIN}/nothing/persistence", 404)


async def test_truths_that_are_objects() -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/t")
        for base in (SPACE, f"{ADMIN}/t"):
            assert (await server.get(f"{base}/persistence"))["bookkeeperAckQuorum"] == 1
            assert (await server.get(f"{base}/delayedDelivery"))["active"] is True
            assert (await server.get(f"{base}/inactiveTopicPolicies"))["deleteWhileInactive"] is False
        assert (await server.get(f"{ADMIN}/t/offload"))["status"] == "NOT_RUN"
        assert (await server.get(f"{V2}/resource-quotas"))["dynamic"] is True
        assert "metadataStoreUrl" in await server.get(f"{V2}/brokers/internal-configuration")
        assert (await server.get(f"{V2}/brokers/configuration/runtime"))["maxMessageSize"] == "5242880"
        assert (await server.client.get(f"{V2}/brokers/ready")).text == "ok"
        for path in ("brokers/backlog-quota-check", "broker-stats/load-report"):
            await server.get(f"{V2}/{path}", 204)
        await server.get(f"{SPACE}/antiAffinity", 204)


async def test_the_broker_says_what_it_serves() -> None:
    async with AdminServer.open() as server:
        await server.produce("t", "a")
        owned = await server.get(f"{V2}/brokers/standalone/penstock/ownedNamespaces")
        assert owned["public/default/0x00000000_0xffffffff"]["is_active"] is True
        await server.get(f"{V2}/brokers/standalone/elsewhere/ownedNamespaces", 404)
        (metrics,) = await server.get(f"{V2}/broker-stats/metrics")
        assert metrics["dimensions"] == {"namespace": "public/default"}
        assert metrics["metrics"]["brk_topics_count"] == 1
        stats = await server.get(f"{V2}/broker-stats/topics")
        topics = stats["public/default"]["0x00000000_0xffffffff"]["persistent"]
        assert topics["persistent://public/default/t"]["msgInCounter"] == 1


@pytest.mark.parametrize(
    ("path", "truth", "other"),
    [
        (f"{SPACE}/replication", ["standalone"], ["standalone", "elsewhere"]),
        (f"{ADMIN}/t/replication", ["standalone"], []),
        (f"{SPACE}/encryptionRequired", False, True),
        (f"{SPACE}/subscriptionAuthMode", "None", "Prefix"),
    ],
)
async def test_what_is_the_case_can_be_set_to_what_it_is(path: str, truth: Any, other: Any) -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/t")
        await server.post(path, truth)
        assert (await server.post(path, other, 405))["error_code"] == 40501
        assert await server.get(path) == truth
        await server.post(path, {"no": "value"}, 400)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", f"{SPACE}/replicatorDispatchRate"),
        ("POST", f"{SPACE}/persistence"),
        ("DELETE", f"{SPACE}/inactiveTopicPolicies"),
        ("POST", f"{ADMIN}/t/subscribeRate"),
        ("PUT", f"{ADMIN}/t/offload"),
        ("PUT", f"{ADMIN}/t/shadowTopics"),
        ("PUT", f"{SPACE}/0x00000000_0xffffffff/split"),
        ("DELETE", f"{SPACE}/0x00000000_0xffffffff"),
        ("PUT", f"{V2}/clusters/other"),
        ("POST", f"{V2}/brokers/shutdown"),
        ("GET", f"{V2}/broker-stats/allocator-stats/default"),
        ("GET", f"{V2}/functions/public/default"),
        ("POST", "/admin/v3/functions/public/default/f/trigger"),
        ("GET", "/admin/v3/transactions/coordinators"),
    ],
)
async def test_a_refusal_says_why(method: str, path: str) -> None:
    async with AdminServer.open() as server:
        response = await server.client.request(method, path, json={})
        assert response.status_code == 405
        assert "allow" in response.headers
        assert response.json()["error_code"] == 40501
        assert "is not for" not in response.json()["reason"]


@pytest.mark.parametrize(
    "path",
    [
        f"{SPACE}/nonsense",
        f"{SPACE}/nonsense/unload",
        f"{V2}/nonsense/public/default/t",
        f"{V2}/tenants/public/nonsense",
        f"{V2}/brokers/standalone/nonsense",
        f"{V2}/resourcegroups/a/b",
        f"{ADMIN}/t/nonsense",
        "/admin/v3/nonsense",
        "/admin",
    ],
)
async def test_an_unknown_path_is_404(path: str) -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/t")
        for method in ("GET", "PUT", "POST", "DELETE"):
            response = await server.client.request(method, path, json={})
            assert response.status_code == 404
            assert response.json()["reason"]
