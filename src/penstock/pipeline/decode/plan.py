"""What a typed query is planned with, on the driver: the reader's schema, the writers' that there are, the columns.

A plan is small and can be pickled; it travels in every task. Its reader's schema stays for as long as the query:
newer versions are projected onto it, until the query is planned again.
"""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from pyspark.sql.types import (
    BinaryType,
    DataType,
    StringType,
    StructField,
    StructType,
    _parse_datatype_json_string,
)

from penstock.client.access import Access
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.pipeline.errors import PipelineError, SchemaChanged
from penstock.pipeline.http.calls import Caller
from penstock.pipeline.http.schemas import all_versions

from .decoders import column_type, decoder_for
from .options import Typed, parse_ddl

RAW: Final = "_raw"
ERROR: Final = "_error"
KEY: Final = "_key"

_METADATA: Final = "penstock.reader"
_LOOK_S: Final = 2.0  # between two looks at the registry


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How a query's values are decoded. `wanted` is Spark's JSON of the type that column `value` has.

    `reader` is the schema of `topic`'s version `version`; None if the columns were written down.
    """

    typed: Typed
    server: Access
    topic: str = ""
    version: int = -1
    reader: SchemaInfo | None = None
    wanted: str
    schemas: dict[str, dict[int, SchemaInfo]]

    @property
    def value_type(self) -> DataType:
        """The type of the decoded value."""
        return _parse_datatype_json_string(self.wanted)

    @property
    def pair(self) -> bool:
        """Whether values are pairs of key and value."""
        some = self.reader or next(iter(next(iter(self.schemas.values())).values()))
        return some.type is SchemaType.KEY_VALUE

    @property
    def keeps_key(self) -> bool:
        """Whether the messages' keys are kept as they came: where a broken row's column `key` cannot hold it too."""
        return self.typed.keep_bytes or (self.typed.keeps_broken and self.typed.flat and self.pair)

    def columns(self, plain: StructType) -> StructType:
        """The table's columns, from those that it has without decoding."""
        value = self.value_type
        fields = list(plain.fields)
        if not self.typed.flat:
            fields = [StructField(f.name, value) if f.name == "value" else f for f in fields]
        else:
            fields = self._flat(fields, value)
        if self.typed.keeps_broken or self.typed.keep_bytes:
            fields.append(StructField(RAW, BinaryType()))
        if self.typed.keeps_broken:
            fields.append(StructField(ERROR, StringType()))
        if self.keeps_key:
            fields.append(StructField(KEY, BinaryType()))
        check_clashes([field.name for field in fields])
        return self._pinned(fields)

    def _flat(self, fields: list[StructField], value: DataType) -> list[StructField]:
        if self.pair:
            assert isinstance(value, StructType)
            fields = [StructField("key", value["key"].dataType) if f.name == "key" else f for f in fields]
            value = value["value"].dataType
            if not isinstance(value, StructType):
                return [StructField("value", value) if f.name == "value" else f for f in fields]
        if not isinstance(value, StructType):
            raise PipelineError(
                f"option value.decode: flat needs a record, these values are {value.simpleString()}; use struct"
            )
        return [field for field in fields if field.name != "value"] + list(value.fields)

    def _pinned(self, fields: list[StructField]) -> StructType:
        """With the reader's version in it, for the readers that Spark makes of this schema later on."""
        if self.reader is None:
            return StructType(fields)
        pin = {_METADATA: json.dumps({"topic": self.topic, "version": self.version})}
        first = fields[0]
        metadata = {**(first.metadata or {}), **pin}
        return StructType([StructField(first.name, first.dataType, metadata=metadata), *fields[1:]])

    def newest(self, topic: str) -> int | None:
        """The newest version of a topic when the query was planned; None for a topic that came later."""
        return max(self.schemas[topic], default=None) if topic in self.schemas else None

    def refuse_newer(self, topic: str, version: int) -> None:
        """What is to be done about a version that the plan does not know; nothing if it is to be ignored."""
        known = self.newest(topic)
        if known is None or version <= known or self.typed.on_new == "ignore":
            return
        what = f"{topic} has schema version {version}, the query was planned with {known}"
        if self.typed.on_new == "restart":
            raise SchemaChanged(what)
        raise PipelineError(f"{what} (option onNewSchema=fail)", ErrorKind.INCOMPATIBLE_SCHEMA)


class Watch:
    """Looks for versions that were registered since a stream was planned, if that matters."""

    def __init__(self, plan: Plan | None) -> None:
        self._plan = plan if plan is not None and plan.typed.on_new != "ignore" else None
        self._looked = 0.0

    def look(self, client: Caller) -> None:
        """Raise what `Plan.refuse_newer` raises; asks the server only now and then."""
        if self._plan is None or time.monotonic() - self._looked < _LOOK_S:
            return
        for topic in self._plan.schemas:
            try:
                versions = all_versions(client, topic)
            except PenstockError as error:
                if error.retriable:
                    return  # another time
                raise
            if versions:
                self._plan.refuse_newer(topic, max(versions))
        self._looked = time.monotonic()


def make_plan(
    client: Caller, typed: Typed, server: Access, topics: Sequence[str], given: StructType | None = None
) -> Plan:
    """Plan for topics as they are now; `given` is a schema made by `Plan.columns` before, whose version stays.

    Raises PipelineError naming the option, or the topic that cannot be read so.
    """
    if not topics:
        raise PipelineError(
            "option value.decode: no topic matches yet, so that there is no schema to decode by"
        )
    schemas = {topic: all_versions(client, topic) for topic in topics}
    for topic, versions in schemas.items():
        if not versions:
            raise PipelineError(f"option value.decode: {topic} has no registered schema")
    if typed.ddl:
        value = parse_ddl(typed.ddl)
        _check_all(schemas, None, value)
        return Plan(typed=typed, server=server, wanted=value.json(), schemas=schemas)
    topic = topics[0]
    version = _version(typed, topic, schemas, given)
    reader = schemas[topic][version]
    value = column_type(reader)
    # Who names a version knows of the newer ones: what they wrote and this one cannot read are broken rows.
    others = {each: found for each, found in schemas.items() if each != topic or typed.version < 0}
    _check_all(others, reader, value)
    return Plan(
        typed=typed,
        server=server,
        topic=topic,
        version=version,
        reader=reader,
        wanted=value.json(),
        schemas=schemas,
    )


def _version(
    typed: Typed, topic: str, schemas: Mapping[str, Mapping[int, SchemaInfo]], given: StructType | None
) -> int:
    if typed.version >= 0:
        if typed.version not in schemas[topic]:
            there = ", ".join(map(str, schemas[topic]))
            raise PipelineError(
                f"option readerSchema: {topic} has no schema version {typed.version}; there are {there}"
            )
        return typed.version
    if given is not None and given.fields and _METADATA in (given.fields[0].metadata or {}):
        pin = json.loads(given.fields[0].metadata[_METADATA])
        if pin["topic"] == topic and pin["version"] in schemas[topic]:
            return int(pin["version"])
    return max(schemas[topic])


def _check_all(
    schemas: Mapping[str, Mapping[int, SchemaInfo]], reader: SchemaInfo | None, value: DataType
) -> None:
    """Every topic's newest schema must fit; older ones that do not make broken rows of their messages."""
    for topic, versions in schemas.items():
        newest = max(versions)
        try:
            decoder_for(versions[newest], reader, value)
        except PipelineError as error:
            raise PipelineError(
                f"{topic}: schema version {newest} does not fit the columns of the query: {error.message}"
            ) from None


def check_clashes(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise PipelineError(
                f"option value.decode: flat would make two columns {name}; use struct, or leave the field out with"
                " readerSchema=ddl:…"
            )
        seen.add(name.lower())
