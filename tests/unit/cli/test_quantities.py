"""Durations, sizes, times and places as people write them; and a question before what cannot be undone."""

import time
from typing import Any

import click
import pytest

from penstock.cli.actions import sure
from penstock.cli.messages.read import _place
from penstock.cli.quantities import DURATION, MOMENT, SIZE, moment_ms, position
from penstock.cli.typed import ParamType


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (DURATION, "90", 90),
        (DURATION, "90s", 90),
        (DURATION, "2H", 7200),
        (DURATION, "1w", 604_800),
        (DURATION, "-1", -1),
        (SIZE, "512", 512),
        (SIZE, "512K", 524_288),
        (SIZE, "10g", 10 << 30),
        (SIZE, "10GiB", 10 << 30),
        (SIZE, "-1", -1),
        (MOMENT, "1000", 1000),
        (MOMENT, "1970-01-01T00:00:01+00:00", 1000),
        (MOMENT, "1970-01-01T01:00:01+01:00", 1000),
        (MOMENT, "0001-01-01", 0),
    ],
)
def test_quantities(kind: ParamType[int], text: str, value: int) -> None:
    assert kind.convert(text, None, None) == value


@pytest.mark.parametrize(
    ("kind", "text"), [(DURATION, "1x"), (DURATION, "-2"), (SIZE, "1X"), (MOMENT, "soon")]
)
def test_what_is_none(kind: ParamType[int], text: str) -> None:
    with pytest.raises(click.BadParameter):
        kind.convert(text, None, None)


def test_a_time_without_a_zone_is_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert MOMENT.convert("1970-01-02T00:00:01", None, None) == 86_401_000
        assert _place("1970-01-02T00:00:01") == {"publish_time": 86_401_000}
    finally:
        monkeypatch.undo()
        time.tzset()
    assert [_place(text) for text in ("0001-01-01", "7", "earliest")] == [
        {"publish_time": 0},
        {"offset": 7},
        {"message_id": "earliest"},
    ]


def test_how_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 10_000.0)
    assert MOMENT.convert("2h", None, None) == 2_800_000
    assert MOMENT.convert("9w", None, None) == 0


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", "earliest"),
        ("CAAQAw==", "CAAQAw=="),
        ("3:0", {"ledgerId": 3, "entryId": 0, "partitionIndex": -1}),
        ("3:7:0", {"ledgerId": 3, "entryId": 7, "partitionIndex": 0}),
    ],
)
def test_places(text: str, place: Any) -> None:
    assert position(text) == place


class Terminal:
    """A stream that says whether it is a terminal, and takes what is written."""

    def __init__(self, there: bool) -> None:
        self._there = there

    def isatty(self) -> bool:
        return self._there

    def write(self, text: str) -> None: ...
    def flush(self) -> None: ...


@pytest.mark.parametrize("answer", [True, False])
def test_a_person_is_asked(answer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def confirm(text: str, **more: Any) -> bool:
        asked.append(text)
        return answer

    monkeypatch.setattr(click, "confirm", confirm)
    monkeypatch.setattr("sys.stdin", Terminal(False))
    monkeypatch.setattr("sys.stderr", Terminal(True))
    sure(False, "delete it")  # a program is not asked
    monkeypatch.setattr("sys.stdin", Terminal(True))
    sure(True, "delete it")
    assert asked == []
    if answer:
        sure(False, "delete it")
    else:
        with pytest.raises(click.ClickException, match="nothing was changed"):
            sure(False, "delete it")
    assert asked == ["This will delete it. Go on?"]


def test_units_of_times_in_capitals() -> None:
    assert moment_ms("2H") is not None


def test_where_a_read_begins() -> None:
    assert _place("17") == {"offset": 17}
    assert _place("1970-01-01T00:00:01+00:00") == {"publish_time": 1000}
    assert _place("1900-01-01T00:00:00+00:00") == {"publish_time": 0}
    assert _place("0001-01-01") in ({"publish_time": 0}, {"message_id": "0001-01-01"})
