"""A run that is over soon is known by what its topics hold, and by how far its checkpoint went."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.model.errors import ErrorKind, PenstockError
from penstock.pipeline.run.folder import Folder
from penstock.pipeline.run.preflight import BYTES_MAX, MESSAGES_MAX, is_short, last_marks
from penstock.pipeline.source.marks import Key, LogPosition, Marks, write_marks
from penstock.pipeline.spec.parse import load_spec
from penstock.pipeline.spec.spec import Spec

TOPIC = "persistent://public/default/in"


class Server:
    """Answers with one topic of two partitions."""

    url = "http://nowhere"

    def __init__(self, messages: int, size: int = 0) -> None:
        logs = [{"ledger": 7, "earliest": 10, "latest": 10 + messages, "bytes": size}] * 2
        self._topic = {"topic": TOPIC, "partitioned": True, "partitions": logs}

    def call(self, method: str, path: str, *, body: Any = None) -> Any:
        assert (method, path, body["topics"]) == ("POST", "/topics/offsets", [TOPIC])
        return {"changed": True, "seen": "", "topics": [self._topic], "missing": []}


class Refusing:
    url = "http://nowhere"

    def call(self, method: str, path: str, *, body: Any = None) -> Any:
        raise PenstockError(ErrorKind.NOT_SUPPORTED, "no")


def checkpoint(folder: Path, *offsets: int, over: int) -> None:
    """One whose batches ended at these offsets, and of which so many are over."""
    for name in ("offsets", "commits"):
        (folder / "checkpoint" / name).mkdir(parents=True)
    for batch, offset in enumerate(offsets):
        marks = Marks({Key(TOPIC, n): LogPosition(7, True, offset) for n in range(2)})
        text = "\n".join(["v1", "{}", json.dumps(write_marks(marks))])
        (folder / "checkpoint" / "offsets" / str(batch)).write_text(text)
    for batch in range(over):
        (folder / "checkpoint" / "commits" / str(batch)).write_text("v1")


def declared(folder: Path, source: str = 'topics = ["in"]', more: str = "") -> Spec:
    file = folder / "p.toml"
    file.write_text(f'name = "p"\n[sources.s]\n{source}\n{more}\n[sinks.k]\ninput = "s"\ntopic = "out"\n')
    return load_spec(file)


@pytest.mark.parametrize(
    ("messages", "size", "short"),
    [
        (0, 0, True),
        (MESSAGES_MAX // 2, BYTES_MAX // 2, True),
        (MESSAGES_MAX // 2 + 1, 0, False),
        (5, BYTES_MAX, False),
    ],
)
def test_a_first_run_is_short_where_its_topics_hold_little(
    tmp_path: Path, messages: int, size: int, short: bool
) -> None:
    assert is_short(declared(tmp_path), Folder(tmp_path), Server(messages, size)) is short


def test_a_later_run_is_short_where_little_was_published_since(tmp_path: Path) -> None:
    checkpoint(tmp_path, 10 + MESSAGES_MAX, over=1)
    assert is_short(declared(tmp_path), Folder(tmp_path), Server(MESSAGES_MAX + 100, BYTES_MAX))


def test_a_batch_that_is_not_over_is_still_to_be_read(tmp_path: Path) -> None:
    checkpoint(tmp_path, 20, 30, over=1)
    assert {spot.offset for spot in last_marks(Folder(tmp_path)).spots.values()} == {20}


def test_a_checkpoint_that_cannot_be_read_has_no_marks(tmp_path: Path) -> None:
    checkpoint(tmp_path, 20, over=1)
    (tmp_path / "checkpoint" / "offsets" / "0").write_text("v1\n{}\n-")
    assert last_marks(Folder(tmp_path)) == Marks({})


@pytest.mark.parametrize(
    ("source", "more"),
    [('pattern = "public/default/in.*"', ""), ('topics = ["in"]', '[tables.prices]\npath = "prices"')],
)
def test_of_patterns_and_tables_nothing_is_known(tmp_path: Path, source: str, more: str) -> None:
    assert not is_short(declared(tmp_path, source, more), Folder(tmp_path), Server(0))


def test_what_the_server_refuses_is_said_later(tmp_path: Path) -> None:
    assert not is_short(declared(tmp_path), Folder(tmp_path), Refusing())
