"""Spark against a server with TLS and authentication: with the rights everything works; without them one sentence,
and nothing is written."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.support.tls import Pki

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.client.paths import schemas_path
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, TopicName
from penstock.pipeline.http.stages import Stages
from penstock.testing.credentials import Issuer
from penstock.testing.server import running

GRANTS = {"reader": ["consume"], "writer": ["produce"], "both": ["produce", "consume"]}
ROWS = 60


class SecuredServer:
    """The server, and what its users need: a token in a file, and whom to trust."""

    def __init__(self, folder: Path, url: str, issuer: Issuer, pki: Pki) -> None:
        self.folder, self.url, self.pki = folder, url, pki
        for role in ("admin", "nobody", "stranger", *GRANTS):
            (folder / f"{role}.token").write_text(issuer.token(role))

    def options(self, role: str, **further: Any) -> dict[str, str]:
        token = str(self.folder / f"{role}.token")
        given = {"url": self.url, "tokenFile": token, "tlsCaFile": self.pki.ca_file}
        return given | {name.replace("_", "."): str(value) for name, value in further.items()}

    def access(self, role: str) -> Access:
        return Access(url=self.url, token_file=str(self.folder / f"{role}.token"), ca_file=self.pki.ca_file)

    def count(self, topic: str) -> int | None:
        """How many messages there are; None where there is no topic."""
        name = TopicName.parse(topic)
        with HttpClient(self.access("admin")) as client:
            there = str(name) in client.topics(DEFAULT_NAMESPACE)
            return client.offsets(name, 0).latest if there else None


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    folder, issuer = tmp_path_factory.mktemp("secured"), Issuer()
    pki = Pki(folder)
    auth = issuer.settings(super_users=("admin",))
    with running(tls=pki.settings(), auth=auth, plain=False) as server:
        made = SecuredServer(folder, server.url, issuer, pki)
        with HttpClient(made.access("admin")) as client:
            for role, actions in GRANTS.items():
                path = f"/admin/v2/namespaces/public/default/permissions/{role}"
                client.call("POST", path, body=actions)
            client.create_topic(TopicName.parse("in"))
            client.produce(TopicName.parse("in"), [{"key": f"k{n}", "value": str(n)} for n in range(ROWS)])
        yield made


def write(frame: DataFrame, options: dict[str, str]) -> None:
    frame.write.format("penstock").options(**options).mode("append").save()


def test_reading_needs_to_consume(spark: SparkSession, server: SecuredServer) -> None:
    def count(**options: Any) -> int:
        return (
            spark.read.format("penstock").options(**server.options(**options, subscribe="in")).load().count()
        )

    assert count(role="reader") == ROWS
    for role in ("nobody", "writer"):
        with pytest.raises(PySparkException, match=rf"role '{role}' may not consume .*default/in"):
            count(role=role)
    with pytest.raises(PySparkException, match=r"token file .*missing.token cannot be read"):
        count(role="missing")
    for missing, said in (("tlsCaFile", "certificate verify failed"), ("tokenFile", "there are none")):
        options = {name: text for name, text in server.options("reader").items() if name != missing}
        with pytest.raises(PySparkException, match=said):
            spark.read.format("penstock").options(**options, subscribe="in").load().count()


def stream(spark: SparkSession, server: SecuredServer, role: str, folder: Path, **sink: str) -> None:
    options = server.options(role, subscribe="in", startingOffsets="earliest", subscription=f"of-{role}")
    frame = spark.readStream.format("penstock").options(**options).load().selectExpr("key", "value")
    writer = frame.writeStream.format("penstock").options(**server.options(role, **sink))
    query = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)


def test_a_stream_with_its_subscription(spark: SparkSession, server: SecuredServer, tmp_path: Path) -> None:
    stream(spark, server, "both", tmp_path / "fine", topic="copied")
    assert server.count("copied") == ROWS
    for role, action in (("reader", "produce to .*refused"), ("writer", "consume .*default/in")):
        with pytest.raises(PySparkException, match=rf"role '{role}' may not {action}"):
            stream(spark, server, role, tmp_path / role, topic="refused")
    assert server.count("refused") is None
    with HttpClient(server.access("admin")) as client:
        found = client.call("GET", "/admin/v2/persistent/public/default/in/subscriptions")
    assert "of-both" in found
    assert "of-writer" not in found


@pytest.mark.parametrize("delivery", ["exactly_once", "sequence", "at_least_once"])
def test_writing_needs_to_produce(spark: SparkSession, server: SecuredServer, delivery: str) -> None:
    rows = spark.range(10).selectExpr("CAST(id AS STRING) AS value")
    topic = f"written-{delivery}"
    further = {"delivery": delivery, "ordered": "true"}
    for role in ("nobody", "reader"):
        with pytest.raises(PySparkException, match=rf"role '{role}' may not produce to .*{topic}"):
            write(rows, server.options(role, topic=topic, **further))
        with pytest.raises(PySparkException, match=rf"role '{role}' may not (produce to|look up) .*{topic}"):
            write(rows.selectExpr("value", f"'{topic}' AS topic"), server.options(role, **further))
    assert server.count(topic) is None
    write(rows, server.options("writer", topic=topic, **further))
    assert server.count(topic) == 10


def test_a_writers_name_is_its_first_roles(spark: SparkSession, server: SecuredServer) -> None:
    """A stranger who may publish elsewhere commits nothing in the name of another, and so takes nothing from it."""
    with HttpClient(server.access("admin")) as client:
        client.call("PUT", "/admin/v2/namespaces/public/elsewhere")
        client.call("POST", "/admin/v2/namespaces/public/elsewhere/permissions/stranger", body=["produce"])
    rows = spark.range(10).selectExpr("CAST(id AS STRING) AS value")
    write(rows, server.options("writer", topic="owned", writer="job", batch=1))
    highest = 2**63 - 1
    topic = TopicName.parse("owned")
    with Stages(server.access("stranger")) as stranger:
        for topics in ((), (topic,), (TopicName.parse("persistent://public/elsewhere/t"),)):
            with pytest.raises(PenstockError) as caught:
                stranger.commit("job", highest, [], topics)
            assert caught.value.kind is ErrorKind.FORBIDDEN
    there = server.options("stranger", topic="persistent://public/elsewhere/t", writer="job", batch=highest)
    for frame in (rows, rows.limit(0)):
        with pytest.raises(PySparkException, match="may not use writer job"):
            write(frame, there)
    write(rows, server.options("writer", topic="owned", writer="job", batch=2))
    assert server.count("owned") == 20


def test_schemas_and_dead_letters(spark: SparkSession, server: SecuredServer) -> None:
    rows = spark.range(10).selectExpr("struct(id) AS value", "IF(id = 3, 'odd', NULL) AS _error")
    rows = rows.withColumn("_raw", rows["value.id"].cast("string").cast("binary"))
    options = {"topic": "typed", "deadLetterTopic": "dead"}
    with pytest.raises(PySparkException, match=r"role 'reader' may not produce to .*default/typed"):
        write(rows, server.options("reader", **options))
    with HttpClient(server.access("admin")) as client, pytest.raises(PenstockError, match="not"):
        client.call("GET", f"{schemas_path(TopicName.parse('typed'))}/schema")
    assert (server.count("typed"), server.count("dead")) == (None, None)
    write(rows, server.options("writer", **options))
    assert (server.count("typed"), server.count("dead")) == (9, 1)
    reader = spark.read.format("penstock")
    typed = reader.options(**server.options("reader", subscribe="typed", value_decode="flat")).load()
    assert sorted(row.id for row in typed.collect()) == [n for n in range(10) if n != 3]
    with pytest.raises(PySparkException, match=r"role 'writer' may not consume .*default/typed"):
        spark.read.format("penstock").options(
            **server.options("writer", subscribe="typed", value_decode="flat")
        ).load()
