"""All that a pipeline puts out, as one streaming frame: the rows of every sink, and those that were turned away.

A query has one output. So the rows of several views travel together, each in a struct column of its own, and the
batch is split again where it is written. A view that only sinks read carries its rejected rows along; those of
other views are a branch of their own, which Spark reads a second time from the source.
"""

from typing import Any, Final

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.pipeline.spec.spec import Source, Spec, Step

from .checks import KEY, RAW, WHY, dead_column, visible
from .progress import METRICS
from .views import View, feeds_steps

_VIEW: Final = "_view"
_DEAD: Final = "dead"


class Outputs(msgspec.Struct):
    """A frame and how to split a batch of it. `mixed` frames hold several views or rejected rows."""

    frame: Any
    order: list[str]  # the views that sinks read
    mixed: bool
    branches: int
    letters: bool = False  # whether some rejected rows become dead letters

    def rows(self, batch: DataFrame, view: str) -> DataFrame:
        """The rows of one view in a batch."""
        if not self.mixed:
            return batch
        number = self.order.index(view)
        mine = (f.col(_VIEW) == number) & f.col(_DEAD).isNull()
        return batch.where(mine).select(f"v{number}.*")

    def dead(self, batch: DataFrame) -> DataFrame | None:
        """The rows of a batch that become dead letters: the columns of `checks.dead_column`."""
        if not self.letters:
            return None
        return batch.where(f.col("dead.why.action") == "dead_letter").select("dead.*")


def collect_outputs(spec: Spec, views: dict[str, View]) -> Outputs:
    """Put together what goes out."""
    order = list(dict.fromkeys(sink.input for sink in spec.sinks.values()))
    turned_away = [view for view in views.values() if view.gated is not None]
    if len(order) == 1 and not turned_away:
        frame = views[order[0]].frame.drop(RAW, KEY).observe(METRICS, f.count(f.lit(1)).alias("written"))
        return Outputs(frame, order, mixed=False, branches=1)
    branches: list[DataFrame] = []
    for number, name in enumerate(order):
        view = views[name]
        whole = view.gated if view.gated is not None and not feeds_steps(spec, name) else view.frame
        columns = [f.lit(number).alias(_VIEW), _packed(whole).alias(f"v{number}")]
        if WHY in whole.columns:
            columns.append(dead_column(whole).alias(_DEAD))
        branches.append(whole.select(*columns))
    for view in turned_away:
        if view.name not in order or feeds_steps(spec, view.name):
            rejected = view.gated.where(f.col(WHY).isNotNull())
            branches.append(rejected.select(f.lit(-1).alias(_VIEW), dead_column(rejected).alias(_DEAD)))
    frame = branches[0]
    for branch in branches[1:]:
        frame = frame.unionByName(branch, allowMissingColumns=True)
    if _DEAD in frame.columns:
        frame = frame.observe(
            METRICS,
            f.count_if(f.col(_DEAD).isNull()).alias("written"),
            f.count_if(f.col("dead.why.action") == "dead_letter").alias("dead_letters"),
            f.count_if(f.col("dead.why.action") == "drop").alias("dropped"),
        )
    else:
        frame = frame.observe(METRICS, f.count(f.lit(1)).alias("written"))
    return Outputs(frame, order, mixed=True, branches=len(branches), letters=sends_letters(spec))


def sends_letters(spec: Spec) -> bool:
    """Whether some rule of the file makes dead letters."""
    views: list[Source | Step] = [*spec.sources.values(), *spec.steps]
    return (
        any(source.on_bad_value == "dead_letter" for source in spec.sources.values())
        or any(one.action == "dead_letter" for view in views for one in view.expect)
        or any(view.watermark is not None and view.watermark.late == "dead_letter" for view in views)
    )


def _packed(frame: DataFrame) -> Column:
    return f.struct(*(f.col(f"`{name}`") for name in visible(frame)))
