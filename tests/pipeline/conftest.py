"""One Spark session for all tests of this folder, and a server to read from."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.topics import TopicServer
from tests.support import s3a
from tests.support.object_store import ObjectStore, serving

from penstock.pipeline.session import session

SPARK_TIMEOUT_S = 600
CONNECTOR = Path(__file__).parents[1] / "clusters" / "build" / "kafka" / "connector"  # of Spark to Kafka


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    conf = {"spark.sql.warehouse.dir": str(warehouse)}
    if connector := ",".join(map(str, CONNECTOR.glob("*.jar"))):
        conf["spark.jars"] = connector
    if s3a.HOME.exists():
        conf["spark.driver.extraClassPath"] = s3a.CLASS_PATH
    started = session("tests", "local[2,4]", **conf)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def store() -> Iterator[ObjectStore]:
    """An object store, empty where a test looks."""
    with serving() as started:
        yield started


@pytest.fixture
def server() -> Iterator[TopicServer]:
    with TopicServer.running() as started:
        yield started
