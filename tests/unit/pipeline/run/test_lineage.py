"""Run events of OpenLineage: by its schema, with the names of its rules, over HTTP."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.run import lineage
from penstock.pipeline.run.events import Reporter
from penstock.pipeline.run.folder import Folder
from penstock.pipeline.run.lineage import find_datasets, format_datasets, lineage_url, table_dataset
from penstock.pipeline.spec.parse import parse_spec
from penstock.pipeline.spec.spec import Spec
from penstock.testing.server import running

VECTORS = Path(__file__).parents[3] / "vectors/openlineage"
RUN = "576785f4-171b-4c1b-be83-81d122f47085"


def spec_of(folder: Path, server: str = "http://127.0.0.1:1", **lineage_: str) -> Spec:
    content = {
        "name": "sales",
        "dead_letters": "dead",
        "server": {"url": server},
        "sources": {"orders": {"topics": ["orders"]}, "more": {"pattern": "public/default/shop-.*"}},
        "tables": {"prices": {"path": "s3://bucket/prices"}},
        "sinks": {"out": {"input": "orders", "topic": "out"}, "table": {"input": "more", "path": "history"}},
        "lineage": lineage_,
    }
    return parse_spec(content, "p.toml", folder)


class Receiver:
    """An HTTP server that keeps what it gets."""

    def __init__(self, status: int = 201) -> None:
        self.got: list[tuple[str, str | None, dict[str, Any]]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((self.path, self.headers["Authorization"], json.loads(body)))
                self.send_response(status)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    started = Receiver()
    yield started
    started.close()


def test_a_run_is_told_over_http(tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "k")
    with running() as server:
        with HttpClient(server.url) as client:
            for topic in ("orders", "shop-1"):
                client.create_topic(TopicName.parse(topic))
            broker = client.call("GET", "/lookup/v2/topic/persistent/public/default/orders")["brokerUrl"]
        spec = spec_of(tmp_path, server.url, url=receiver.url, namespace="team")
        report = Reporter(spec, Folder(tmp_path / "state"), RUN)
        for state in ("starting", "running", "running", "idle"):
            report({"state": state})
        report({"state": "restarting", "error": "it is away"})
        report({"state": "failed", "error": "it is lost"})
        report.close()
    assert {(path, key) for path, key, _ in receiver.got} == {("/api/v1/lineage", "Bearer k")}
    events = [event for _, _, event in receiver.got]
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "OTHER", "FAIL"]
    errors = [event["run"]["facets"].get("errorMessage", {}).get("message") for event in events]
    assert errors == [None, None, "it is away", "it is lost"]
    validator = jsonschema_rs.validator_for(
        json.loads((VECTORS / "RunEvent.json").read_text()), validate_formats=True
    )
    for event in events:
        validator.validate(event)
        assert (event["job"]["namespace"], event["job"]["name"]) == ("team", "sales")
        assert event["run"]["runId"] == RUN
        assert event["inputs"] == [
            {"namespace": broker, "name": "public/default/orders"},
            {"namespace": broker, "name": "public/default/shop-1"},
            {"namespace": "s3://bucket", "name": "prices"},
        ]
        assert event["outputs"] == [
            {"namespace": broker, "name": "public/default/dead"},
            {"namespace": broker, "name": "public/default/out"},
            {"namespace": "file", "name": f"{tmp_path}/history"},
        ]


def test_events_that_nobody_takes_hold_up_nothing(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, url="http://127.0.0.1:1")
    with lineage.lineage_sender(spec) as send:
        send({"state": "stopped", "at": 0, "run_id": RUN})


def test_the_environment_names_a_receiver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lineage_url(spec_of(tmp_path)) == ""
    monkeypatch.setenv("OPENLINEAGE_URL", "http://other:5000/")
    assert lineage_url(spec_of(tmp_path)) == "http://other:5000/api/v1/lineage"
    assert lineage_url(spec_of(tmp_path, url="http://mine")) == "http://mine/api/v1/lineage"
    monkeypatch.setenv("OPENLINEAGE_ENDPOINT", "/events")
    assert lineage_url(spec_of(tmp_path)) == "http://other:5000/events"
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    assert lineage_url(spec_of(tmp_path)) == ""


def test_a_receiver_that_is_no_address_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"\[lineage\] url: 'here' is no address"):
        spec_of(tmp_path, url="here")


@pytest.mark.parametrize(
    ("path", "namespace", "name"),
    [
        ("/data/history", "file", "/data/history"),
        ("file:///data/my%20table", "file", "/data/my table"),
        ("s3://bucket/a/b/", "s3://bucket", "a/b"),
        ("s3a://bucket/a", "s3://bucket", "a"),
        ("hdfs://name:8020/a/b", "hdfs://name:8020", "a/b"),
        ("abfss://c@account.dfs.core.windows.net/t", "abfss://c@account.dfs.core.windows.net", "t"),
    ],
)
def test_tables_have_the_names_of_their_stores(path: str, namespace: str, name: str) -> None:
    assert table_dataset(path) == {"namespace": namespace, "name": name}


KAFKA = {"kafka.bootstrap.servers": "one:9092,two:9092"}
CATALOGS = {
    "spark.sql.catalog.hive.uri": "thrift://meta:9083",
    "spark.sql.catalog.rest.uri": "https://user:secret@catalog:8181/api",
    "spark.sql.catalog.files.warehouse": "s3a://bucket/warehouse/",
}


@pytest.mark.parametrize(
    ("format_", "options", "found"),
    [
        ("kafka", KAFKA | {"subscribe": "a, b"}, ["kafka://one:9092 a", "kafka://one:9092 b"]),
        ("kafka", KAFKA | {"assign": '{"b": [0], "a": [1]}'}, ["kafka://one:9092 a", "kafka://one:9092 b"]),
        ("kafka", KAFKA | {"topic": "out"}, ["kafka://one:9092 out"]),
        ("kafka", KAFKA | {"subscribepattern": "a.*"}, []),
        ("delta", {"path": "/data/history"}, ["file /data/history"]),
        ("parquet", {"path": "s3a://bucket/a"}, ["s3://bucket a"]),
        ("iceberg", {"path": "gs://bucket/db/t"}, ["gs://bucket db/t"]),
        ("iceberg", {"path": "hive.db.t"}, ["hive://meta:9083 db.t"]),
        ("iceberg", {"path": "rest.db.t"}, ["https://catalog:8181 db.t"]),
        ("iceberg", {"path": "files.db.t"}, ["s3://bucket warehouse/db/t"]),
        ("iceberg", {"path": "db.t"}, []),
        (
            "jdbc",
            {"url": "jdbc:postgresql://db/shop?user=a&password=b", "dbtable": "orders"},
            ["postgres://db:5432 shop.public.orders"],
        ),
        (
            "jdbc",
            {"url": "jdbc:postgresql://db:6432/shop", "dbtable": 'sales."Orders"'},
            ["postgres://db:6432 shop.sales.Orders"],
        ),
        ("jdbc", {"url": "jdbc:mysql://db/shop", "dbtable": "orders"}, ["mysql://db:3306 shop.orders"]),
        ("jdbc", {"url": "jdbc:mysql://a:b@db:33/shop", "dbtable": "orders"}, ["mysql://db:33 shop.orders"]),
        ("jdbc", {"url": "jdbc:mysql://a:b/c@db:33/shop", "dbtable": "orders"}, []),
        ("parquet", {"path": "s3a://key:secret@bucket/t"}, ["s3://bucket t"]),
        ("parquet", {"path": "abfss://box@host.example/t"}, ["abfss://box@host.example t"]),
        (
            "jdbc",
            {"url": "jdbc:sqlserver://db:1433;encrypt=true;databaseName=shop;", "dbtable": "[dbo].[orders]"},
            ["mssql://db:1433 shop.dbo.orders"],
        ),
        (
            "jdbc",
            {"url": "jdbc:oracle:thin:@//db:1521/shop", "dbtable": "sales.orders"},
            ["oracle://db:1521 shop.sales.orders"],
        ),
        ("jdbc", {"url": "jdbc:oracle:thin:@db:1521:shop", "dbtable": "a.b"}, ["oracle://db:1521 shop.a.b"]),
        ("jdbc", {"url": "jdbc:postgresql://db/shop", "dbtable": "(SELECT 1) AS one"}, []),
        ("jdbc", {"url": "jdbc:h2:mem:shop", "dbtable": "orders"}, []),
        ("rate", {}, []),
    ],
)
def test_other_formats_have_the_names_of_their_sources(
    format_: str, options: dict[str, str], found: list[str]
) -> None:
    made = format_datasets(format_, options, CATALOGS)
    assert [f"{each['namespace']} {each['name']}" for each in made] == found


def test_datasets_of_a_pipeline_without_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB", "jdbc:mysql://db/shop")
    content = {
        "name": "p",
        "server": {"url": "http://127.0.0.1:1"},
        "sources": {"orders": {"format": "kafka", "options": KAFKA | {"subscribe": "orders"}}},
        "tables": {"names": {"format": "jdbc", "options": {"url": "env:DB", "dbTable": "names"}}},
        "sinks": {
            "files": {"input": "orders", "format": "parquet", "options": {"path": "out"}},
            "service": {"input": "orders", "python": "service:send"},
        },
    }
    inputs, outputs = find_datasets(parse_spec(content, "p.toml", tmp_path))
    assert inputs == [
        {"namespace": "kafka://one:9092", "name": "orders"},
        {"namespace": "mysql://db:3306", "name": "shop.names"},
    ]
    assert outputs == [{"namespace": "file", "name": f"{tmp_path}/out"}]
