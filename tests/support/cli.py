"""The command line in this process, against a server; which operations of the admin API it asks for is noted."""

import json
import re
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from penstock.cli import connection
from penstock.cli.main import group, main
from penstock.client.http import HttpClient
from penstock.protocols.admin.routes import OPERATIONS, Paths

Answer = list[dict[str, Any]]


class Commands:
    """Runs commands and notes which operations they ask for."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: set[tuple[str, str]] = set()
        self._url = url
        fetch, paths = HttpClient.fetch, Paths(OPERATIONS)

        def noted(client: HttpClient, method: str, path: str, **more: Any) -> Any:
            operation = paths.find(method, path).operation
            if operation is not None:
                self.asked.add((operation.method, operation.path))
            return fetch(client, method, path, **more)

        monkeypatch.setattr(HttpClient, "fetch", noted)
        monkeypatch.setattr(connection, "COMPLETION_S", 100.0)  # a busy machine may take long

    def __call__(self, words: str, *more: str, code: int = 0) -> Answer:
        said, wrong = StringIO(), StringIO()
        with redirect_stdout(said), redirect_stderr(wrong), pytest.raises(SystemExit) as end:
            main(["--url", self._url, *words.split(), *more])
        assert end.value.code == code, f"{words}: {wrong.getvalue()}"
        assert (
            code != 1 or said.getvalue() or re.fullmatch("penstock: .*\n", wrong.getvalue())
        )  # one sentence
        return [json.loads(line) for line in said.getvalue().splitlines()]

    def completed(self, words: str, incomplete: str) -> list[str]:
        """What a shell would offer; an address in `words` goes before ours."""
        complete = ShellComplete(group, {}, "penstock", "_PENSTOCK_COMPLETE")
        given = ["--url", self._url, *words.split()]
        return [found.value for found in complete.get_completions(given, incomplete)]
