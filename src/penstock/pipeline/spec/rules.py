"""What must hold between the parts of a spec. Pure: nothing is asked of a server or of Spark."""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from penstock.model.errors import PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.errors import DELTA_ONLY, PipelineError
from penstock.pipeline.zones import SESSION_ZONE, TIME_ZONE, UTC, is_time_zone

from .spec import (
    AVAILABLE_NOW,
    OF_REGISTRY,
    OF_TOPIC,
    Expectation,
    Lookup,
    Sink,
    Source,
    Spec,
    Step,
    Watermark,
)
from .times import duration_ms, time_ms

_PIPELINE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_VIEW: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_WAYS: Final = ("sql", "python", "deduplicate", "stateful")
_TOPIC_KEYS: Final = ("key", "value", "properties", "event_time", "ordering_key")
_TABLE_KEYS: Final = ("partition_by", "keys", "delete_when", "archive")
_FORMAT_KEYS: Final = ("options", "schema", "column", "mode")
_OURS: Final = ("penstock", "penstock_lake")
_READERS: Final = (OF_TOPIC, OF_REGISTRY, "avro:", "json:", "protobuf:")  # of another format
# Keys of a source of topics that another format does not have.
_STREAM_KEYS: Final = (
    *("topics", "pattern", "start", "on_new_schema", "subscription"),
    *("max_rows_per_batch", "max_bytes_per_batch", "min_partitions", "fail_on_data_loss"),
)


class _Checker:
    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def fail(self, place: str, reason: str) -> PipelineError:
        return PipelineError(f"{self.spec.file}: {place}{' ' if place else ''}{reason}")

    def pipeline(self) -> None:
        spec = self.spec
        if not _PIPELINE.fullmatch(spec.name):
            raise self.fail("", f"name: {spec.name!r} is no name: letters, digits, '.', '_' and '-'")
        if not spec.sources:
            raise self.fail("", "there is no [sources.…]: where rows come from")
        if not spec.sinks:
            raise self.fail("", "there is no [sinks.…]: where rows go")
        if spec.trigger != AVAILABLE_NOW:
            self.duration("", "trigger", spec.trigger)
        if spec.dead_letters:
            self.topic("", "dead_letters", spec.dead_letters)
        for key in spec.spark:
            if not key.startswith("spark."):
                raise self.fail("[spark]", f"{key}: Spark's settings begin with 'spark.'")
        zone = spec.spark.get(SESSION_ZONE, UTC)
        if not is_time_zone(zone):
            raise self.fail("[spark]", f"{SESSION_ZONE}: {zone!r} is no {TIME_ZONE}")
        if spec.lineage.url and not spec.lineage.url.startswith(("http://", "https://")):
            raise self.fail(
                "[lineage]", f"url: {spec.lineage.url!r} is no address like http://127.0.0.1:5000"
            )
        self.names()

    def names(self) -> None:
        seen: dict[str, str] = {}
        for kind, name in (
            *(("sources", name) for name in self.spec.sources),
            *(("tables", name) for name in self.spec.tables),
            *(("steps", step.name) for step in self.spec.steps),
        ):
            place = f"[[steps]] {name}" if kind == "steps" else f"[{kind}.{name}]"
            if not _VIEW.fullmatch(name):
                raise self.fail(place, f"{name!r} is no name for a view: letters, digits and '_'")
            if name.lower() in seen:
                raise self.fail(place, f"the name is taken by {seen[name.lower()]}")
            seen[name.lower()] = place

    def subscriptions(self) -> None:
        """Two sources would move one subscription back and forth."""
        seen: dict[tuple[str, str], str] = {}
        for name, source in self.spec.sources.items():
            subscription = self.spec.name if source.subscription is None else source.subscription
            for topic in source.topics:
                other = seen.setdefault((subscription, str(TopicName.parse(topic))), name)
                if subscription and other != name:
                    raise self.fail(
                        f"[sources.{name}]",
                        f"subscription: {topic} is read by [sources.{other}] too, under the same subscription"
                        f" {subscription!r}; give one of them another",
                    )

    def unused(self, place: str, struct: Source | Lookup | Sink, keys: Iterable[str], belong: str) -> None:
        """Refuse keys that have no meaning here."""
        for field in msgspec.structs.fields(type(struct)):
            default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
            if field.name in keys and getattr(struct, field.name) != default:
                raise self.fail(place, f"{field.name} belongs to {belong}")

    def format(self, place: str, struct: Source | Lookup | Sink) -> None:
        if struct.format.lower() in _OURS:
            ours = (
                "topics are named by topics and topic"
                if struct.format == "penstock"
                else "a table has a path"
            )
            raise self.fail(place, f"format: {struct.format} is written without it: {ours}")

    def source(self, name: str, source: Source) -> None:
        place = f"[sources.{name}]"
        if source.format:
            self.format(place, source)
            self.unused(place, source, _STREAM_KEYS, "topics; say it in options, as the format has it")
            if set(source.include) - {"_raw"}:
                raise self.fail(place, "include: of another format only _raw, the bytes that were decoded")
            if source.decode != "none" and not source.reader_schema.startswith(_READERS):
                raise self.fail(
                    place,
                    "reader_schema: decode of another format needs topic:NAME, registry:SUBJECT, or avro:, json: or"
                    " protobuf: and a file",
                )
            if source.reader_schema.startswith(OF_REGISTRY) and self.spec.schema_registry is None:
                raise self.fail(place, "reader_schema: registry: needs [schema_registry], with its url")
        else:
            self.topics(place, source)
        if source.decode == "none" and "_raw" in source.include:
            raise self.fail(
                place, "include: _raw needs decode = 'struct' or 'flat'; else value has the bytes"
            )
        if source.decode == "none" and source.on_bad_value != "fail":
            raise self.fail(place, "on_bad_value needs decode = 'struct' or 'flat'")
        if source.on_bad_value == "dead_letter":
            self.dead_letters(place, "on_bad_value")
        self.view(place, source.watermark, source.expect)

    def topics(self, place: str, source: Source) -> None:
        self.unused(place, source, _FORMAT_KEYS, "a format")
        if bool(source.topics) == bool(source.pattern):
            raise self.fail(place, "one of topics, pattern and format is needed, and only one")
        for topic in source.topics:
            self.topic(place, "topics", topic)
        try:
            re.compile(source.pattern)
        except re.error as error:
            raise self.fail(place, f"pattern: {source.pattern!r} is no regular expression: {error}") from None
        if isinstance(source.start, dict):
            pass  # offsets, checked where they are turned into an option
        elif source.start not in ("earliest", "latest"):
            try:
                time_ms(source.start)
            except (ValueError, AttributeError) as error:
                raise self.fail(place, f"start: {error}; or earliest, latest, or offsets") from None
        for key in ("max_rows_per_batch", "max_bytes_per_batch", "min_partitions"):
            if getattr(source, key) < 0:
                raise self.fail(place, f"{key}: a number from 0 on is expected")

    def table(self, name: str, table: Lookup) -> None:
        place = f"[tables.{name}]"
        if bool(table.path) == bool(table.format):
            raise self.fail(place, "one of path and format is needed, and only one")
        self.format(place, table)
        if table.path:
            self.unused(place, table, _FORMAT_KEYS, "a format")

    def step(self, step: Step, before: set[str]) -> None:
        place = f"[[steps]] {step.name}"
        ways = [way for way in _WAYS if getattr(step, way)]
        if len(ways) != 1:
            raise self.fail(place, f"exactly one of {', '.join(_WAYS)} is needed")
        way = ways[0]
        for name in step.inputs:
            if name not in before:
                raise self.fail(place, f"inputs: there is no source, table or earlier step {name!r}")
        if way == "sql":
            if step.inputs:
                raise self.fail(place, "inputs: SQL names its inputs itself")
        elif way == "python":
            self.callable(place, "python", step.python)
            if not step.inputs:
                raise self.fail(place, "inputs is missing: what the function is called with")
        elif len(step.inputs) != 1:
            raise self.fail(place, f"inputs: {way} takes exactly one")
        if way == "stateful":
            self.callable(place, "stateful", step.stateful)
            if not step.keys:
                raise self.fail(place, "keys is missing: the columns that state is kept by")
            if not step.columns:
                raise self.fail(
                    place, "columns is missing: what the processor emits, like 'id STRING, n BIGINT'"
                )
        elif step.keys or step.columns or step.time_mode != "none":
            raise self.fail(place, "keys, columns and time_mode belong to stateful steps")
        self.view(place, step.watermark, step.expect)

    def sink(self, name: str, sink: Sink, views: set[str]) -> None:
        place = f"[sinks.{name}]"
        if sink.input not in views:
            raise self.fail(place, f"input: there is no source or step {sink.input!r}")
        ways = [sink.topic or sink.topic_column, sink.path, sink.foreign and sink.format, sink.python]
        if sum(map(bool, ways)) != 1:
            raise self.fail(
                place, "exactly one of topic (or topic_column), path, format and python is needed"
            )
        if sink.topic and sink.topic_column:
            raise self.fail(place, "topic and topic_column exclude one another")
        self.keys(place, sink)
        if sink.python:
            self.callable(place, "python", sink.python)
        elif sink.foreign:
            if self.spec.output == "update":
                raise self.fail(
                    place, "a format takes output = 'append', or 'complete'; python takes 'update'"
                )
            if self.spec.output == "complete" and sink.mode != "overwrite":
                raise self.fail(place, "mode: output = 'complete' needs 'overwrite'")
        elif sink.path:
            self.table_sink(place, sink)
        elif sink.delivery not in ("", "exactly_once") and self.spec.dead_letters:
            raise self.fail(place, f"delivery: {sink.delivery} cannot be combined with dead_letters")
        if sink.topic:
            self.topic(place, "topic", sink.topic)

    def table_sink(self, place: str, sink: Sink) -> None:
        if sink.delete_when and not sink.keys:
            raise self.fail(
                place, "delete_when needs keys: a row deletes the one that agrees with it in these"
            )
        if sink.archive:
            self.archive(place, sink)
        if self.spec.output == "complete":
            raise self.fail(place, "a table takes output = 'append' or 'update', not 'complete'")
        if self.spec.output == "update" and not sink.keys:
            raise self.fail(
                place,
                "keys is missing: with output = 'update' a row replaces the one that agrees with it in these columns",
            )

    def archive(self, place: str, sink: Sink) -> None:
        """An archive has each message: its table could not tell a message that was rejected from one that was lost."""
        source = self.spec.sources.get(sink.input)
        if source is None or source.format or sink.keys:
            raise self.fail(place, "archive: the input is a source, without keys: all its messages are kept")
        rejecting = [one.name for one in source.expect if one.action in ("drop", "dead_letter")]
        if rejecting or source.watermark or source.on_bad_value != "fail":
            raise self.fail(place, f"archive: [sources.{sink.input}] rejects rows, and an archive keeps each")

    def keys(self, place: str, sink: Sink) -> None:
        """Refuse keys of other kinds of sinks."""
        self.format(place, sink)
        if sink.path and sink.format not in ("", "delta"):
            raise self.fail(place, f"format: {DELTA_ONLY}; another format has its path in options")
        if not (sink.topic or sink.topic_column):
            keys = (*_TOPIC_KEYS, "delivery", "ordered") if sink.foreign else _TOPIC_KEYS
            self.unused(place, sink, keys, "topics")
        if not sink.path:
            self.unused(place, sink, _TABLE_KEYS, "tables")
        if not sink.foreign or sink.python:
            self.unused(place, sink, _FORMAT_KEYS, "a format")

    def view(self, place: str, watermark: Watermark | None, expect: tuple[Expectation, ...]) -> None:
        if watermark is not None:
            self.duration(f"{place} watermark", "delay", watermark.delay)
            if watermark.late == "dead_letter":
                self.dead_letters(f"{place} watermark", "late")
        names = [one.name for one in expect]
        for name in names:
            if names.count(name) > 1:
                raise self.fail(place, f"expect: {name!r} is there twice")
        for one in expect:
            if one.action == "dead_letter":
                self.dead_letters(f"{place} expect {one.name!r}", "action")
        if self.spec.output == "complete" and (
            any(one.action in ("drop", "dead_letter") for one in expect) or watermark is not None
        ):
            raise self.fail(place, "output = 'complete' allows neither a watermark nor rejected rows")

    def topic(self, place: str, key: str, name: str) -> None:
        try:
            topic = TopicName.parse(name)
        except PenstockError as error:
            raise self.fail(place, f"{key}: {error.message}") from None
        if not topic.persistent:
            raise self.fail(place, f"{key}: {topic} keeps nothing")

    def duration(self, place: str, key: str, text: str) -> None:
        try:
            duration_ms(text)
        except ValueError as error:
            raise self.fail(place, f"{key}: {error}") from None

    def callable(self, place: str, key: str, text: str) -> None:
        module, _, name = text.partition(":")
        if not all(part.isidentifier() for part in module.split(".")) or not name.isidentifier():
            raise self.fail(place, f"{key}: {text!r} is not module:name")

    def dead_letters(self, place: str, key: str) -> None:
        if not self.spec.dead_letters:
            raise self.fail(
                place, f"{key}: dead_letter needs dead_letters, the topic, at the top of the file"
            )


def check_rules(spec: Spec) -> None:
    """Raises PipelineError for the first rule that a spec breaks."""
    checker = _Checker(spec)
    checker.pipeline()
    for name, source in spec.sources.items():
        checker.source(name, source)
    checker.subscriptions()
    for name, table in spec.tables.items():
        checker.table(name, table)
    before = {*spec.sources, *spec.tables}
    for step in spec.steps:
        checker.step(step, before)
        before.add(step.name)
    for name, sink in spec.sinks.items():
        checker.sink(name, sink, before - set(spec.tables))
