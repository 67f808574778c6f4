"""Rows that were rejected on the way, as messages of the dead-letter topic.

They carry their key, value and properties as they were, and where they come from and why in properties of their
own.
"""

from typing import Any, Final

import pyarrow as pa

from penstock.pipeline.encode import binary
from penstock.pipeline.errors import PipelineError

from .messages import Columns, encoded_properties, keys_of, milliseconds

# Property by column, where there is one.
_ORIGIN: Final = {
    "topic": "x-dlq-topic",
    "partition": "x-dlq-partition",
    "offset": "x-dlq-offset",
    "schema_version": "x-dlq-schema-version",
}


def letters(batch: pa.RecordBatch, writer: str, number: int) -> Columns:
    """The messages of rows with an `_error`. `writer` and `number` say which batch they were rejected in."""
    names = batch.schema.names
    key = next((name for name in ("_key", "key") if name in names), None)  # as it came, if it is there
    value = batch.column("_raw") if "_raw" in names else batch.column("value")
    if not (pa.types.is_binary(value.type) or pa.types.is_string(value.type)):
        raise PipelineError("column _raw is missing: rejected rows go on with their value as it was")
    origin = [(_ORIGIN[name], batch.column(name).to_pylist()) for name in _ORIGIN if name in names]
    given = _given(batch)
    rows: list[list[tuple[str, str]]] = []
    for row, error in enumerate(batch.column("_error").to_pylist()):
        told = [(name, str(values[row])) for name, values in origin if values[row] is not None]
        told += [("x-dlq-error", error), ("x-dlq-query", writer), ("x-dlq-batch", str(number))]
        rows.append([*given[row], *told])
    return Columns(
        value=binary.as_binary(value),
        key=keys_of(batch.column(key)) if key is not None else None,
        properties=encoded_properties(rows),
        event_time=milliseconds(batch.column("event_time")) if "event_time" in names else None,
        ordering_key=binary.as_binary(batch.column("ordering_key")) if "ordering_key" in names else None,
    )


def _given(batch: pa.RecordBatch) -> list[list[tuple[str, str]]]:
    """The properties that the rows have already."""
    names = batch.schema.names
    column: Any = None
    if "properties" in names:
        column = batch.column("properties").to_pylist()
    elif "headers" in names:
        column = [
            None if row is None else [(h["key"], _text(h["value"])) for h in row]
            for row in batch.column("headers").to_pylist()
        ]
    if column is None:
        return [[] for _ in range(batch.num_rows)]
    return [[pair for pair in row or () if None not in pair] for row in column]


def _text(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
