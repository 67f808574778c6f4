"""A stream whose server is away: nothing new for a while, and at last an error."""

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.model.errors import ErrorKind, PenstockError
from penstock.pipeline.http.logs import Log, Look
from penstock.pipeline.http.retry import AWAY_S, Outage
from penstock.pipeline.rows import columns
from penstock.pipeline.source import stream as module
from penstock.pipeline.source.marks import Key, LogPosition, Marks, write_marks
from penstock.pipeline.source.stream import TopicStreamReader

START = write_marks(Marks({Key("persistent://public/default/t", 0): LogPosition(7, False, 5)}))


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(module.time, "sleep", found.append)
    return found


def reader_of(slept: list[float]) -> TopicStreamReader:
    made = TopicStreamReader({"url": "http://127.0.0.1:9", "subscribe": "t"}, columns.spark_schema(()))
    made._absence = Outage(AWAY_S, lambda: sum(slept))
    return made


def refusing(kind: ErrorKind) -> Any:
    def ask(*_: Any, **__: Any) -> Look:
        raise PenstockError(kind, "no")

    return ask


def test_it_has_nothing_new_while_the_server_is_away(
    monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    monkeypatch.setattr(module, "ask", refusing(ErrorKind.UNAVAILABLE))
    reader = reader_of(slept)
    while sum(slept) < 80:
        assert reader.latestOffset(START, ReadAllAvailable()) == START
    slept.append(AWAY_S - sum(slept))
    with pytest.raises(PenstockError, match="no"):
        reader.latestOffset(START, ReadAllAvailable())


def test_a_refusal_is_told_at_once(monkeypatch: pytest.MonkeyPatch, slept: list[float]) -> None:
    monkeypatch.setattr(module, "ask", refusing(ErrorKind.FORBIDDEN))
    with pytest.raises(PenstockError, match="no"):
        reader_of(slept).latestOffset(START, ReadAllAvailable())
    assert slept == []


def test_a_batch_below_the_minimum_waits(monkeypatch: pytest.MonkeyPatch, slept: list[float]) -> None:
    name = "persistent://public/default/t"
    latest = [6]

    def ask(*_: Any, **__: Any) -> Look:
        return Look("", [Log(name, 0, False, 7, 0, latest[0], {}, 1)], [])

    monkeypatch.setattr(module, "ask", ask)
    options = {"url": "http://127.0.0.1:9", "subscribe": "t", "minOffsetsPerTrigger": "5"}
    reader = TopicStreamReader(options, columns.spark_schema(()))
    first = reader.latestOffset(START, ReadAllAvailable())
    assert first["offsets"] == {name: {"0": 6}}, "the first batch does not wait"
    latest[0] = 10
    assert reader.latestOffset(first, ReadAllAvailable()) == first
    assert slept == [0.1], "it asks again after the poll interval"
    latest[0] = 11
    assert reader.latestOffset(first, ReadAllAvailable())["offsets"] == {name: {"0": 11}}
    # What ends with what is available now does not wait for more.
    latest[0] = 12
    reader.prepareForTriggerAvailableNow()
    last = write_marks(Marks({Key(name, 0): LogPosition(7, False, 11)}))
    assert reader.latestOffset(last, ReadAllAvailable())["offsets"] == {name: {"0": 12}}
