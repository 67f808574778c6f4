"""What a stranger, or a role with few rights, may try: requests of any size, numbers that nobody means."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.protocols.rest.logs import LOGS_MAX, PATTERNS_MAX, TIMES_MAX
from penstock.testing.credentials import Issuer
from penstock.testing.server import Address, running
from penstock.wire.batch import pack_plain
from penstock.wire.bulk import batch_entry, pack_sections

A = "/admin/v2/persistent/public/default"
GRANTS = "/admin/v2/namespaces/public/default/permissions"
HUGE = 10**17
issuer = Issuer()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    with running(tmp_path_factory.mktemp("data"), auth=issuer.settings(super_users=("root",))) as address:
        yield address


def as_(role: str, server: Address) -> httpx.Client:
    return httpx.Client(base_url=server.url, headers=issuer.headers(role), trust_env=False, timeout=60)


@pytest.fixture
def root(server: Address) -> Iterator[httpx.Client]:
    with as_("root", server) as client:
        client.post("/topics/public/default/t", json={"messages": [{"value": "x"}]})
        yield client


@pytest.mark.parametrize("bounds", [(HUGE, -1), (-1, HUGE), (1 << 31, 1), (-2, 1)])
def test_retention_has_an_end(root: httpx.Client, bounds: tuple[int, int]) -> None:
    body = dict(zip(("retentionTimeInMinutes", "retentionSizeInMB"), bounds, strict=True))
    for path in (f"{A}/t/retention", "/admin/v2/namespaces/public/default/retention"):
        refused = root.post(path, json=body)
        assert refused.status_code == 400
        assert "retention's bounds" in refused.json()["message"]


def test_times_beyond_all_time(root: httpx.Client) -> None:
    assert root.put(f"{A}/t/subscription/s").status_code in (204, 409)
    for path in (f"subscription/s/expireMessages/{HUGE}", f"all_subscription/expireMessages/{HUGE}"):
        assert root.post(f"{A}/t/{path}").status_code == 204
    assert root.post(f"{A}/t/subscription/s/resetcursor/{10**18 - 1}").status_code == 204


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("offsets", {"topics": ["t"] * (LOGS_MAX + 1)}),
        ("offsets", {"patterns": [{"namespace": "public/default", "regex": "a"}] * (PATTERNS_MAX + 1)}),
        ("offsets", {"topics": ["t"], "publish_times": [0] * (TIMES_MAX + 1)}),
        ("sizes", {"ranges": [{"topic": "t", "partition": 0, "offset": 0}] * (LOGS_MAX + 1)}),
        (
            "cursors",
            {
                "subscription": "s",
                "marks": [{"topic": "t", "partition": 0, "ledger": 0, "offset": 0}] * (LOGS_MAX + 1),
            },
        ),
    ],
)
def test_how_much_one_request_asks_for(root: httpx.Client, path: str, body: dict[str, Any]) -> None:
    refused = root.post(f"/topics/{path}", json=body)
    assert refused.status_code == 400
    assert "length <=" in refused.json()["message"]


def test_a_pattern_holds_up_nobody(root: httpx.Client) -> None:
    assert root.put(f"{A}/{'a' * 60}").status_code in (204, 409)
    asked = {"patterns": [{"namespace": "public/default", "regex": "(a+)+b"}]}  # Python's would take for ever
    assert root.post("/topics/offsets", json=asked).json()["topics"] == []


def test_a_wait_for_patterns_ends_with_the_permission(server: Address, root: httpx.Client) -> None:
    assert root.post(f"{GRANTS}/watcher", json=["consume"]).status_code == 204
    answers: list[httpx.Response] = []
    with as_("watcher", server) as watcher:
        asked: dict[str, Any] = {"patterns": [{"namespace": "public/default", "regex": ".*"}]}
        seen = watcher.post("/topics/offsets", json=asked).json()["seen"]

        def wait() -> None:
            answers.append(watcher.post("/topics/offsets", json={**asked, "seen": seen, "wait_ms": 20_000}))

        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(0.3)  # it is on its way, or waits already; either is to end so
        assert root.delete(f"{GRANTS}/watcher").status_code == 204
        thread.join(30)
        assert not thread.is_alive()
    assert answers[0].status_code == 403


def test_what_a_writer_committed_is_nobody_elses_business(server: Address, root: httpx.Client) -> None:
    topic = "persistent://public/default/staged"
    assert root.put(f"{A}/staged").status_code in (204, 409)
    entry = batch_entry(pack_plain([b"x"]), 1, producer="p", sequence_id=0, publish_time=1)
    body = b"".join(pack_sections([(topic, [entry])]))
    kind = {"content-type": "application/vnd.penstock.sections"}
    held = {"messages": 1, "size_bytes": len(entry)}
    assert root.put("/stages/w/5/s/0", content=body, headers=kind).json() == held
    declared = {"stage": "s", "parts": 1, "messages": 1, "size_bytes": len(entry)}
    assert root.post("/stages/w/5/commit", json={"stages": [declared]}).status_code == 200
    assert root.put("/stages/w/5/s/0", content=body, headers=kind).json() == held
    with as_("nobody", server) as nobody:
        for given in (body, b""):
            refused = nobody.put("/stages/w/5/s/0", content=given, headers=kind)
            assert refused.status_code in (400, 403)
            assert "messages" not in refused.json()


def test_what_is_stored_is_its_owners_alone(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir(mode=0o755)
    for folder, mode in ((tmp_path / "made", 0o700), (there, 0o755)):
        with running(folder) as server:
            httpx.post(f"{server.url}/topics/public/default/t", json={"messages": [{"value": "x"}]})
            modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
        assert folder.stat().st_mode & 0o777 == mode
        modes.pop("penstock.lock")
        assert set(modes.values()) == {0o600}, modes
