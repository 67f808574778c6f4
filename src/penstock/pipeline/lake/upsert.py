"""Rows that replace those of a table: that agree with them in the key columns, which they may delete (Delta's MERGE), or that a predicate names.

The tasks write the rows into files as for any batch; here they are read again, on the driver, and the files are no part
of the table.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.pipeline.errors import PipelineError

from .values import Batch, File

_ROW: Final = "_row"


def rows_of(batch: Batch, opened: Callable[[str], Any]) -> pa.Table:
    """The rows of a batch's files, with their partition columns; of those with one key the last. `opened` opens a file."""
    tables = [_rows(file, batch, opened) for file in batch.files]
    return last_by(pa.concat_tables(tables), batch.keys)


def last_by(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The last row of each key. Raises PipelineError for a key that is null."""
    for key in keys:
        if rows[key].null_count:
            raise PipelineError(f"column {key} is null in some row, and it is one of the sink's keys")
    numbered = rows.append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
    last = numbered.group_by(list(keys)).aggregate([(_ROW, "max")])[f"{_ROW}_max"]
    return rows.take(last.take(pc.sort_indices(last)))


def rows_read_again(batch: Batch, opened: Callable[[str], Any]) -> pa.RecordBatchReader:
    """The rows of a batch's files, one file after the other; of those with one key the last, if it has keys and is not deleted."""
    if batch.keys and batch.files:
        rows = rows_of(batch, opened)
        if batch.deletes:
            gone = pc.fill_null(rows[batch.deletes], False)
            rows = rows.filter(pc.invert(gone)).select(batch.schema.names)
        return rows.to_reader()
    tables = (_rows(file, batch, opened) for file in batch.files)
    found = (piece for table in tables for piece in table.cast(batch.schema).to_batches())
    return pa.RecordBatchReader.from_batches(batch.schema, found)


def upsert(table: Any, rows: pa.Table, batch: Batch, properties: Any) -> None:
    """Replace, add and delete rows, in one commit with `properties`. Raises what `deltalake` raises."""
    merger = table.merge(
        rows,
        " AND ".join(f"target.`{key}` = source.`{key}`" for key in batch.keys),
        source_alias="source",
        target_alias="target",
        commit_properties=properties,
    )
    untouched = [field.name for field in table.schema().fields if field.name not in batch.schema.names]
    kept = None
    if batch.deletes:
        gone = f"coalesce(source.`{batch.deletes}`, false)"
        merger, kept = merger.when_matched_delete(predicate=gone), f"NOT {gone}"
        untouched.append(batch.deletes)
    merger = merger.when_matched_update_all(predicate=kept, except_cols=untouched)
    merger.when_not_matched_insert_all(predicate=kept, except_cols=untouched).execute()


def _rows(file: File, batch: Batch, opened: Callable[[str], Any]) -> pa.Table:
    with opened(file.path) as content:
        rows = pq.read_table(content)
    for name in batch.partition_by:
        if name in rows.column_names:
            continue
        kind = batch.schema.field(name).type
        value = pa.scalar(file.values[name], pa.string()).cast(kind)
        rows = rows.append_column(name, pa.array([value] * rows.num_rows, kind))
    return rows.select([*batch.schema.names, *([batch.deletes] if batch.deletes else [])])
