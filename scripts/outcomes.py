"""A plugin of pytest that writes the outcome of each test to a file while tests run: -p scripts.outcomes --outcomes FILE.

Each line is a JSON object: `test` (node id), `when` (collect, setup, call or teardown), `outcome` (passed, failed or skipped) and
`output` (traceback and captured output). The last line has `code` alone, pytest's exit code: it is missing if pytest died.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MOST_OUTPUT = 50_000  # characters of one phase of one test; the end of them is kept


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--outcomes", type=Path, metavar="FILE", help="write the outcome of each test to this file"
    )


def pytest_configure(config: pytest.Config) -> None:
    path: Path | None = config.getoption("--outcomes")
    if path is not None:
        config.pluginmanager.register(Outcomes(path))


class Outcomes:
    """Writes a line per phase of a test."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", errors="backslashreplace", buffering=1)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        output = "".join(_parts(report))[-MOST_OUTPUT:]
        self._write(test=report.nodeid, when=report.when, outcome=report.outcome, output=output)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(test=report.nodeid, when="collect", outcome="failed", output=report.longreprtext)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._write(code=int(exitstatus))
        self._file.close()

    def _write(self, **values: Any) -> None:
        self._file.write(json.dumps(values) + "\n")


def _parts(report: pytest.TestReport) -> Iterator[str]:
    if report.longreprtext:
        yield report.longreprtext + "\n"
    # A report repeats the sections of the phases before it.
    for title, text in report.sections:
        if title.endswith(str(report.when)):
            yield f"-- {title}\n{text.rstrip()}\n"
