"""`storage.size_max_bytes`: at the bound publishes are refused, and all that makes room goes on."""

from pathlib import Path

import pytest
from tests.support.disk import call
from tests.support.waiting import until

import penstock
from penstock.testing.server import launch

pytestmark = pytest.mark.timeout(120)

BOUND = 128 << 20  # the least there is
LARGE = "x" * 4_000_000
TOPIC = "/topics/public/default/t"
ADMIN = "/admin/v2/persistent/public/default/t"


def test_publishes_are_refused_until_there_is_room(tmp_path: Path) -> None:
    flags = ("--set", f"storage.size_max_bytes={BOUND}", "--set", "broker.keep_check_ms=20")
    with launch(tmp_path / "data", *flags) as server:
        assert call(server.port, "PUT", f"{ADMIN}/subscription/s", "earliest")[0] == 204
        stored = 0
        while True:
            status, body = call(server.port, "POST", TOPIC, {"messages": [{"value": LARGE}]})
            if status != 200:
                break
            stored += 1
        assert (status, body["error_code"]) == (503, 50302)
        assert "storage.size_max_bytes" in body["message"]
        assert stored * len(LARGE) > BOUND // 3
        size = sum(file.stat().st_size for file in (tmp_path / "data").iterdir())
        assert size <= BOUND
        # It is ready: out of service, consumers could not make room.
        status, body = call(server.port, "GET", "/health/ready")
        assert (status, body["status"], body["reason"]) == (200, "ready", "size_limit")
        page = call(server.port, "GET", "/metrics")[1].decode()
        assert 'penstock_storage_failing{cause="limit"} 1.0' in page
        assert f"penstock_storage_size_max_bytes {BOUND:.12g}".split()[0] in page
        with (
            penstock.Client(server.pulsar, operation_timeout_seconds=1) as client,
            pytest.raises(penstock.PulsarException),
        ):
            client.create_producer("persistent://public/default/t", send_timeout_millis=500).send(b"x")

        assert call(server.port, "POST", f"{ADMIN}/subscription/s/skip_all")[0] == 204
        nothing = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
        assert call(server.port, "POST", f"{ADMIN}/retention", nothing)[0] == 204
        until(lambda: "reason" not in call(server.port, "GET", "/health/ready")[1])
        for _ in range(5):
            assert call(server.port, "POST", TOPIC, {"messages": [{"value": LARGE}]})[0] == 200
        assert sum(file.stat().st_size for file in (tmp_path / "data").iterdir()) <= BOUND
