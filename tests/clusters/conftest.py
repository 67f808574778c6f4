"""A real broker for all tests of this folder, started when the first of them needs it."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from tests.support.pulsar_broker import PulsarCluster, given, standalone


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


@pytest.fixture
def pulsar_namespace(pulsar_cluster: PulsarCluster) -> str:
    """A namespace of the test's own: `public/…`."""
    name = f"public/t{uuid4().hex[:12]}"
    pulsar_cluster.admin("PUT", f"namespaces/{name}")
    return name
