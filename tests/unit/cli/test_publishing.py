"""`produce` where a request fails, or its own side does: how far it came is told, and nothing goes out after it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from penstock.cli.messages import produce as module
from penstock.cli.messages.formats import Reading
from penstock.cli.messages.pieces import Pieces, pieces
from penstock.cli.messages.produce import BATCH, Publishing
from penstock.cli.progress import Progress
from penstock.client.http import HttpClient, RemoteError, unreachable
from penstock.model.errors import PenstockError
from penstock.model.names import TopicName


class ReadTimeout(Exception):
    """As httpx names it."""


class ConnectError(Exception):
    """As httpx names it."""


class Server(HttpClient):
    """Takes messages; `answers` are errors of requests by their numbers."""

    def __init__(self, answers: dict[int, PenstockError]) -> None:
        super().__init__("http://127.0.0.1:1")
        self._answers = answers
        self._asked = 0
        self.stored: list[str] = []

    def call(self, method: str, path: str, **more: Any) -> Any:
        number, self._asked = self._asked, self._asked + 1
        if number in self._answers:
            raise self._answers[number]
        messages = json.loads(more["content"])["messages"]
        self.stored += [message["value"] for message in messages]
        return {"messageIds": [{"messageId": "x", "partition": 0, "error_code": 0} for _ in messages]}


@pytest.fixture(autouse=True)
def no_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_results", lambda: module._nothing)


def publishing(server: Server) -> Publishing:
    return Publishing(
        server, TopicName.parse("t"), Reading("lines", "text"), {}, Progress("published", shown=False)
    )


def lines(count: int) -> Iterator[Pieces]:
    yield Pieces("line {} of stdin", 1, [str(number).encode() for number in range(count)])


def lost(cause: Exception) -> PenstockError:
    """No answer came, as the client says it."""
    error = unreachable("http://127.0.0.1:1", cause)
    error.__cause__ = cause
    return error


def test_nothing_goes_out_after_a_request_that_failed() -> None:
    server = Server({1: RemoteError(503, 0, "away")})
    with pytest.raises(PenstockError) as failed:
        publishing(server).run(lines(5 * BATCH))
    assert failed.value.message == "away (published: 1,000, up to before line 1001 of stdin)"
    assert server.stored == [str(number) for number in range(BATCH)]


def test_nor_after_results_that_could_not_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> None:
        raise OSError("full")

    monkeypatch.setattr(module, "_results", lambda: fail)
    server = Server({})
    with pytest.raises(OSError, match="full"):
        publishing(server).run(lines(5 * BATCH))
    assert len(server.stored) == BATCH


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(
    ("error", "unknown"),
    [
        (lambda: lost(ReadTimeout("timed out")), True),
        (lambda: RemoteError(504, 0, "no answer"), True),
        (lambda: lost(ConnectError("refused")), False),
    ],
)
def test_what_may_have_been_stored_is_told(
    number: int, error: Callable[[], PenstockError], unknown: bool
) -> None:
    with pytest.raises(PenstockError) as failed:
        publishing(Server({number: error()})).run(lines(5 * BATCH))
    first, last = number * BATCH + 1, (number + 1) * BATCH
    said = f"whether line {first} of stdin to line {last} of stdin is stored is not known"
    assert (said in failed.value.message) == unknown
    assert ("published: 1,000" in failed.value.message) == (number == 1)


def test_what_was_read_before_the_input_failed_is_published_and_counted() -> None:
    def broken() -> Iterator[Pieces]:
        yield from lines(3 * BATCH)
        raise click.ClickException("x cannot be read")

    server = Server({})
    with pytest.raises(click.ClickException) as failed:
        publishing(server).run(broken())
    assert failed.value.format_message() == "x cannot be read (published: 3,000)"
    assert len(server.stored) == 3 * BATCH


def test_a_missing_file_is_told_before_anything_is_published(tmp_path: Path) -> None:
    good = tmp_path / "good"
    good.write_text("a\n")
    for bad in (tmp_path / "missing", tmp_path):
        with pytest.raises(click.ClickException, match="cannot be read"):
            pieces((), (str(good), str(bad)), whole=False)
