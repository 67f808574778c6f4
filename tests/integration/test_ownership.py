"""What a process before Kafka says of the partitions that it owns: its metrics, and whether it is ready."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.server import RunningServer

from penstock.broker.cluster import ClusterFigures, Ownership
from penstock.runtime.statistics import SECONDS, Histogram

pytestmark = pytest.mark.anyio


async def test_ownership_is_measured_and_a_refusal_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    saves = Histogram(SECONDS)
    saves.observe(0.004)
    figures: dict[str, Any] = {
        "slots": 21,
        "doubts": 2,
        "saves": saves,
        "misfits": {"recreated": 3},
        "removed": 4,
    }
    shown = ClusterFigures(ownership=Ownership(**figures))
    cluster = SimpleNamespace(figures=lambda: shown)
    async with RunningServer.open() as server:
        monkeypatch.setattr(server.broker, "cluster", cluster)
        lines = (await server.client.get("/metrics")).text.splitlines()
        for line in (
            "penstock_kafka_slots_owned 21.0",
            "penstock_kafka_ownership_refused 0.0",
            "penstock_kafka_lease_doubts_total 2.0",
            'penstock_kafka_cursor_misfits_total{reason="recreated"} 3.0',
            "penstock_kafka_cursors_removed_total 4.0",
            "penstock_kafka_cursor_save_duration_seconds_count 1.0",
        ):
            assert line in lines, line
        assert (await server.client.get("/health/ready")).status_code == 200
        shown = ClusterFigures(ownership=Ownership(**figures, refusal="no right to the group"))
        assert "penstock_kafka_ownership_refused 1.0" in (await server.client.get("/metrics")).text
        refused = await server.client.get("/health/ready")
        assert (refused.status_code, refused.json()["reason"]) == (503, "subscriptions_refused")
        assert "no right to the group" in refused.json()["message"]
        shown = ClusterFigures()
        assert (await server.client.get("/health/ready")).status_code == 200
        assert "slots_owned" not in (await server.client.get("/metrics")).text
