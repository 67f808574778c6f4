"""Runs the tests of a pipeline: its steps over given messages, in a Spark session, without a server.

A given message is bytes, as a topic would have it, and a source that decodes reads them by its own decoder: by the schema
that the test gives, as Avro's definition or as columns.
"""

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from pathlib import Path
from time import monotonic
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, TimestampType

from penstock.codec import codec_for
from penstock.model.errors import PenstockError
from penstock.model.names import TopicName
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.pipeline.decode.decoders import column_type
from penstock.pipeline.decode.options import Typed, parse_ddl
from penstock.pipeline.decode.plan import Plan
from penstock.pipeline.decode.shapes import arrow_type
from penstock.pipeline.decode.typed import TypedRows
from penstock.pipeline.encode.plan import avro_schema, plain_schema
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.rows import columns
from penstock.pipeline.rows.place import Place
from penstock.pipeline.source.options import parse_options
from penstock.pipeline.source.tasks import raw_include
from penstock.pipeline.spec.spec import OF_REGISTRY, OF_TOPIC, Spec
from penstock.pipeline.spec.times import time_ms

from .bounded import batch_options
from .cases import Case, Difference, Outcome, Row, difference
from .failures import one_sentence
from .formats import decoded
from .plain import BASE64, plain, plain_rows
from .preview import rows_of, small_session
from .schemas import protobuf_schema, schema_for
from .views import build_views, named

PUBLISHED: Final = "2000-01-01T00:00:00Z"  # unless a message says otherwise
_PROTO: Final = re.compile(r"\bmessage\s+\w+\s*\{")
_ALL: Final = columns.BASIC | columns.INCLUDABLE

Rows = Sequence[Mapping[str, Any]]


def given_source(spec: Spec, spark: SparkSession, name: str, messages: Rows, schema: str = "") -> DataFrame:
    """A source with these messages: each has a `value`, and may have other columns of a source. Raises PipelineError."""
    options = parse_options(batch_options(spec, name), stream=False)
    topic = str(TopicName.parse((*spec.sources[name].topics, name)[0]))
    plan = None if options.typed is None else _plan(spec, options.typed, topic, schema)
    writer = None if plan is None else plan.schemas[topic][0]
    include = raw_include(options.include, plan)
    rows: list[dict[str, Any]] = []
    for number, message in enumerate(messages):
        for key in message:
            if key not in _ALL:
                raise PipelineError(f"message {number + 1}: unknown key {key}; there are {', '.join(_ALL)}")
        partition = message.get("partition", 0)
        before = sum(row["partition"] == partition for row in rows)
        row = {
            "topic": topic,
            "partition": partition,
            "offset": before,
            "timestamp": PUBLISHED,
            "timestampType": 0,
        }
        row |= {"schema_version": 0 if writer else None, "properties": {}} | dict(message)
        rows.append(
            row
            | {"value": _payload(message.get("value"), writer), "topic": str(TopicName.parse(row["topic"]))}
        )
    raw = pa.RecordBatch.from_arrays(
        [_column(each, rows, _ALL[each]) for each in columns.names(include)],
        schema=columns.arrow_schema(include),
    )
    kinds = columns.spark_schema(options.include)
    if plan is not None:
        kept = columns.VERSION in options.include
        raw = TypedRows(plan, Place(topic, 0, -1, partitioned=False), keep_version=kept).apply(raw)
        kinds = plan.columns(kinds)
    return spark.createDataFrame(pa.Table.from_batches([raw]), kinds)


def given_format(spec: Spec, spark: SparkSession, name: str, rows: Rows, schema: str = "") -> DataFrame:
    """A source of another format that has these rows, whose decoded column has values as messages have. Raises PipelineError."""
    source = spec.sources[name]
    if source.decode == "none":
        return given_table(spark, rows, schema or source.schema)
    if schema:
        writer = _defined(spec, schema)
        if not isinstance(writer, SchemaInfo):
            raise PipelineError(
                "the schema of a decoded column is a definition, or the name of a file with one (order.avsc, order.proto)"
            )
    elif source.reader_schema.startswith((OF_TOPIC, OF_REGISTRY)):
        raise PipelineError(
            "reader_schema: a test asks no server: give the schema in the test's schemas, as a definition or the name of a"
            " file with one (order.avsc, order.proto)"
        )
    else:
        writer = schema_for(spec, source.reader_schema)
    made = [{**row, source.column: _payload(row.get(source.column), writer)} for row in rows]
    table = pa.Table.from_pylist(made) if made else pa.table({source.column: pa.array([], pa.binary())})
    return decoded(source, spark.createDataFrame(table), writer)


def given_table(spark: SparkSession, rows: Rows, schema: str = "") -> DataFrame:
    """A table that has these rows; without columns in `schema`, their types are those of the values."""
    if not schema and not rows:
        raise PipelineError("the test gives no rows of it: name its columns in the test's schemas")
    if not schema:
        return spark.createDataFrame(pa.Table.from_pylist([dict(row) for row in rows]))
    kind: Any = parse_ddl(schema)
    found = {name: _column(name, rows, kind[name].dataType) for name in kind.names}
    return spark.createDataFrame(pa.table(found), kind)


def _plan(spec: Spec, typed: Typed, topic: str, schema: str) -> Plan:
    """How values are decoded that are written by `schema`: an Avro definition, the name of a file with one, or columns."""
    text = schema.strip() or typed.ddl
    if not text:
        raise PipelineError(
            "the source decodes: give its schema in the test's schemas, as columns ('id BIGINT, name STRING'), as an"
            " Avro definition, or as the name of a file (order.avsc, order.proto)"
        )
    wanted = parse_ddl(typed.ddl) if typed.ddl else None
    found = _defined(spec, text)
    if not isinstance(found, SchemaInfo):
        writer = plain_schema(found) or avro_schema(SchemaType.JSON, found)
        wanted = wanted or found
    else:
        writer = found
    return Plan(
        typed=typed,
        server=spec.server,
        topic=topic,
        version=0,
        reader=writer if wanted is None else None,
        wanted=(wanted or column_type(writer)).json(),
        schemas={topic: {0: writer}},
    )


def _defined(spec: Spec, text: str) -> SchemaInfo | DataType:
    """A schema as a test gives it: an Avro definition, of values in JSON; a Protobuf file; the name of a file with either; or
    columns. Raises PipelineError."""
    file = text.partition("#")[0]
    try:
        if file.endswith(".proto") or (_PROTO.search(text) and not text.lstrip().startswith(("{", "["))):
            return protobuf_schema(spec.folder, text)
        if text.endswith((".avsc", ".json")):
            text = Path(spec.folder, text).read_text("utf-8")
    except OSError as error:
        raise PipelineError(f"the schema {file} cannot be read: {error.strerror}") from None
    if text.lstrip().startswith(("{", "[")):
        return SchemaInfo(SchemaType.JSON, text.encode())
    return parse_ddl(text)


def _payload(value: Any, writer: SchemaInfo | None) -> bytes | None:
    """A message's bytes. A value that does not fit the schema goes as it is: reading it fails, as it would in a topic."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, Mapping) and value.keys() == {BASE64}:
        return b64decode(value[BASE64])
    value = _json(value)
    if writer is not None:
        try:
            return codec_for(writer).encode(value)
        except PenstockError:
            pass
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)


def _json(value: Any) -> Any:
    """TOML's times as the text of ISO 8601."""
    if isinstance(value, Mapping):
        return {key: _json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_json(each) for each in value]
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime | date | time) else value


def _column(name: str, rows: Rows, kind: DataType) -> pa.Array:
    """Values of one column: times as TOML, ISO 8601 or ms, bytes as text. Raises PipelineError."""
    values = [row.get(name) for row in rows]
    try:
        if isinstance(kind, TimestampType):
            values = [None if value is None else time_ms(value) * 1000 for value in values]
        elif kind.typeName() == "binary":
            values = [_payload(value, None) for value in values]
        elif kind.typeName() == "map":
            values = [None if value is None else list(value.items()) for value in values]
        return pa.array(values, arrow_type(kind))
    except (pa.ArrowException, AttributeError, OverflowError, TypeError, ValueError) as error:
        raise PipelineError(f"{name}: {kind.simpleString()} is expected: {error}") from None


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
    began = monotonic()
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
    seconds = round(monotonic() - began, 3)
    return Outcome(test=case.name, passed=passed, seconds=seconds, error=error, differences=differences)


def _differences(
    expected: Mapping[str, Sequence[Row]], found: Mapping[str, Sequence[Row]]
) -> Iterator[Difference]:
    for name, rows in expected.items():
        if one := difference(name, plain(rows), found[name]):
            yield one
