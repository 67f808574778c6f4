"""Background work that fails is seen in stats, metrics, readiness, console and log, and holds up nothing else."""

import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.waiting import until

from penstock.engines.storage import FILE_NAME
from penstock.testing.server import Address, running

ADMIN = "/admin/v2/persistent/public/default"
TOPIC = "/topics/public/default/t"
LOGGER = "penstock.runtime.failures"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Address]:
    with running(tmp_path / "data") as server:
        yield server


class Client:
    """A REST consumer that gives back each message whose value is `bad`."""

    def __init__(self, server: Address) -> None:
        self.url = server.url
        options = {
            "subscription_type": "Shared",
            "initial_position": "earliest",
            "max_redeliver_count": 0,
            "negative_ack_redelivery_delay_ms": 0,
        }
        made = httpx.post(f"{self.url}{TOPIC}/subscription/s", json=options)
        assert made.status_code < 300, made.text
        self.consumer = made.json()["base_uri"]

    def publish(self, topic: str, *values: str) -> None:
        messages = [{"value": value} for value in values]
        assert httpx.post(f"{self.url}{topic}", json={"messages": messages}).status_code == 200

    def take(self, count: int) -> list[str]:
        """The next messages, answered."""
        values: list[str] = []

        def came() -> bool:
            found = httpx.get(f"{self.consumer}/messages", params={"timeout": 1000}).json()["messages"]
            for kind, wanted in (("negative", True), ("individual", False)):
                ids = [one["messageId"] for one in found if (one["value"] == "bad") is wanted]
                if ids:
                    body = {"type": kind, "messageIds": ids}
                    answer = httpx.post(f"{self.url}{TOPIC}/subscription/s/cursor", json=body)
                    assert answer.status_code == 200, answer.text
            values.extend(one["value"] for one in found)
            return len(values) >= count

        until(came)
        return values

    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{self.url}{ADMIN}/t/stats").json()["subscriptions"]["s"]
        return found

    def metric(self, name: str, label: str) -> float:
        """The value of the one sample of that name whose labels hold a text."""
        lines = httpx.get(f"{self.url}/metrics").text.splitlines()
        (line,) = [one for one in lines if one.startswith(f"{name}{{") and label in one]
        return float(line.rpartition(" ")[2])

    def get(self, path: str) -> Any:
        return httpx.get(f"{self.url}{path}").json()


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


def test_a_terminated_dead_letter_topic(server: Address, caplog: pytest.LogCaptureFixture) -> None:
    client = Client(server)
    client.publish("/topics/public/default/t-s-DLQ", "first")
    assert httpx.post(f"{server.url}{ADMIN}/t-s-DLQ/terminate").status_code == 200
    caplog.clear()
    with caplog.at_level(logging.INFO):
        client.publish(TOPIC, "good", "bad")
        assert client.take(2) == ["good", "bad"]
        until(lambda: client.stats()["deadLettersFailed"] >= 3)  # it is tried again
        client.publish(TOPIC, "good too")
        assert client.take(1) == ["good too"]

        stats = client.stats()
        assert (stats["deadLettersWaiting"], stats["msgBacklog"], stats["unackedMessages"]) == (1, 1, 0)
        assert "terminated" in stats["deadLetterError"]
        assert client.metric("pulsar_subscription_dead_letters_waiting", 'subscription="s"') == 1
        assert client.metric("pulsar_subscription_dead_letters_failed_total", 'subscription="s"') >= 3
        assert client.metric("penstock_failing", "dead_letter") == 1
        assert client.metric("penstock_failures_total", "dead_letter") >= 3
        assert client.get("/health/ready") == {"status": "ready", "failing": {"dead_letter": 1}}
        (failure,) = client.get("/console/api/server")["failures"]
        assert (failure["kind"], failure["subject"]) == (
            "dead_letter",
            "persistent://public/default/t s",
        )
        assert "terminated" in failure["message"]

        assert httpx.delete(f"{server.url}{ADMIN}/t-s-DLQ", params={"force": "true"}).status_code == 204
        until(lambda: client.stats()["deadLettersWaiting"] == 0)
    assert (client.stats()["msgBacklog"], client.stats()["deadLetterError"]) == (0, None)
    letters = client.get("/topics/public/default/t-s-DLQ/partitions/0/messages")["messages"]
    assert [one["value"] for one in letters] == ["bad"]
    assert client.get("/health/ready") == {"status": "ready"}
    assert client.metric("penstock_failing", "dead_letter") == 0
    assert _lines(caplog) == ["dead letters cannot be stored", "dead letters are stored again"]


def test_a_store_with_a_document_that_cannot_be_read_starts(tmp_path: Path) -> None:
    data = tmp_path / "data"
    namespaces = "/admin/v2/namespaces/public"
    with running(data) as server:
        client = Client(server)
        client.publish(TOPIC, "kept")
        for name in ("one", "two"):
            assert httpx.put(f"{server.url}{namespaces}/{name}").status_code == 204
        granted = httpx.post(f"{server.url}{namespaces}/one/permissions/mary", json=["consume"])
        assert granted.status_code == 204
    rows = sqlite3.connect(data / FILE_NAME)
    with rows:
        changed = rows.execute(
            "UPDATE meta SET document = ? WHERE kind = ? AND key = ?",
            (b'{"permissions": ', "namespace", "public/one"),
        )
        assert changed.rowcount == 1
    rows.close()
    with running(data) as server:
        client = Client(server)
        assert client.take(1) == ["kept"]
        assert client.get("/health/ready")["failing"] == {"document": 1}
        assert client.get(f"{namespaces}/one/permissions") == {}
        assert client.get(f"{namespaces}/two/permissions") == {}
        (failure,) = client.get("/console/api/server")["failures"]
        assert (failure["kind"], failure["subject"]) == ("document", "namespace public/one")
        granted = httpx.post(f"{server.url}{namespaces}/one/permissions/tom", json=["consume"])
        assert granted.status_code == 204
    with running(data) as server:
        assert Client(server).get("/health/ready") == {"status": "ready"}
