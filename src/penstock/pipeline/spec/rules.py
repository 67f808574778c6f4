"""What must hold between the parts of a spec, or of several. Pure: nothing is asked of a server or of Spark."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from penstock.model.errors import PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.errors import DELTA_ONLY, PipelineError
from penstock.pipeline.options import is_url
from penstock.pipeline.zones import SESSION_ZONE, TIME_ZONE, UTC, is_time_zone

from .options import STATIC, of_session
from .spec import AVAILABLE_NOW, OF_REGISTRY, OF_TOPIC, Lookup, Sink, Source, Spec, Step
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

Reasons = Iterator[str]  # why a spec is refused, each with the key and, unless a caller adds it, the place


def check_rules(spec: Spec) -> None:
    """Raises PipelineError for the first rule that a spec breaks."""
    for reason in _Rules(spec).broken():
        raise PipelineError(f"{spec.file}: {reason}")


def check_together(specs: Sequence[Spec]) -> None:
    """Raise PipelineError for pipelines that cannot share a Spark session. Pure."""
    first, *others = specs

    def of_spark(spec: Spec) -> dict[str, str]:
        return {key: text for key, text in spec.spark.items() if of_session(key)}

    def has_code(spec: Spec) -> bool:
        steps = any(step.python or step.stateful for step in spec.steps)
        return steps or any(sink.python for sink in spec.sinks.values())

    for number, spec in enumerate(others, 1):
        if any(spec.name == other.name or spec.file == other.file for other in specs[:number]):
            raise PipelineError(f"{spec.file}: pipeline {spec.name} is named twice")
        if spec.master != first.master:
            raise PipelineError(
                f"{spec.file}: master: {spec.master} is not that of {first.file}, {first.master}"
            )
        if of_spark(spec) != of_spark(first):
            raise PipelineError(
                f"{spec.file}: [spark]: settings other than spark.sql.…, and {', '.join(STATIC)}, belong to the session and"
                f" must be those of {first.file}"
            )
        if is_url(str(spec.home)) and is_url(str(first.home)) and spec.storage != first.storage:
            raise PipelineError(
                f"{spec.file}: [storage]: state in object stores needs the settings of {first.file}: Hadoop has one set of them"
            )
    folders = {spec.folder: spec.file for spec in specs if has_code(spec)}
    if len(folders) > 1:
        raise PipelineError(
            f"{' and '.join(folders.values())} are in different folders and both name functions, and Python would mix their"
            " modules: put the files into one folder, or run them apart"
        )


class _Rules:
    """The rules that a spec breaks. Of each, only the first reason counts: later ones may follow from it."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def broken(self) -> Reasons:
        spec = self.spec
        yield from self.pipeline()
        for name, source in spec.sources.items():
            yield from _at(f"[sources.{name}]", self.source(source))
        yield from self.subscriptions()
        for name, table in spec.tables.items():
            yield from _at(f"[tables.{name}]", self.table(table))
        before = {*spec.sources, *spec.tables}
        for step in spec.steps:
            yield from _at(f"[[steps]] {step.name}", self.step(step, before))
            before.add(step.name)
        for name, sink in spec.sinks.items():
            yield from _at(f"[sinks.{name}]", self.sink(sink, before - set(spec.tables)))

    def pipeline(self) -> Reasons:
        spec = self.spec
        if not _PIPELINE.fullmatch(spec.name):
            yield f"name: {spec.name!r} is no name: letters, digits, '.', '_' and '-'"
        if not spec.sources:
            yield "there is no [sources.…]: where rows come from"
        if not spec.sinks:
            yield "there is no [sinks.…]: where rows go"
        if spec.trigger != AVAILABLE_NOW:
            yield from _duration("trigger", spec.trigger)
        if spec.dead_letters:
            yield from _topic("dead_letters", spec.dead_letters)
        for key in spec.spark:
            if not key.startswith("spark."):
                yield f"[spark] {key}: Spark's settings begin with 'spark.'"
        zone = spec.spark.get(SESSION_ZONE, UTC)
        if not is_time_zone(zone):
            yield f"[spark] {SESSION_ZONE}: {zone!r} is no {TIME_ZONE}"
        if spec.lineage.url and not spec.lineage.url.startswith(("http://", "https://")):
            yield f"[lineage] url: {spec.lineage.url!r} is no address like http://127.0.0.1:5000"
        seen: dict[str, str] = {}
        for place, name in (
            *((f"[sources.{name}]", name) for name in spec.sources),
            *((f"[tables.{name}]", name) for name in spec.tables),
            *((f"[[steps]] {step.name}", step.name) for step in spec.steps),
        ):
            if not _VIEW.fullmatch(name):
                yield f"{place} {name!r} is no name for a view: letters, digits and '_'"
            if name.lower() in seen:
                yield f"{place} the name is taken by {seen[name.lower()]}"
            seen[name.lower()] = place

    def subscriptions(self) -> Reasons:
        """Two sources would move one subscription back and forth."""
        seen: dict[tuple[str, str], str] = {}
        for name, source in self.spec.sources.items():
            subscription = self.spec.name if source.subscription is None else source.subscription
            for topic in source.topics:
                other = seen.setdefault((subscription, str(TopicName.parse(topic))), name)
                if subscription and other != name:
                    yield (
                        f"[sources.{name}] subscription: {topic} is read by [sources.{other}] too, under the same subscription"
                        f" {subscription!r}; give one of them another"
                    )

    def source(self, source: Source) -> Reasons:
        if source.format:
            yield from _format(source)
            yield from _unused(source, _STREAM_KEYS, "topics; say it in options, as the format has it")
            if set(source.include) - {"_raw"}:
                yield "include: of another format only _raw, the bytes that were decoded"
            if source.decode != "none" and not source.reader_schema.startswith(_READERS):
                yield (
                    "reader_schema: decode of another format needs topic:NAME, registry:SUBJECT, or avro:, json: or"
                    " protobuf: and a file"
                )
            if source.reader_schema.startswith(OF_REGISTRY) and self.spec.schema_registry is None:
                yield "reader_schema: registry: needs [schema_registry], with its url"
        else:
            yield from self.topics(source)
        if source.decode == "none" and "_raw" in source.include:
            yield "include: _raw needs decode = 'struct' or 'flat'; else value has the bytes"
        if source.decode == "none" and source.on_bad_value != "fail":
            yield "on_bad_value needs decode = 'struct' or 'flat'"
        if source.on_bad_value == "dead_letter":
            yield from self.dead_letters("on_bad_value")
        yield from self.view(source)

    def topics(self, source: Source) -> Reasons:
        yield from _unused(source, _FORMAT_KEYS, "a format")
        if bool(source.topics) == bool(source.pattern):
            yield "one of topics, pattern and format is needed, and only one"
        for topic in source.topics:
            yield from _topic("topics", topic)
        try:
            re.compile(source.pattern)
        except re.error as error:
            yield f"pattern: {source.pattern!r} is no regular expression: {error}"
        # Offsets, a dict, are checked when they are turned into an option.
        if not isinstance(source.start, dict) and source.start not in ("earliest", "latest"):
            try:
                time_ms(source.start)
            except (ValueError, AttributeError) as error:
                yield f"start: {error}; or earliest, latest, or offsets"
        for key in ("max_rows_per_batch", "max_bytes_per_batch", "min_partitions"):
            if getattr(source, key) < 0:
                yield f"{key}: a number from 0 on is expected"

    def table(self, table: Lookup) -> Reasons:
        if bool(table.path) == bool(table.format):
            yield "one of path and format is needed, and only one"
        yield from _format(table)
        if table.path:
            yield from _unused(table, _FORMAT_KEYS, "a format")

    def step(self, step: Step, before: set[str]) -> Reasons:
        ways = [way for way in _WAYS if getattr(step, way)]
        if len(ways) != 1:
            yield f"exactly one of {', '.join(_WAYS)} is needed"
        way = ways[0]
        for name in step.inputs:
            if name not in before:
                yield f"inputs: there is no source, table or earlier step {name!r}"
        if way == "sql":
            if step.inputs:
                yield "inputs: SQL names its inputs itself"
        elif way == "python":
            yield from _callable("python", step.python)
            if not step.inputs:
                yield "inputs is missing: what the function is called with"
        elif len(step.inputs) != 1:
            yield f"inputs: {way} takes exactly one"
        if way == "stateful":
            yield from _callable("stateful", step.stateful)
            if not step.keys:
                yield "keys is missing: the columns that state is kept by"
            if not step.columns:
                yield "columns is missing: what the processor emits, like 'id STRING, n BIGINT'"
        elif step.keys or step.columns or step.time_mode != "none":
            yield "keys, columns and time_mode belong to stateful steps"
        yield from self.view(step)

    def sink(self, sink: Sink, views: set[str]) -> Reasons:
        if sink.input not in views:
            yield f"input: there is no source or step {sink.input!r}"
        ways = [sink.topic or sink.topic_column, sink.path, sink.foreign and sink.format, sink.python]
        if sum(map(bool, ways)) != 1:
            yield "exactly one of topic (or topic_column), path, format and python is needed"
        if sink.topic and sink.topic_column:
            yield "topic and topic_column exclude one another"
        yield from self.keys(sink)
        if sink.python:
            yield from _callable("python", sink.python)
        elif sink.foreign:
            if self.spec.output == "update":
                yield "a format takes output = 'append', or 'complete'; python takes 'update'"
            if self.spec.output == "complete" and sink.mode != "overwrite":
                yield "mode: output = 'complete' needs 'overwrite'"
        elif sink.path:
            yield from self.table_sink(sink)
        elif sink.delivery not in ("", "exactly_once") and self.spec.dead_letters:
            yield f"delivery: {sink.delivery} cannot be combined with dead_letters"
        if sink.topic:
            yield from _topic("topic", sink.topic)

    def table_sink(self, sink: Sink) -> Reasons:
        if sink.delete_when and not sink.keys:
            yield "delete_when needs keys: a row deletes the one that agrees with it in these"
        if sink.archive:  # its table could not distinguish a rejected message from a lost one
            source = self.spec.sources.get(sink.input)
            if source is None or source.format or sink.keys:
                yield "archive: the input is a source, without keys: all its messages are kept"
            elif _rejects(source) or source.on_bad_value != "fail":
                yield f"archive: [sources.{sink.input}] rejects rows, and an archive keeps each"
        if self.spec.output == "complete":
            yield "a table takes output = 'append' or 'update', not 'complete'"
        if self.spec.output == "update" and not sink.keys:
            yield (
                "keys is missing: with output = 'update' a row replaces the one that agrees with it in these columns"
            )

    def keys(self, sink: Sink) -> Reasons:
        """Refuse keys of other kinds of sinks."""
        yield from _format(sink)
        if sink.path and sink.format not in ("", "delta"):
            yield f"format: {DELTA_ONLY}; another format has its path in options"
        if not (sink.topic or sink.topic_column):
            keys = (*_TOPIC_KEYS, "delivery", "ordered") if sink.foreign else _TOPIC_KEYS
            yield from _unused(sink, keys, "topics")
        if not sink.path:
            yield from _unused(sink, _TABLE_KEYS, "tables")
        if not sink.foreign or sink.python:
            yield from _unused(sink, _FORMAT_KEYS, "a format")

    def view(self, view: Source | Step) -> Reasons:
        if view.watermark is not None:
            yield from _at("watermark", _duration("delay", view.watermark.delay))
            if view.watermark.late == "dead_letter":
                yield from _at("watermark", self.dead_letters("late"))
        names = [one.name for one in view.expect]
        for name in names:
            if names.count(name) > 1:
                yield f"expect: {name!r} is there twice"
        for one in view.expect:
            if one.action == "dead_letter":
                yield from _at(f"expect {one.name!r}", self.dead_letters("action"))
        if self.spec.output == "complete" and _rejects(view):
            yield "output = 'complete' allows neither a watermark nor rejected rows"

    def dead_letters(self, key: str) -> Reasons:
        if not self.spec.dead_letters:
            yield f"{key}: dead_letter needs dead_letters, the topic, at the top of the file"


def _at(place: str, reasons: Iterable[str]) -> Reasons:
    return (f"{place} {reason}" for reason in reasons)


def _rejects(view: Source | Step) -> bool:
    rejected = any(one.action in ("drop", "dead_letter") for one in view.expect)
    return rejected or view.watermark is not None


def _unused(struct: Source | Lookup | Sink, keys: Iterable[str], belong: str) -> Reasons:
    """Refuse keys that have no meaning here."""
    for field in msgspec.structs.fields(type(struct)):
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if field.name in keys and getattr(struct, field.name) != default:
            yield f"{field.name} belongs to {belong}"


def _format(struct: Source | Lookup | Sink) -> Reasons:
    if struct.format.lower() in _OURS:
        topics = struct.format == "penstock"
        ours = "topics are named by topics and topic" if topics else "a table has a path"
        yield f"format: {struct.format} is written without it: {ours}"


def _topic(key: str, name: str) -> Reasons:
    try:
        topic = TopicName.parse(name)
    except PenstockError as error:
        yield f"{key}: {error.message}"
        return
    if not topic.persistent:
        yield f"{key}: {topic} keeps nothing"


def _duration(key: str, text: str) -> Reasons:
    try:
        duration_ms(text)
    except ValueError as error:
        yield f"{key}: {error}"


def _callable(key: str, text: str) -> Reasons:
    module, _, name = text.partition(":")
    if not all(part.isidentifier() for part in module.split(".")) or not name.isidentifier():
        yield f"{key}: {text!r} is not module:name"
