"""Dead letters: rejected rows as a topic's writer takes them, beside good rows or alone.

The writer sends every row with an `_error` to the dead-letter topic, in the same commit as the others, its value
being `_raw`, with properties `x-dlq-…` that say where it came from and why it was turned away.
"""

from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

# A letter that was dead before keeps its own properties, but not why it died then.
PREFIX: Final = "x-dlq-"
ROW: Final = f"{PREFIX}row"  # how the value was written, where it is that of a row and not of a message


def letters(dead: DataFrame) -> DataFrame:
    """Rows of `checks.dead_column`, without a `value`. What no longer holds its message's bytes is JSON in `_raw`."""
    own = f.map_filter("properties", lambda name, _: ~f.startswith(name, f.lit(PREFIX)))
    json = f.create_map(f.lit(ROW), f.lit("json"))
    row = f.when(own.isNull(), json).otherwise(f.map_concat(own, json))
    return dead.select(
        f.col("key"),
        f.when(f.col("whole"), own).otherwise(row).alias("properties"),
        *("event_time", "ordering_key", "topic", "partition", "offset", "schema_version"),
        f.col("value").alias("_raw"),
        f.concat(f.col("why.view"), f.lit(": "), f.col("why.text")).alias("_error"),
    )


def alone(found: DataFrame) -> DataFrame:
    """Letters that go out by themselves."""
    return found.withColumn("value", f.lit(None).cast("binary"))


def beside(rows: DataFrame, found: DataFrame) -> DataFrame:
    """Letters that go out with good rows."""
    # Not the other way round: a letter's key may be bytes that are no text.
    rows = reduce(
        lambda frame, name: frame.withColumn(name, f.col(name).cast("binary")),
        (name for name in ("key", "ordering_key") if name in rows.columns),
        rows,
    )
    return rows.unionByName(found, allowMissingColumns=True)
