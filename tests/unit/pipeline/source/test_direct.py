"""Ranges that tasks read from brokers: what is lost is said, and ids of schemas are asked for at the server."""

from base64 import b64encode
from collections.abc import Generator, Sequence
from typing import Any

import pytest
from tests.unit.engines.kafka.test_records import Read

from penstock.client.access import Access
from penstock.engines.kafka.driver.ranges import LogEnds
from penstock.engines.kafka.driver.reader import OutOfRange
from penstock.engines.kafka.driver.record import NewRecord, Record
from penstock.engines.kafka.naming import ledger_of
from penstock.model.errors import ErrorKind, PenstockError
from penstock.pipeline.errors import DataLoss, PipelineError
from penstock.pipeline.http.logs import Log, Look
from penstock.pipeline.rows.place import Place
from penstock.pipeline.source import direct
from penstock.pipeline.source.cluster import KafkaTopic, kafka_topics
from penstock.pipeline.source.offsets import Range

NAME = "persistent://public/default/t"
SERVER = Access(url="http://localhost:1")
LEDGER = ledger_of("id", 0)


class Broker:
    """A log as a `RangeReader` reads it."""

    def __init__(self, begin: int, offsets: Sequence[int], values: Sequence[bytes] = ()) -> None:
        self.kept = 0
        self._begin = begin
        values = values or [b"x"] * len(offsets)
        self._records = [Read(at, 7, NewRecord(value)) for at, value in zip(offsets, values, strict=True)]

    def topic_id(self, topic: str) -> str:
        return "id"

    def begin(self, place: tuple[str, int]) -> int:
        return self._begin

    def read(self, place: tuple[str, int], start: int, end: int) -> Generator[Sequence[Record]]:
        if start < self._begin or start > self._records[-1].offset() + 1:
            raise OutOfRange
        for one in self._records:
            if start <= one.offset() < end:
                yield [one]
        if self._records[-1].offset() < end - 1:
            raise LogEnds(self._records[-1].offset() + 1)

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No reader is kept for another test, and nothing waits."""
    monkeypatch.setattr(direct, "_keep", lambda *_: None)
    monkeypatch.setattr(direct.time, "sleep", lambda _: None)


def offsets(
    monkeypatch: pytest.MonkeyPatch,
    broker: Broker,
    start: int,
    end: int,
    *,
    fail: bool = True,
    ledger: int = LEDGER,
) -> list[int]:
    monkeypatch.setattr(direct, "RangeReader", lambda _: broker)
    wanted = Range(NAME, 0, True, ledger, start, end)
    rows = direct.read_direct(
        SERVER, {}, KafkaTopic("t", False), wanted, Place(NAME, 0, ledger), (), fail_on_data_loss=fail
    )
    return [at for batch in rows for at in batch.column("offset").to_pylist()]


def test_gaps_are_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    assert offsets(monkeypatch, Broker(0, [1, 2, 7, 9]), 0, 10) == [1, 2, 7, 9]


def test_what_retention_took_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataLoss, match="offsets 0 to 4 are gone"):
        offsets(monkeypatch, Broker(5, [5, 6]), 0, 7)
    assert offsets(monkeypatch, Broker(5, [5, 6]), 0, 7, fail=False) == [5, 6]


def test_a_log_that_ends_too_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataLoss, match="the log ends at 7, before 9"):
        offsets(monkeypatch, Broker(0, [5, 6]), 5, 9)
    with pytest.raises(DataLoss, match="the log does not have offset 8"):
        offsets(monkeypatch, Broker(0, [5, 6]), 8, 9)
    assert offsets(monkeypatch, Broker(0, [5, 6]), 5, 9, fail=False) == [5, 6]
    assert offsets(monkeypatch, Broker(0, [5, 6]), 8, 9, fail=False) == []


def test_a_topic_of_another_cluster_and_one_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def there(ledger: int) -> None:
        log = Log(NAME, 0, True, ledger, 0, 1)
        monkeypatch.setattr(direct, "look", lambda *_: Look("", [log], []))

    there(LEDGER + 1)
    with pytest.raises(PipelineError, match="they are of another cluster than the server's"):
        offsets(monkeypatch, Broker(0, [0]), 0, 1, ledger=LEDGER + 1)
    there(LEDGER)
    with pytest.raises(DataLoss, match="deleted and made anew"):
        offsets(monkeypatch, Broker(0, [0]), 0, 1, ledger=LEDGER + 1)
    assert offsets(monkeypatch, Broker(0, [0]), 0, 1, fail=False, ledger=LEDGER + 1) == []


def test_ids_are_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def call(client: Any, topic: str, values: Sequence[int], keys: Sequence[int]) -> Any:
        asked.append((topic, list(values), list(keys)))
        known = {"id": 7, "version": 3, "indexes": [b64encode(b"\0").decode()], "for_ms": 0}
        return {"keyed": False, "values": [known], "keys": []}

    monkeypatch.setattr(direct, "id_meanings", call)
    values = [b"\0\0\0\0\7\0first", b"\0\0\0\0\x08other", b"none", b"\0\0\0\0\7\0second"]
    broker = Broker(0, [0, 1, 2, 3], values)
    monkeypatch.setattr(direct, "RangeReader", lambda _: broker)
    rows = direct.read_direct(
        SERVER,
        {},
        KafkaTopic("t", True),
        Range(NAME, 0, True, LEDGER, 0, 4),
        Place(NAME, 0, LEDGER),
        ("schema_version",),
        fail_on_data_loss=True,
    )
    (batch,) = rows
    assert asked == [(NAME, [7, 8], [])]
    assert batch.column("value").to_pylist() == [b"first", values[1], b"none", b"second"]
    assert batch.column("schema_version").to_pylist() == [3, None, None, 3]


class Server:
    """Refuses, as a server that is not before Kafka."""

    url = SERVER.url

    def call(self, method: str, path: str, *, body: Any = None) -> Any:
        raise PenstockError(ErrorKind.NOT_SUPPORTED, "the engine behind this server has no records")


def test_another_engine_is_refused_with_the_way_out() -> None:
    with pytest.raises(PipelineError, match="leave out fetch and kafka") as caught:
        kafka_topics(Server(), [NAME])
    assert caught.value.kind is ErrorKind.NOT_SUPPORTED
