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
from penstock.pipeline.run.lineage import lineage_url, table_dataset
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
        ("abfss://c@account.dfs.core.windows.net/t", "abfss://c@account.dfs.core.windows.net", "t"),
    ],
)
def test_tables_have_the_names_of_their_stores(path: str, namespace: str, name: str) -> None:
    assert table_dataset(path) == {"namespace": namespace, "name": name}
