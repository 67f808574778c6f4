"""What `penstock pipeline` shows: times as times, warnings, and Spark's plan only where it is asked for."""

import json
from pathlib import Path

import pytest

from penstock.cli import output
from penstock.cli.pipeline_show import show_check, with_times
from penstock.pipeline.run.query import Checked
from penstock.pipeline.spec.options import future_starts
from penstock.pipeline.spec.parse import parse_spec

AT = 1_769_846_400_123
FUTURE = "9000-01-01T00:00:00Z"


def test_times_of_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    event = {"at": AT, "watermark": None, "batch": 7}
    assert with_times(event) == {"at": "2026-01-31T08:00:00.123Z", "watermark": None, "batch": 7}
    monkeypatch.setattr(output, "for_people", lambda: True)
    shown = with_times(event)["at"]
    assert shown.startswith("2026-0")
    assert shown.count(" ") == 2, "a date, a time and a zone"


@pytest.mark.parametrize("plan", [False, True])
def test_a_check_shows_the_plan_on_demand_and_warns(
    plan: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = {"topics": ["in"], "start": FUTURE}
    content = {"name": "p", "sources": {"s": source}, "sinks": {"o": {"input": "s", "topic": "out"}}}
    spec = parse_spec(content, "p.toml", tmp_path)
    checked = Checked(
        views={}, sinks={}, plan="Project", deliveries=[], readings=1, limits=["[sources.s] all"]
    )
    show_check(spec, checked, as_json=True, plan=plan)
    found = json.loads(capsys.readouterr().out)
    assert found.get("plan") == ("Project" if plan else None)
    (warning,) = found["warnings"]
    assert warning.startswith(f"p.toml: [sources.s] start: {FUTURE} is in the future")


def test_a_future_start_of_one_partition_is_warned_of(tmp_path: Path) -> None:
    source = {"topics": ["in"], "start": {"in": {"0": "2026-01-31T08:00:00Z", "1": FUTURE}}}
    content = {"name": "p", "sources": {"s": source}, "sinks": {"o": {"input": "s", "topic": "out"}}}
    (warning,) = future_starts(parse_spec(content, "p.toml", tmp_path), AT + 1000)
    assert warning.startswith(
        f"p.toml: [sources.s] start: {FUTURE} is in the future: partition 1 of in begins"
    )
    content["sources"] = {"s": source | {"start": {"in": {"0": 7}}}}
    assert future_starts(parse_spec(content, "p.toml", tmp_path), 0) == []
