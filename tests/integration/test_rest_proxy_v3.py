"""Version 3 of the REST proxy's API: what is read."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.auth import AUDIENCE, headers_of, issuer, token

from penstock.testing.server import Running, running

TOPICS = "/topics/public/default"


@contextmanager
def below_cluster(server: Running, **more: Any) -> Iterator[httpx.Client]:
    """A client whose paths are below the cluster."""
    with httpx.Client(base_url=server.url, trust_env=False, **more) as client:
        (cluster,) = client.get("/rest/v3/clusters").json()["data"]
        client.base_url = httpx.URL(cluster["metadata"]["self"] + "/")
        yield client


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as address:
        yield address


@pytest.fixture
def v3(server: Running) -> Iterator[httpx.Client]:
    with below_cluster(server) as client:
        yield client


def read(v3: httpx.Client, path: str) -> Any:
    answer = v3.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def refused(v3: httpx.Client, path: str, **more: Any) -> tuple[int, int, str]:
    answer = v3.request(more.pop("method", "GET"), path, **more)
    body = answer.json()
    return answer.status_code, body["error_code"], body["message"]


def test_every_resource_has_a_kind_and_a_place_that_can_be_read(server: Running, v3: httpx.Client) -> None:
    topic = server.create_topic("kinds", partitions=2)
    server.publish(topic, "a", "b", "c")
    server.create_subscription(topic, "readers")
    kinds: dict[str, str] = {}
    wanted, seen = [str(v3.base_url).rstrip("/")], set[str]()
    while wanted:
        url = wanted.pop()
        answer = httpx.get(url, trust_env=False)
        if url in seen or url.endswith("/consumers/") or answer.status_code == 404:  # of no consumer
            continue
        seen.add(url)
        body = answer.json()
        for one in body.get("data", [body]):
            assert one["metadata"]["self"] == url or "data" in body
            assert one["metadata"]["resource_name"].startswith(f"crn:///kafka={one['cluster_id']}")
            kinds[one["kind"]] = url
            wanted.append(one["metadata"]["self"])
            wanted += [
                field["related"] for field in one.values() if isinstance(field, dict) and "related" in field
            ]
        if "data" in body:
            kinds[body["kind"]] = url
            assert body["metadata"] == {"self": url, "next": None}
    assert set(kinds) == {
        *("KafkaCluster", "KafkaBroker", "KafkaBrokerList", "KafkaTopic", "KafkaTopicList"),
        *("KafkaPartition", "KafkaPartitionList", "KafkaReplica", "KafkaReplicaList"),
        *("KafkaTopicConfig", "KafkaTopicConfigList", "KafkaConsumerGroup", "KafkaConsumerGroupList"),
        *("KafkaConsumerGroupLagSummary", "KafkaConsumerList"),
    }


def test_the_cluster_and_its_broker(server: Running, v3: httpx.Client) -> None:
    found = read(v3, "")
    assert found["metadata"]["resource_name"] == f"crn:///kafka={found['cluster_id']}"
    assert found["controller"] == {"related": f"{found['metadata']['self']}/brokers/0"}
    broker = read(v3, "brokers/0")
    assert (broker["host"], broker["port"], broker["rack"]) == ("127.0.0.1", server.port, None)
    assert refused(v3, "brokers/1") == (404, 404, "HTTP 404 Not Found")
    assert refused(v3, "../elsewhere") == (404, 404, "Cluster elsewhere cannot be found.")


def test_topics_and_partitions(server: Running, v3: httpx.Client) -> None:
    server.publish(server.create_topic("alone"), "a", "b")
    server.create_topic("parted", partitions=3)
    server.create_namespace("public/other")
    server.publish("persistent://public/other/away", "x")
    names = [one["topic_name"] for one in read(v3, "topics")["data"]]
    assert names == sorted(names)
    assert {"alone", "parted"} <= set(names)
    assert "away" not in names
    found = read(v3, "topics/parted")
    assert (found["partitions_count"], found["replication_factor"], found["is_internal"]) == (3, 1, False)
    assert "authorized_operations" not in found
    assert read(v3, "topics/parted?include_authorized_operations=true")["authorized_operations"] == []
    assert read(v3, "topics/alone/partitions")["data"] == [read(v3, "topics/alone/partitions/0")]
    far = read(v3, "topics/persistent%3A%2F%2Fpublic%2Fother%2Faway")
    assert far["topic_name"] == "persistent://public/other/away"
    assert httpx.get(far["partitions"]["related"], trust_env=False).json()["data"][0]["partition_id"] == 0
    offsets = read(v3, "topics/alone/partitions/0/offset?offset_type=earliest_and_latest")
    assert (offsets["kind"], offsets["earliest_offset"], offsets["latest_offset"]) == (
        "KafkaPartitionWithOffsets",
        0,
        2,
    )
    assert offsets["metadata"]["resource_name"].endswith("/partition=0/offset_type=earliest_and_latest")
    assert refused(v3, "topics/alone/partitions/0/offset?offset_type=latest")[:2] == (400, 400)
    assert refused(v3, "topics/alone/partitions/1") == (404, 40402, "Partition not found.")
    assert refused(v3, "topics/alone/partitions/x")[:2] == (404, 404)
    for missing in (
        "topics/none",
        "topics/none/partitions",
        "topics/none/configs/x",
        "topics/parted-partition-0",
    ):
        assert refused(v3, missing) == (404, 40403, "This server does not host this topic-partition.")


def test_configurations_are_those_of_policies(server: Running, v3: httpx.Client) -> None:
    topic = server.create_topic("kept")
    retention = {"retentionTimeInMinutes": 7, "retentionSizeInMB": -1}
    httpx.post(
        f"{server.url}/admin/v2/persistent/public/default/kept/retention", json=retention, trust_env=False
    )
    found = {one["name"]: one for one in read(v3, f"topics/{topic}/configs")["data"]}
    assert list(found) == sorted(found)
    assert (found["retention.ms"]["value"], found["retention.ms"]["is_default"]) == ("420000", False)
    assert found["retention.ms"]["source"] == "DYNAMIC_TOPIC_CONFIG"
    assert found["retention.ms"]["synonyms"] == [
        {"name": "retention.ms", "value": "420000", "source": "DYNAMIC_TOPIC_CONFIG"},
        {"name": "retention.ms", "value": "-1", "source": "DEFAULT_CONFIG"},
    ]
    assert (found["cleanup.policy"]["value"], found["cleanup.policy"]["source"]) == (
        "delete",
        "DEFAULT_CONFIG",
    )
    assert read(v3, f"topics/{topic}/configs/retention.ms") == found["retention.ms"]
    assert refused(v3, f"topics/{topic}/configs/nothing") == (404, 404, "HTTP 404 Not Found")
    every = read(v3, "topics/-/configs")["data"]
    assert [one for one in every if one["topic_name"] == topic] == list(found.values())


def test_a_subscription_is_a_group_with_lags(server: Running, v3: httpx.Client) -> None:
    topic = server.create_topic("behind", partitions=2)
    for partition, count in ((0, 3), (1, 5)):
        for number in range(count):
            server.publish(f"persistent://public/default/behind-partition-{partition}", f"{number}")
    group = "behind/readers"
    server.create_subscription(topic, group)
    path = "consumer-groups/behind%2Freaders"
    found = read(v3, path)
    assert (found["state"], found["type"], found["is_simple"]) == ("EMPTY", "CLASSIC", False)
    assert found["coordinator"]["related"].endswith("/brokers/0")
    lags = read(v3, f"{path}/lags")["data"]
    assert [
        (one["partition_id"], one["current_offset"], one["log_end_offset"], one["lag"]) for one in lags
    ] == [
        (1, 0, 5, 5),
        (0, 0, 3, 3),
    ]
    assert (lags[0]["consumer_id"], lags[0]["instance_id"], lags[0]["client_id"]) == ("", None, "")
    assert read(v3, f"{path}/lags/behind/partitions/0") == lags[1]
    assert refused(v3, f"{path}/lags/behind/partitions/2") == (404, 404, "HTTP 404 Not Found")
    summary = read(v3, f"{path}/lag-summary")
    assert (summary["max_lag"], summary["total_lag"], summary["max_lag_topic_name"]) == (5, 8, "behind")
    assert summary["metadata"]["resource_name"].endswith("/consumer-group=behind%2Freaders/lag-summary")
    assert refused(v3, "consumer-groups/nobody") == (404, 404, "HTTP 404 Not Found")
    assert refused(v3, "consumer-groups/nobody/lag-summary") == (404, 404, "HTTP 404 Not Found")


def test_consumers_of_a_group(server: Running, v3: httpx.Client) -> None:
    topic = server.create_topic("shared", partitions=2)
    rest = f"{server.url}{TOPICS}/{topic}/subscription/team"
    made = httpx.post(
        rest,
        json={"name": "one", "subscription_type": "failover", "initial_position": "earliest"},
        trust_env=False,
    ).json()
    found = read(v3, "consumer-groups/team")
    assert (found["state"], found["partition_assignor"]) == ("STABLE", "failover")
    (consumer,) = read(v3, "consumer-groups/team/consumers")["data"]
    assert (consumer["consumer_id"], consumer["client_id"], consumer["instance_id"]) == ("one", "one", None)
    assert read(v3, "consumer-groups/team/consumers/one") == consumer
    assignments = read(v3, "consumer-groups/team/consumers/one/assignments")["data"]
    assert [(one["topic_name"], one["partition_id"]) for one in assignments] == [("shared", 0), ("shared", 1)]
    assert read(v3, "consumer-groups/team/consumers/one/assignments/shared/partitions/1") == assignments[1]
    assert assignments[1]["metadata"]["resource_name"].endswith(
        "/consumer-group=team/consumer=one/assignment=shared/partition=1"
    )
    assert {one["consumer_id"] for one in read(v3, "consumer-groups/team/lags")["data"]} == {"one"}
    assert refused(v3, "consumer-groups/team/consumers/two")[:2] == (404, 404)
    httpx.delete(made.get("base_uri", f"{rest}/consumer/one"), trust_env=False)


def test_paths_methods_and_types(v3: httpx.Client) -> None:
    assert refused(v3, "acls") == (404, 404, "HTTP 404 Not Found")
    assert refused(v3, "topics", method="POST", json={}) == (405, 405, "HTTP 405 Method Not Allowed")
    assert refused(v3, "topics", headers={"accept": "text/html"}) == (406, 406, "HTTP 406 Not Acceptable")
    assert v3.get("topics/", headers={"accept": "application/*"}).status_code == 200


def test_the_cluster_keeps_its_id(tmp_path: Path) -> None:
    ids = []
    for _ in range(2):
        with running(tmp_path) as server, below_cluster(server) as v3:
            ids.append(read(v3, "")["cluster_id"])
    assert ids[0] == ids[1]
    assert len(ids[0]) == 22


def test_what_a_role_may_not_see_is_not_there() -> None:
    with running(auth=issuer.settings(audience=AUDIENCE, super_users=("root",))) as server:
        root = headers_of(token("root"))
        base = f"{server.url}/admin/v2"
        with httpx.Client(headers=root, trust_env=False) as admin:
            for topic in ("mine", "theirs"):
                admin.put(f"{base}/persistent/public/default/{topic}")
                admin.put(f"{base}/persistent/public/default/{topic}/subscription/{topic}-group", json={})
            admin.post(f"{base}/persistent/public/default/mine/permissions/me", json=["consume"])
        with below_cluster(server, headers=headers_of(token("me"))) as v3:
            assert [one["topic_name"] for one in read(v3, "topics")["data"]] == ["mine"]
            assert {one["topic_name"] for one in read(v3, "topics/-/configs")["data"]} == {"mine"}
            assert [one["consumer_group_id"] for one in read(v3, "consumer-groups")["data"]] == ["mine-group"]
            assert refused(v3, "topics/theirs")[0] == 403
            assert refused(v3, "consumer-groups/theirs-group")[0] == 404
        assert httpx.get(f"{server.url}/rest/v3/clusters", trust_env=False).status_code == 401
        nobody = headers_of(token("nobody"))
        assert httpx.get(f"{server.url}/rest/v3/clusters", headers=nobody, trust_env=False).status_code == 403
