"""What a server says of itself at /metrics, in its logs, as spans, and about its WebSockets."""

import json
import logging
import random
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families
from tests.support.rest import RestServer
from websockets.sync.client import connect

from penstock.protocols.audit import Audit
from penstock.protocols.http.exchange import Exchange
from penstock.server.config import TraceSettings
from penstock.server.dispatch import Application, Endpoint
from penstock.server.metrics.requests import RequestMetrics
from penstock.server.origins import Origins
from penstock.server.tracing import Tracing
from penstock.testing.server import Address, running

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TOPIC = "/topics/public/default/t"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Address]:
    with running(tmp_path / "data") as server:
        yield server


def samples(server: Address) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels, in the order of their names."""
    response = httpx.get(f"{server.url}/metrics")
    assert response.status_code == 200
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(response.text):
        for sample in family.samples:
            key = (sample.name, *(value for _, value in sorted(sample.labels.items())))
            assert key not in found, f"{key} twice"
            found[key] = sample.value
    return found


def produce(server: Address, *values: str, **headers: str) -> None:
    body = {"messages": [{"value": value} for value in values]}
    assert httpx.post(server.url + TOPIC, json=body, headers=headers).status_code == 200


def test_pulsars_names_and_our_own(server: Address) -> None:
    produce(server, "a", "b", "c")
    made = httpx.post(f"{server.url}{TOPIC}/subscription/s", json={"initial_position": "earliest"})
    assert made.status_code < 300
    httpx.get(f"{server.url}/nothing")
    first = samples(server)
    topic = ("standalone", "public/default", "persistent://public/default/t")
    assert first["pulsar_in_messages_total", *topic] == 3
    assert first["pulsar_subscription_back_log", *topic[:2], "s", topic[2]] == 3
    assert first["pulsar_storage_size", *topic] > 0
    latency = [value for key, value in first.items() if key[0].startswith("pulsar_storage_write_latency_le_")]
    latency.append(first["pulsar_storage_write_latency_overflow", *topic])
    assert sum(latency) == first["pulsar_storage_write_latency_count", *topic] > 0
    assert first["penstock_http_requests_total", "topics", "POST", "200"] >= 1
    assert first["penstock_http_requests_total", "pages", "GET", "404"] == 1
    assert first["penstock_commit_duration_seconds_count",] > 0
    assert first["penstock_commit_operations_waiting",] == 0
    assert first["process_open_fds",] > 0
    produce(server, "d")
    second = samples(server)
    assert second["pulsar_in_messages_total", *topic] == 4
    assert (
        second["penstock_commit_duration_seconds_count",] > first["penstock_commit_duration_seconds_count",]
    )
    assert second["penstock_http_request_duration_seconds_count", "metrics"] == 1


def test_open_metrics_where_it_is_asked_for(server: Address) -> None:
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}
    response = httpx.get(f"{server.url}/metrics", headers=accept)
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")
    assert httpx.post(f"{server.url}/metrics").status_code == 405
    assert httpx.head(f"{server.url}/metrics").content == b""
    assert httpx.get(f"{server.url}/metrics/more").status_code == 404


def test_what_pipelines_say(server: Address) -> None:
    events = [
        {"pipeline": "delays", "state": "running", "batch": 1, "rows": 10, "lag": 5, "at": 1000},
        {"pipeline": "delays", "state": "failed", "batch": 2, "rows": 20, "lag": 0, "at": 2000},
        {"pipeline": 7},
    ]
    body = {"messages": [{"key": "delays", "value": json.dumps(event)} for event in events]}
    httpx.post(f"{server.url}/topics/penstock/system/pipelines", json=body).raise_for_status()
    found = samples(server)
    assert found["penstock_pipeline_batch", "delays"] == 2
    assert found["penstock_pipeline_rows", "delays"] == 20
    assert found["penstock_pipeline_state", "delays", "failed"] == 1
    assert found["penstock_pipeline_state", "delays", "running"] == 0
    body = {"messages": [{"value": json.dumps({"pipeline": "delays", "state": "idle", "batch": 3})}]}
    httpx.post(f"{server.url}/topics/penstock/system/pipelines", json=body).raise_for_status()
    assert samples(server)["penstock_pipeline_batch", "delays"] == 3


def test_a_trace_goes_on_through_messages(server: Address) -> None:
    produce(server, "plain")
    produce(server, "traced", traceparent=PARENT, tracestate="a=1")
    read = httpx.get(f"{server.url}{TOPIC}/partitions/0/messages").json()["messages"]
    assert [message.get("properties", {}) for message in read] == [
        {},
        {"traceparent": PARENT, "tracestate": "a=1"},
    ]
    kafka = httpx.post(
        f"{server.url}/kafka/topics/t/partitions/0/messages",
        content=b"by Kafka",
        headers={"traceparent": PARENT, "content-type": "text/plain"},
    )
    path = f"{server.ws}/ws/v2/producer/persistent/public/default/t"
    with connect(path, additional_headers={"traceparent": PARENT}) as socket:
        socket.send(json.dumps({"payload": b64encode(b"by socket").decode()}))
        assert json.loads(socket.recv())["result"] == "ok"
    last = httpx.get(f"{server.url}{TOPIC}/partitions/0/messages").json()["messages"]
    traced = [message for message in last if message.get("properties", {}).get("traceparent") == PARENT]
    assert len(traced) == 2 + (kafka.status_code == 204)


def test_the_proxys_statistics(server: Address) -> None:
    stats = f"{server.url}/admin/v2/proxy-stats"
    assert httpx.get(f"{stats}/stats").json() == {}
    topic = "persistent/public/default/t"
    with (
        connect(f"{server.ws}/ws/v2/consumer/{topic}/s") as consumer,
        connect(f"{server.ws}/ws/v2/producer/{topic}") as producer,
    ):
        producer.send(json.dumps({"payload": b64encode(b"hello").decode()}))
        assert json.loads(producer.recv())["result"] == "ok"
        delivered = json.loads(consumer.recv())
        consumer.send(
            json.dumps({"messageId": delivered["messageId"], "context": "c", "type": "acknowledge"})
        )
        assert json.loads(consumer.recv())["result"] == "ok"
        found = httpx.get(f"{stats}/{topic}/stats").json()
        (publisher,) = found["producerStats"]
        assert publisher["numberOfMsgPublished"] == 1
        assert publisher["remoteConnection"].startswith("127.0.0.1:")
        (subscriber,) = found["consumerStats"]
        assert subscriber["subscriptionName"] == "s"
        assert subscriber["subscriptionType"] == "Exclusive"
        assert subscriber["numberOfMsgDelivered"] == 1
        (namespace,) = httpx.get(f"{stats}/metrics").json()
        assert namespace["dimensions"] == {"namespace": "public/default"}
        for name in ("ns_msg_publish_rate", "ns_msg_deliver_rate", "ns_msg_ack_rate"):
            assert namespace["metrics"][name] > 0, name
        assert sum(v for k, v in namespace["metrics"].items() if "latency" in k) == 1
    assert httpx.get(f"{stats}/persistent/public/default/none/stats").status_code == 404


async def test_the_access_log_has_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    async with RestServer.open() as server:
        server.app.requests.log_access = True
        async with asking(server.app.asgi) as client:
            with caplog.at_level(logging.INFO, "penstock.access"):
                await client.get(
                    f"{TOPIC}/partitions/0/messages?token=secret", headers={"authorization": "Bearer secret"}
                )
    (record,) = [record for record in caplog.records if record.name == "penstock.access"]
    said = vars(record)
    assert said["path"] == f"{TOPIC}/partitions/0/messages"
    assert said["status"] == 404
    assert "secret" not in str(said)


def traced(endpoint: Endpoint, tracing: Tracing) -> Application:
    """An application that answers every request by one endpoint."""
    return Application({}, {}, endpoint, Origins((), Audit()), RequestMetrics(), tracing)


def asking(app: Application) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://here")


async def test_spans_take_the_place_of_the_parent() -> None:
    seen: list[dict[bytes, bytes]] = []

    async def inner(exchange: Exchange) -> None:
        seen.append(dict(exchange.scope["headers"]))
        await exchange.whole(503, [], b"")

    spans = InMemorySpanExporter()
    tracing = Tracing(TraceSettings(), SimpleSpanProcessor(spans))
    async with asking(traced(inner, tracing)) as client:
        await client.get("/topics/a/b/c", headers={"traceparent": PARENT, "tracestate": "a=1"})
    tracing.close()
    (span,) = spans.get_finished_spans()
    assert span.name == "GET /topics"
    assert span.attributes is not None
    assert span.attributes["http.response.status_code"] == 503
    assert f"{span.context.trace_id:032x}" == PARENT.split("-")[1]
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == PARENT.split("-")[2]
    parent = seen[0][b"traceparent"].decode().split("-")
    assert parent[1:3] == [f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"]
    assert seen[0][b"tracestate"] == b"a=1"


async def test_ids_of_spans_leave_the_random_module_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(bits: int) -> int:
        raise AssertionError("the state of the random module is the application's")

    monkeypatch.setattr(random, "getrandbits", draw)
    spans = InMemorySpanExporter()

    async def inner(exchange: Exchange) -> None:
        await exchange.whole(204, [], None)

    tracing = Tracing(TraceSettings(), SimpleSpanProcessor(spans))
    async with asking(traced(inner, tracing)) as client:
        for _ in range(3):
            await client.get("/topics/a/b/c")
    tracing.close()
    assert len({span.context.trace_id for span in spans.get_finished_spans()}) == 3
