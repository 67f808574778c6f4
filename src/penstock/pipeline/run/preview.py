"""What a pipeline's steps make of the newest messages. Nothing is written: no state, no subscription, no sink."""

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.spec.spec import Spec

from .bounded import newest
from .checks import DEAD, visible
from .outputs import sink_columns
from .views import View, build_views, session_for

ROWS: Final = 20
MESSAGES: Final = 1000
LETTERS: Final = "dead_letters"  # in place of a step: the rows that become dead letters

# One task behind a shuffle, and one job for a query: adaptive execution makes a job of each stage.
_SMALL: Final = {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"}


def preview(spec: Spec, spark: SparkSession, step: str = "", *, rows: int, messages: int) -> DataFrame:
    """At most `rows` rows of a source, step or sink (by default of the last step), made of the newest `messages` of each
    source.

    Rows that are made of one message each come newest first. Raises PipelineError, which names the place.
    """
    mine = small_session(spec, spark)
    views = build_views(spec, mine, None, newest(spec, mine, messages))
    found: DataFrame = rows_of(spec, views, step or next(reversed(views)))
    return found.limit(rows)


def small_session(spec: Spec, spark: SparkSession) -> SparkSession:
    """A session for few rows; the file's settings win."""
    mine = session_for(spec, spark)
    for key, value in _SMALL.items():
        mine.conf.set(key, spec.spark.get(key, value))
    return mine


def rows_of(spec: Spec, views: Mapping[str, View], name: str) -> Any:
    """A DataFrame of the rows of a source or step, of a sink as it takes them, or of LETTERS. Raises PipelineError."""
    if name in views:
        frame = views[name].frame
        return frame.select(*(f"`{column}`" for column in visible(frame)))
    if name in spec.sinks:
        rows = views[spec.sinks[name].input].frame
        return rows.select(*sink_columns(spec, name, rows))
    if name == LETTERS:
        return _letters(spec, views)
    there = ", ".join((*views, *spec.sinks, LETTERS))
    raise PipelineError(f"{spec.file}: there is no source, step or sink {name!r}; there are {there}")


def _letters(spec: Spec, views: Mapping[str, View]) -> DataFrame:
    """Dead letters: the message, or the row as JSON, with the view and the rule that rejected it."""
    found: DataFrame | None = None
    for view in views.values():
        frame = view.letters if view.whole is None else view.whole.where(f.col(DEAD).isNotNull())
        if frame is not None:
            letters = frame.select(
                f.col(f"{DEAD}.why.view").alias("view"),
                f.split(f.col(f"{DEAD}.why.rule"), " ", 3)[2].alias("rule"),
                f.col(f"{DEAD}.why.text").alias("error"),
                *(f.col(f"{DEAD}.{name}").alias(name) for name in ("key", "value", "properties", "topic")),
                *(f.col(f"{DEAD}.{name}").alias(name) for name in ("partition", "offset")),
            )
            found = letters if found is None else found.unionByName(letters)
    if found is None:
        raise PipelineError(f"{spec.file}: no rule of the pipeline makes dead letters")
    return found
