"""Acknowledgements that fail are told, whatever ends the command."""

from typing import Any

import pytest

from penstock.cli.messages.consume import Acknowledging
from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.errors import ErrorKind, PenstockError


@pytest.fixture(autouse=True)
def refusing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(client: HttpClient, *request: Any, **more: Any) -> None:
        raise PenstockError(ErrorKind.UNAVAILABLE, "the server is away")

    monkeypatch.setattr(HttpClient, "call", refuse)


def test_a_failure_is_told_where_a_signal_ends_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    acknowledging = Acknowledging(Access(url="http://127.0.0.1:1"), "/x")
    acknowledging.add(["id"])
    acknowledging.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    said = capsys.readouterr().err
    assert said == "penstock: not all that was printed is acknowledged: the server is away\n"


def test_a_failure_is_raised_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        pytest.raises(PenstockError, match="away"),
        Acknowledging(Access(url="http://127.0.0.1:1"), "/x") as acknowledging,
    ):
        acknowledging.add(["id"])
    assert capsys.readouterr().err == ""
