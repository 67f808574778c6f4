"""Bytes in a column of any DataFrame become typed by one schema, as a topic's values do."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from penstock.model.errors import ErrorKind
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.versions import map_in_arrow

from .decoders import column_type, decoder_for
from .framed import Writers, decode_framed
from .payloads import decode
from .plan import ERROR, RAW, check_clashes
from .typed import broken


def decode_column(
    frame: DataFrame,
    column: str,
    schema: SchemaInfo,
    *,
    flat: bool = False,
    keeps_broken: bool = False,
    keep_bytes: bool = False,
    writers: Writers | None = None,
) -> DataFrame:
    """`frame` with the values of a column decoded: in place or, with `flat`, as columns at the end.

    With `writers`, which returns the schema of an id, values begin with the id of theirs, and `schema` is the reader's.

    `keeps_broken` adds `_raw` and `_error`, null for rows that could be decoded; else a broken value fails its task. `keep_bytes`
    keeps every row's bytes in `_raw`. Raises PipelineError for what cannot be decoded so.
    """
    if column not in frame.columns:
        raise PipelineError(f"column: there is no column {column!r}; there are {', '.join(frame.columns)}")
    if (kind := frame.schema[column].dataType) not in (BinaryType(), StringType()):
        raise PipelineError(f"column: {column} is {kind.simpleString()}, not binary or string")
    if schema.type is SchemaType.KEY_VALUE:
        raise PipelineError("a key/value schema is for topics: a column holds keys or values")
    wanted = column_type(schema)
    if not flat:
        fields = [StructField(one.name, wanted) if one.name == column else one for one in frame.schema]
    elif isinstance(wanted, StructType):
        fields = [*(one for one in frame.schema if one.name != column), *wanted.fields]
    else:
        raise PipelineError(
            f"decode: flat needs a record, these values are {wanted.simpleString()}; use struct"
        )
    fields += [StructField(RAW, BinaryType())] if keeps_broken or keep_bytes else []
    fields += [StructField(ERROR, StringType())] if keeps_broken else []
    check_clashes([one.name for one in fields])

    def decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = None if writers else decoder_for(schema, schema, wanted)
        for batch in batches:
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            payloads = columns[column].cast(pa.binary())
            if decoder is not None:
                value, wrong = decode(decoder, payloads)
            else:
                assert writers is not None
                value, wrong = decode_framed(payloads, writers, schema, wanted)
            if wrong and not keeps_broken:
                raise PipelineError(
                    f"column {column}: {wrong[min(wrong)]} (on_bad_value keeps such rows)",
                    ErrorKind.BAD_MESSAGE,
                )
            if flat:
                del columns[column]
                columns |= dict(zip([one.name for one in value.type], value.flatten(), strict=True))
            else:
                columns[column] = value
            if keeps_broken:
                columns |= broken(payloads, wrong)
            if keep_bytes:
                columns[RAW] = payloads
            yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    return map_in_arrow(
        frame.withColumn(column, f.col(f"`{column}`").cast("binary")), decoded, StructType(fields)
    )
