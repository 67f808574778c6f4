"""Real brokers for all tests of this folder, each started when the first of them needs it."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from tests.support import kafka_broker, schema_registry
from tests.support.kafka_broker import KafkaCluster
from tests.support.kafka_faults import Way
from tests.support.pulsar_broker import PulsarCluster, given, standalone
from tests.support.pulsar_secure import SecureCluster, secure_standalone
from tests.support.service import Service, flags_before, service
from tests.support.waiting import until

pytest.register_assert_rewrite("tests.conformance.engines")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder is marked, and may take as long as a broker needs to start on a busy machine."""
    for item in items:
        if item.path.is_relative_to(__file__.rpartition("/")[0]):
            item.add_marker(pytest.mark.clusters)
            if (
                item.get_closest_marker("timeout") is None
            ):  # an item's own mark would count before its module's
                item.add_marker(pytest.mark.timeout(240))


@pytest.fixture(scope="session")
def pulsar_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarCluster]:
    """A standalone that numbers its entries."""
    if there := given():
        yield there
        return
    with standalone(tmp_path_factory.mktemp("pulsar")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def secure_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    """A standalone that asks who comes, with ports of TLS."""
    with secure_standalone(tmp_path_factory.mktemp("secure")) as cluster:
        yield cluster


@pytest.fixture
def pulsar_namespace(pulsar_cluster: PulsarCluster) -> str:
    """A namespace of the test's own: `public/…`."""
    name = f"public/t{uuid4().hex[:12]}"
    pulsar_cluster.admin("PUT", f"namespaces/{name}")
    return name


@pytest.fixture(scope="session")
def kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """One broker that creates no topics by itself."""
    if there := kafka_broker.given():
        yield there
        return
    with kafka_broker.standalone(tmp_path_factory.mktemp("kafka")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_service(kafka_cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Three processes that are one service before the broker, and own all slots. They share the secret of their user on this
    machine: none is configured."""
    flags = flags_before(kafka_cluster)
    with service(tmp_path_factory.mktemp("service"), flags, environment={}) as made:
        until(lambda: made.sum("penstock_kafka_slots_owned") == 64)
        yield made


@pytest.fixture(scope="session")
def pulsar_service(
    pulsar_cluster: PulsarCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """The same before Pulsar."""
    with service(tmp_path_factory.mktemp("service"), flags_before(pulsar_cluster), environment={}) as made:
        yield made


@pytest.fixture(scope="session")
def registry_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Confluent's API of one schema registry."""
    if there := schema_registry.given():
        yield there
        return
    with schema_registry.standalone(tmp_path_factory.mktemp("registry")) as url:
        yield url


@pytest.fixture(scope="session")
def kafka_way(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    """A broker that is killed and frozen, and the relay before it."""
    made = Way()
    try:
        with kafka_broker.standalone(
            tmp_path_factory.mktemp("faults"), reached_at=made.reached_at
        ) as cluster:
            made.cluster = cluster
            yield made
    finally:
        made.close()
