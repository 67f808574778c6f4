"""The command line before real brokers, where it differs: what a cluster answers in a way of its own."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from tests.support.kafka_broker import KafkaCluster
from tests.support.pulsar_broker import PulsarCluster
from tests.support.shell import Shell

from penstock.broker.settings import ClusterSettings
from penstock.testing.server import running


@pytest.fixture(scope="module")
def before_pulsar(pulsar_cluster: PulsarCluster) -> Iterator[Shell]:
    with running(engine=pulsar_cluster.settings) as server:
        yield Shell(server.url)


@pytest.fixture(scope="module")
def before_kafka(kafka_cluster: KafkaCluster) -> Iterator[Shell]:
    engine = ClusterSettings(
        url=kafka_cluster.service_url, learned_ms=200, documents_topic=f"__penstock-{uuid4().hex[:8]}"
    )
    with running(engine=engine) as server:
        yield Shell(server.url)


def test_topics_of_pulsar(before_pulsar: Shell, pulsar_namespace: str) -> None:
    shell, topic = before_pulsar, f"{pulsar_namespace}/orders"
    shell.run("topics", "create", topic, "--partitions", "2")
    shell.run("subscriptions", "create", topic, "s")
    shell.run("produce", topic, "a", "b", "c")

    [listed] = shell.lines("topics", "list", pulsar_namespace)
    assert listed["topic"] == f"persistent://{topic}"
    assert (listed["partitions"], listed["messages"], listed["schema"]) == (2, None, "STRING")
    [described] = shell.lines("topics", "describe", topic)
    assert described["partitions"] == 2
    assert "s" in described["subscriptions"]  # type: ignore[operator]
    partitions = shell.lines("topics", "partitions", topic)
    assert sum(one["messages"] for one in partitions) == 3  # type: ignore[misc]
    assert [one["earliest"] for one in partitions] == [0, 0]
    backlogs = {one["subscription"]: one["backlog"] for one in shell.lines("subscriptions", "list", topic)}
    assert backlogs["s"] == 3  # the server's own readers are listed, too
    assert len(shell.lines("subscriptions", "peek", topic, "s", "--count", "9")) == 3
    assert shell.lines("schemas", "metadata", f"{topic}-2") == []
    assert "storageSize" in shell.run("topics", "stats", topic, "-o", "table").stdout
    [size] = shell.lines("topics", "backlog-size", f"{topic}-partition-0", "earliest")
    assert size["bytes"] > 0  # type: ignore[operator]
    passing = f"non-persistent://{topic}"
    shell.run("topics", "create", passing)
    assert shell.lines("topics", "describe", passing)[0]["partitions"] == 0
    shell.run("topics", "delete", topic, "--yes", "--force")


def test_top_shows_what_the_broker_lists(before_pulsar: Shell) -> None:
    # A broker lists its topics anew once a minute: what is in the list is not the test's to say.
    for one in before_pulsar.lines("top", "--once"):
        assert {"rate_in", "backlog", "producers", "consumers", "subscriptions"} <= one.keys()
    said = before_pulsar.run("top", "--once", "-o", "table")
    assert "kB in/s" in said.stdout or "no topic is in use" in said.stderr


def test_tenants_of_pulsar_keep_their_clusters(before_pulsar: Shell) -> None:
    shell, tenant = before_pulsar, f"t{uuid4().hex[:8]}"
    shell.run("tenants", "create", tenant)
    [made] = shell.lines("tenants", "describe", tenant)
    shell.run("tenants", "update", tenant, "--admin-role", "ann")
    assert shell.lines("tenants", "describe", tenant) == [{**made, "adminRoles": ["ann"]}]
    assert made["allowedClusters"]
    shell.run("tenants", "delete", tenant, "--yes")
    refused = shell.run("tenants", "delete", tenant, "--yes", code=1).stderr
    assert "penstock topics list" not in refused
    assert refused.count("\n") == 1


def test_requests_of_a_benchmark_are_refused_by_a_pulsar_broker(before_pulsar: Shell) -> None:
    refused = before_pulsar.run("bench", "request", code=1).stderr
    assert refused.startswith("penstock: ")
    assert refused.count("\n") == 1


def test_requests_of_a_benchmark_before_kafka(before_kafka: Shell) -> None:
    [found] = before_kafka.lines("bench", "request", "--messages", "5")
    assert (found["messages"], found["errors"]) == (5, 0)


def test_what_kafka_has_not_is_one_sentence(before_kafka: Shell) -> None:
    topic = f"cli-{uuid4().hex[:8]}"
    before_kafka.run("topics", "create", topic)
    for words in (("topics", "terminate", topic, "--yes"), ("policies", "set", "message-ttl", topic, "3d")):
        said = before_kafka.run(*words, code=1)
        assert said.stderr.startswith("penstock: the engine behind this server has no ")
        assert (said.stderr.count("\n"), said.stdout) == (1, "")
