"""The driver takes nothing for committed before the counts agree."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.client.access import Access
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.errors import BatchConflict, PipelineError
from penstock.pipeline.http.stages import StageCount
from penstock.pipeline.run.failures import ErrorClass, cause_of
from penstock.pipeline.sink.entries import PublishingWriter
from penstock.pipeline.sink.writer import Identity, commit

T = "persistent://public/default/t"
DEAD = "persistent://public/default/dead"
WHO = Identity("job", 7, 0)
STAGES = [StageCount("0-1-a", 1, 5, 100)]


class Server:
    """In the place of the client: answers every commit in the same way."""

    def __init__(self, spans: dict[str, int] | None = None, *, repeated: bool = False) -> None:
        self.spans, self.repeated = spans or {}, repeated
        self.error: PenstockError | None = None
        self.asked: tuple[Any, ...] = ()

    def __call__(self, access: Access) -> "Server":
        return self

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def commit(
        self,
        writer: str,
        batch: int,
        stages: Sequence[StageCount],
        topics: Sequence[TopicName],
        *,
        keep: bool,
    ) -> Any:
        self.asked = (writer, batch, list(stages), [str(topic) for topic in topics], keep)
        if self.error is not None:
            raise self.error
        spans = [
            {"topic": topic, "offset": 40, "end_offset": 40 + count, "messages": count}
            for topic, count in self.spans.items()
        ]
        return {"writer": writer, "batch": batch, "repeated": self.repeated, "topics": topics, "spans": spans}


def committed(monkeypatch: pytest.MonkeyPatch, server: Server, rows: dict[str, int]) -> None:
    monkeypatch.setattr("penstock.pipeline.sink.writer.Stages", server)
    commit(Access(url="http://127.0.0.1:1"), WHO, [TopicName.parse(T)], STAGES, rows, keep=True)


def test_partitions_of_a_topic_count_together(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server({f"{T}-partition-0": 3, f"{T}-partition-1": 2, DEAD: 1})
    committed(monkeypatch, server, {T: 5, DEAD: 1})
    assert server.asked == ("job", 7, STAGES, [T], True)
    assert not caplog.records, "what is new is nothing to tell"


def test_a_repeat_is_logged_with_its_numbers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        committed(monkeypatch, Server({T: 5, DEAD: 1}, repeated=True), {T: 5, DEAD: 1})
    assert (
        f"writer job, batch 7 is committed already (1 messages to {DEAD}, 5 messages to {T})" in caplog.text
    )


@pytest.mark.parametrize("repeated", [True, False])
@pytest.mark.parametrize(
    "spans", [{}, {T: 4, DEAD: 1}, {T: 6, DEAD: 1}, {T: 5}, {T: 5, DEAD: 1, f"{T}-2": 1}]
)
def test_other_counts_than_the_rows_fail_the_query(
    monkeypatch: pytest.MonkeyPatch, spans: dict[str, int], repeated: bool
) -> None:
    with pytest.raises(
        PipelineError, match=r"writer job, batch 7: .* committed \d messages to .* the batch has \d"
    ) as caught:
        committed(monkeypatch, Server(spans, repeated=repeated), {T: 5, DEAD: 1})
    assert "docs/spark.md" in caught.value.message
    assert cause_of(caught.value).kind is ErrorClass.PLAN


def test_a_conflict_of_the_servers_is_told_with_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    server.error = PenstockError(ErrorKind.BATCH_CONFLICT, "writer job has committed batch 9")
    with pytest.raises(
        BatchConflict,
        match="has committed batch 9; the batch that came has 5 messages, and nothing of it was written; batch numbers of a writer",
    ):
        committed(monkeypatch, server, {T: 5})
    server.error = PenstockError(ErrorKind.FORBIDDEN, "role x may not use writer job")
    with pytest.raises(PenstockError, match="may not use writer job") as caught:
        committed(monkeypatch, server, {T: 5})
    assert caught.value.kind is ErrorKind.FORBIDDEN


@pytest.mark.parametrize(
    ("stored", "fails"),
    [((7 << 32) + 4, False), ((7 << 32) + 5, True), (8 << 32, True), ((7 << 32) + 3, True)],
)
def test_numbered_messages_end_where_the_topic_does(stored: int, fails: bool) -> None:
    entry_writer = PublishingWriter(Access(url="http://127.0.0.1:1"), deduplicate=True)

    def publish(body: bytes, *, deduplicate: bool) -> Any:
        return {"results": [{"topic": T, "repeats": 1, "last_sequence_id": stored}]}

    entry_writer.stages.publish = publish  # type: ignore[method-assign]
    with entry_writer:
        entry_writer.send(0, b"")
        if fails:
            with pytest.raises(BatchConflict, match=r"the task ends at message 4 of batch 7"):
                entry_writer.confirm({T: (7 << 32) + 4})
        else:
            entry_writer.confirm({T: (7 << 32) + 4})
