"""Runs the tests of a pipeline: its steps over given messages, in a Spark session, without a server."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.spec.spec import Spec

from .cases import Case, Difference, Outcome, Row, difference
from .failures import one_sentence
from .given import Rows, given_format, given_source, given_table
from .plain import plain, plain_rows
from .preview import rows_of, small_session
from .views import build_views, named


class Trial:
    """A pipeline's steps over given messages; `rows` are the results."""

    def __init__(
        self,
        spec: Spec,
        spark: SparkSession,
        given: Mapping[str, Rows],
        *,
        tables: Mapping[str, Rows] = {},
        schemas: Mapping[str, str] = {},
    ) -> None:
        """Raises PipelineError, which names the place."""
        self._spec = spec
        for kind, names, there in (
            ("given", given, spec.sources),
            ("tables", tables, spec.tables),
            ("schemas", schemas, {**spec.sources, **spec.tables}),
        ):
            for name in names:
                if name not in there:
                    raise PipelineError(f"{kind}: there is no {name!r}; there are {', '.join(there)}")
        mine = small_session(spec, spark)
        frames = {}
        for name in spec.sources:
            with named(spec, f"[sources.{name}]"):
                make = given_format if spec.sources[name].format else given_source
                frames[name] = make(spec, mine, name, given.get(name, ()), schemas.get(name, ""))
        for name in spec.tables:
            with named(spec, f"[tables.{name}]"):
                if name not in tables:
                    raise PipelineError("the test gives no rows of it in its tables")
                frames[name] = given_table(mine, tables[name], schemas.get(name, ""))
        self._views = build_views(spec, mine, None, frames)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of a source, step or sink, or the dead letters. Raises PipelineError."""
        with one_sentence(self._spec):
            return list(plain_rows(rows_of(self._spec, self._views, name)))


def run_case(spec: Spec, case: Case, spark: SparkSession) -> Outcome:
    """Run one test. Errors of the pipeline are part of the outcome."""
    began = time.monotonic()
    error, differences = "", []
    try:
        trial = Trial(spec, spark, case.given, tables=case.tables, schemas=case.schemas)
        # A test that only fails needs rows to be computed, too.
        wanted = [*case.expect] or [*spec.sinks]
        found = {name: trial.rows(name) for name in wanted}
        differences = list(_differences(case.expect, found))
    except PipelineError as failed:
        error = failed.message
    if case.fails:
        error = (
            "" if case.fails in error else f"it was to fail with {case.fails!r}: {error or 'it did not fail'}"
        )
    passed = not error and not differences
    seconds = round(time.monotonic() - began, 3)
    return Outcome(test=case.name, passed=passed, seconds=seconds, error=error, differences=differences)


def _differences(
    expected: Mapping[str, Sequence[Row]], found: Mapping[str, Sequence[Row]]
) -> Iterator[Difference]:
    for name, rows in expected.items():
        if one := difference(name, plain(rows), found[name]):
            yield one
