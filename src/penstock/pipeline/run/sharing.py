"""Rows that several branches of a query read, computed once in each batch.

Spark has no node that hands its rows to two others: a view that is used twice is planned twice, down to the source.
What it does share are shuffles: of two that are equal, one is run and the other reads its files. So the rows go through
a shuffle that is equal in every branch. It must stay so: rules of the optimizer that push a branch's own filter or choice
of columns below it are stopped by a filter that is not deterministic, although always true, and names every column.

The shuffle moves each task's rows to one task, in their order: rows of a partition stay in order.
"""

import re
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

_TASK: Final = "_task"
ROW: Final = "row"

# Nodes that keep state, or that Spark would have to run twice anyway.
_STATEFUL: Final = re.compile(
    r"^[\s:+\-~*]*(Aggregate|Distinct|Deduplicate\w*|TransformWithState\w*|FlatMapGroups\w*|MapGroups\w*|Join|\w*Limit)\b",
    re.MULTILINE,
)


def shareable(frame: DataFrame) -> bool:
    """Whether `shared` may be put on rows: not behind state, whose operators Spark tells apart in each branch, not if two
    columns have one name, and not if there is nothing to read, as all rows are in the plan."""
    names = [name.lower() for name in frame.columns]
    plan: Any = frame._jdf.queryExecution().analyzed()
    leaves = plan.collectLeaves()
    if all(leaves.apply(number).nodeName() == "LocalRelation" for number in range(leaves.size())):
        return False
    return len(set(names)) == len(names) and _STATEFUL.search(plan.treeString()) is None


def shared(frame: DataFrame, **columns: Column) -> DataFrame:
    """Columns of `frame`, computed once for all branches. To be read with `branch` only."""
    placed = frame.select(
        *(column.alias(name) for name, column in columns.items()), f.spark_partition_id().alias(_TASK)
    )
    partitions = int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    if hasattr(placed, "repartitionById"):  # since Spark 4.1
        return placed.repartitionById(partitions, _TASK)
    return placed.repartition(partitions, _TASK)


def branch(rows: DataFrame, which: Column) -> DataFrame:
    """Those of the rows of `shared` for which `which` is true. It must name every column but the task's own."""
    return rows.where(f.when(f.spark_partition_id() >= 0, which))


def read_twice(frame: DataFrame) -> DataFrame:
    """The same rows, to be read by several branches; `frame` itself where that cannot be."""
    if not shareable(frame):
        return frame
    row = f.struct(*(f.col(f"`{name}`") for name in frame.columns))
    # What can be null, as far as the optimizer knows: else it would forget the filter and choose columns again.
    rows = shared(frame, **{ROW: f.when(f.spark_partition_id() >= 0, row)})
    found = branch(rows, f.col(ROW).isNotNull()).select(f"{ROW}.*")
    # A watermark lives in the columns' metadata.
    kept = [each.metadata for each in found.schema] == [each.metadata for each in frame.schema]
    return found if kept else frame
