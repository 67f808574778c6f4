"""What `penstock pipeline` shows: times as times, warnings, and Spark's plan only where it is asked for."""

import json
from pathlib import Path

import pytest

from penstock.cli import output
from penstock.cli.pipeline_show import Display, show_check, show_status, with_times
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


RULES = [{"view": "v", "rule": "small", "kind": "expectation", "action": "drop", "passed": 7, "failed": 2}]


def test_events_of_several_pipelines_are_lines_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with Display(["a", "b"], as_json=True) as display:
        display.watch("a")({"pipeline": "a", "state": "running", "rules": RULES})
        display.watch("b")({"waiting": "Spark"})
        display.watch("a")({"waiting": "the plan"})
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["pipeline"], line["state"], line.get("waiting")) for line in lines] == [
        ("a", "running", None),
        ("b", "starting", "Spark"),
        ("a", "running", "the plan"),
    ]


def test_several_pipelines_are_shown_together_with_their_rules(capsys: pytest.CaptureFixture[str]) -> None:
    with Display(["a", "b"], as_json=False) as display:
        display.watch("a")({"state": "running", "batch": 1, "rules": RULES, "ui": "http://127.0.0.1:4040"})
        display.watch("b")({"state": "failed", "error_class": "plan", "error": "no such topic"})
    shown = capsys.readouterr().out
    for text in ("small", "drop", "http://127.0.0.1:4040", "plan: no such topic"):
        assert text in shown


def test_a_status_has_its_rules_as_a_table_or_as_data(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show_status({"state": "stopped", "rules": RULES})
    assert json.loads(capsys.readouterr().out)["rules"] == RULES
    monkeypatch.setattr(output, "for_people", lambda: True)
    show_status({"state": "stopped", "rules": RULES})
    *_, last = capsys.readouterr().out.strip().splitlines()
    assert last.split() == ["v", "small", "expectation", "drop", "7", "2"]
