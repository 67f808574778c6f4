"""A stream's reader for versions of Spark that do not say where a batch begins: it remembers."""

from typing import Any

import pytest

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
