"""When the process that maintains tables is started beside a pipeline, and that there is one at most."""

import io
import json
import subprocess
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.pipeline.run.sinks import VACUUM_S, Upkeep
from penstock.pipeline.spec.parse import parse_spec
from penstock.pipeline.spec.spec import Spec

SINKS: dict[str, dict[str, Any]] = {
    "one": {"input": "s", "path": "one"},
    "two": {"input": "s", "path": "s3://b/two", "compact": True},
    "not": {"input": "s", "path": "not", "compact": False},
    "out": {"input": "s", "topic": "out"},
}


def spec(*sinks: str) -> Spec:
    content = {"name": "p", "sources": {"s": {"topics": ["t"]}}, "storage": {"aws_region": "x"}}
    return parse_spec(content | {"sinks": {name: SINKS[name] for name in sinks}}, "p.toml", Path("/here"))


class Orders(io.BytesIO):
    def close(self) -> None:
        self.seek(0)


class Process:
    """Stands for the process; `running` says whether it still works."""

    made: ClassVar[list["Process"]] = []

    def __init__(self, command: list[str], **how: Any) -> None:
        self.command = command
        self.stdin = Orders()
        self.running = True
        self.ended: list[str] = []
        self.made.append(self)

    def poll(self) -> int | None:
        return None if self.running else 0

    def terminate(self) -> None:
        self.ended.append("terminated")

    def kill(self) -> None:
        self.ended.append("killed")
        self.running = False

    def wait(self, timeout_s: float | None = None) -> int:
        if self.running:
            raise subprocess.TimeoutExpired(self.command, timeout_s or 0)
        return 0

    @property
    def orders(self) -> Any:
        return json.loads(self.stdin.read())


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Process]:
    monkeypatch.setattr(Process, "made", [])
    monkeypatch.setattr(subprocess, "Popen", Process)
    return Process.made


def test_one_process_at_a_time_and_not_too_often(made: list[Process]) -> None:
    now = 1000.0
    upkeep = Upkeep(spec("one", "two", "not", "out"), every_s=60, clock=lambda: now)
    upkeep.batch_over()
    assert made == [], "a pipeline that has just begun has other things to do"
    now = 1060.0
    upkeep.batch_over()
    (first,) = made
    assert first.command[1:] == ["-m", "penstock.pipeline.lake.maintenance"]
    storage = {"aws_region": "x"}
    assert first.orders == [
        {"path": "/here/one", "storage": storage, "vacuum": True},
        {"path": "s3://b/two", "storage": storage, "vacuum": True},
    ]
    now = 1200.0
    upkeep.batch_over()
    assert len(made) == 1, "the first still works"
    first.running = False
    upkeep.batch_over()
    upkeep.batch_over()
    assert len(made) == 2
    made[1].running = False
    assert [order["vacuum"] for order in made[1].orders] == [False, False]
    now += VACUUM_S
    upkeep.batch_over()
    assert made[2].orders[0]["vacuum"] is True


def test_a_pipeline_that_ends_ends_it(made: list[Process]) -> None:
    upkeep = Upkeep(spec("one"), every_s=0)
    upkeep.stop()
    upkeep.batch_over()
    (process,) = made
    upkeep.stop()
    assert process.ended == ["terminated", "killed"]
    upkeep.stop()
    assert process.ended == ["terminated", "killed"], "once"


def test_no_tables_no_process(made: list[Process]) -> None:
    Upkeep(spec("out", "not"), every_s=0).batch_over()
    assert made == []
