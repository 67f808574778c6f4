"""Declared pipelines in pytest: their own tests, and their steps over messages that a test gives. No server is needed.

Spark is imported, and a session started, when the first of them runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.pipeline.run.cases import Case, load_cases
from penstock.pipeline.spec.parse import load_spec

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.pipeline.run.trial import Rows, Trial


class PipelineTest:
    """One of the `[[tests]]` of a pipeline; its text is the test's name, for `ids=str`."""

    def __init__(self, file: Path | str, case: Case, overrides: Mapping[str, Any]) -> None:
        self._file = file
        self._case = case
        self._overrides = overrides

    def __str__(self) -> str:
        return self._case.name

    def check(self, spark: Any = None) -> None:
        """Run it, in `spark` or in the session of this process. Raises AssertionError with the rows that differ."""
        from penstock.pipeline.run.trial import run_case
        from penstock.pipeline.session import session

        outcome = run_case(load_spec(self._file, **self._overrides), self._case, spark or session())
        if not outcome.passed:
            raise AssertionError("\n".join([f"{self._file}: {outcome.test}", *outcome.lines()]))


def pipeline_tests(file: Path | str, **overrides: Any) -> list[PipelineTest]:
    """The tests that a pipeline's file and its test file declare. `overrides` are those of `load_spec`, like
    `settings`."""
    return [PipelineTest(file, case, overrides) for case in load_cases(file)]


def run_pipeline(
    file: Path | str,
    given: Mapping[str, Rows],
    *,
    tables: Mapping[str, Rows] = {},
    schemas: Mapping[str, str] = {},
    spark: Any = None,
    **overrides: Any,
) -> Trial:
    """A pipeline's steps over messages by source; `rows(NAME)` of the result are those of a source, step or sink, or
    `dead_letters`. Arguments as the keys of `[[tests]]`, and those of `load_spec`."""
    from penstock.pipeline.run.trial import Trial
    from penstock.pipeline.session import session

    return Trial(load_spec(file, **overrides), spark or session(), given, tables=tables, schemas=schemas)
