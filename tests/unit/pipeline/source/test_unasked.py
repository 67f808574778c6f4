"""A stream's reader for versions of Spark that do not say where a batch begins: it remembers."""

from typing import Any

import pytest

from penstock.pipeline.errors import DataLoss
from penstock.pipeline.http.logs import Log, Look
from penstock.pipeline.rows import columns
from penstock.pipeline.source.marks import Key, LogPosition, Marks, write_marks
from penstock.pipeline.source.stream import TopicStreamReader
from penstock.pipeline.source.unasked import UnaskedStreamReader


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the reader is asked, as Spark 4.2 would ask it."""
    starts: list[Any] = []

    def latest(self: TopicStreamReader, start: Any, limit: Any) -> Any:
        starts.append(start)
        return {"n": start["n"] + 1}

    monkeypatch.setattr(TopicStreamReader, "latestOffset", latest)
    monkeypatch.setattr(TopicStreamReader, "initialOffset", lambda self: {"n": 0})
    monkeypatch.setattr(TopicStreamReader, "partitions", lambda self, start, end: [])
    monkeypatch.setattr(TopicStreamReader, "reportLatestOffset", lambda self: {"n": 100})
    monkeypatch.setattr(TopicStreamReader, "getDefaultReadLimit", lambda self: None)
    monkeypatch.setattr(TopicStreamReader, "_look", lambda self, wait_ms: None)
    return starts


def test_each_batch_begins_where_the_last_one_ended(asked: list[Any]) -> None:
    reader = UnaskedStreamReader.__new__(UnaskedStreamReader)
    assert reader.initialOffset() == {"n": 0}
    assert [reader.latestOffset(), reader.latestOffset()] == [{"n": 1}, {"n": 2}]
    assert asked == [{"n": 0}, {"n": 1}]


def test_a_query_that_is_started_again_takes_what_is_there(asked: list[Any]) -> None:
    reader = UnaskedStreamReader.__new__(UnaskedStreamReader)
    assert reader.latestOffset() == {"n": 100}
    assert reader.latestOffset() == {"n": 101}
    assert asked == [{"n": 100}]


def test_a_batch_that_is_run_again_says_where_the_next_begins(asked: list[Any]) -> None:
    reader = UnaskedStreamReader.__new__(UnaskedStreamReader)
    reader.partitions({"n": 3}, {"n": 5})
    assert reader.latestOffset() == {"n": 6}
    assert asked == [{"n": 5}]


TOPIC = "persistent://public/default/t"


def mark(offset: int, ledger: int = 7) -> dict[str, Any]:
    return write_marks(Marks({Key(TOPIC, 0): LogPosition(ledger, False, offset)}))


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> UnaskedStreamReader:
    """Of a log with the offsets from 8 to 19."""

    def see(self: TopicStreamReader, wait_ms: int) -> Look:
        self._seen = Look("", [Log(TOPIC, 0, False, 7, 8, 20)], [])
        return self._seen

    monkeypatch.setattr(TopicStreamReader, "_look", see)
    return UnaskedStreamReader({"url": "http://127.0.0.1:9", "subscribe": "t"}, columns.spark_schema(()))


@pytest.mark.parametrize(
    ("start", "loss"),
    [
        (mark(5), "offsets 5 to 7 are gone"),
        (mark(9, ledger=6), "was deleted and made anew"),
        (mark(21), "had come to 21, but the log ends at 20"),
    ],
)
def test_what_was_lost_between_two_runs_is_told(
    reader: UnaskedStreamReader, start: dict[str, Any], loss: str
) -> None:
    end = reader.latestOffset()
    assert end == mark(20)
    with pytest.raises(DataLoss, match=loss):
        reader.partitions(start, end)


def test_the_first_batch_of_a_run_reads_from_where_the_last_run_ended(reader: UnaskedStreamReader) -> None:
    (task,) = reader.partitions(mark(10), reader.latestOffset())
    assert (task.wanted.start, task.wanted.end) == (10, 20)
