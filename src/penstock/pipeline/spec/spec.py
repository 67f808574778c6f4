"""What a pipeline's file says, as values. Read by `parse`; what must hold between them is in `rules`."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from penstock.client.access import Access
from penstock.model.names import TopicName
from penstock.pipeline.options import shown

# A batch that staging, a transaction of Kafka and the memory of a driver take.
BATCH_ROWS: Final = 5_000_000
BATCH_BYTES: Final = 1 << 30

TRIGGER: Final = "1 second"
TABLE_TRIGGER: Final = "10 seconds"  # each commit makes a version and files of a table

Action = Literal["warn", "drop", "dead_letter", "fail"]
Divert = Literal["drop", "dead_letter"]


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """A predicate that must be true of every row; null is not true."""

    name: str
    predicate: str
    action: Action = "warn"


class Watermark(msgspec.Struct, frozen=True, kw_only=True):
    """How long after the newest event time of `column` rows may still come; later ones are `late`."""

    column: str
    delay: str
    late: Divert = "drop"


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Topics as a stream, or what another `format` of Spark streams."""

    format: str = ""
    options: dict[str, str] = {}  # of `format`
    schema: str = ""  # of `format`, as DDL; by default the format knows it
    column: str = "value"  # of `format`: the bytes that `decode` reads
    topics: tuple[str, ...] = ()
    pattern: str = ""
    start: Any = "earliest"  # earliest | latest | a time | {topic: {partition: offset}}
    decode: Literal["none", "struct", "flat"] = "none"
    reader_schema: str = "latest"
    on_new_schema: Literal["ignore", "fail", "restart"] = "ignore"
    on_bad_value: Literal["fail", "drop", "dead_letter"] = "fail"
    include: tuple[str, ...] = ()
    subscription: str | None = None  # by default the pipeline's name; "" for none
    max_rows_per_batch: int = BATCH_ROWS  # 0: as many as there are
    max_bytes_per_batch: int = BATCH_BYTES
    min_partitions: int = 0
    fail_on_data_loss: bool = True
    watermark: Watermark | None = None
    expect: tuple[Expectation, ...] = ()

    def __repr__(self) -> str:
        return shown(self, "options")


class Lookup(msgspec.Struct, frozen=True, kw_only=True):
    """A table that is read again in each batch, to be joined with: a Delta table at `path`, or any `format` of Spark."""

    path: str = ""
    format: str = ""
    options: dict[str, str] = {}
    schema: str = ""

    def __repr__(self) -> str:
        return shown(self, "options")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A view made of earlier ones, in exactly one of the ways `sql`, `python`, `deduplicate` and `stateful`."""

    name: str
    sql: str = ""
    python: str = ""  # module:function of DataFrames, returning one
    stateful: str = ""  # module:Processor, a StatefulProcessor
    deduplicate: tuple[str, ...] = ()  # columns
    inputs: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()  # of `stateful`
    columns: str = ""  # of `stateful`: what it emits, as DDL
    time_mode: Literal["none", "processing_time", "event_time"] = "none"
    watermark: Watermark | None = None
    expect: tuple[Expectation, ...] = ()


class Sink(msgspec.Struct, frozen=True, kw_only=True):
    """The target of a view's rows: a `topic`, a table at `path`, another `format` of Spark, or a function of `python`."""

    input: str
    topic: str = ""
    topic_column: str = ""
    key: str = ""  # columns, by name
    value: str | tuple[str, ...] = ()  # a column, or a struct of some; by default all that have no other role
    properties: str = ""
    event_time: str = ""
    ordering_key: str = ""
    encode: str = "auto"
    delivery: Literal["", "exactly_once", "sequence", "at_least_once"] = ""  # the best that the server offers
    ordered: bool = False  # rows come in the same order when a task is repeated: for `sequence`
    path: str = ""
    format: str = ""
    options: dict[str, str] = {}  # of `format`
    mode: Literal["append", "overwrite"] = "append"  # of `format`
    python: str = ""  # module:function of a DataFrame and the batch's number
    partition_by: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()  # of a table: a row replaces the one that agrees with it in these columns
    delete_when: str = ""  # SQL; a row of which it is true deletes the one with its keys
    compact: bool = True  # whether a pipeline that runs maintains the table
    archive: bool = (
        False  # the rows are all messages of topics, whose offsets continue at the end of the table
    )

    def __repr__(self) -> str:
        return shown(self, "options")

    @property
    def foreign(self) -> bool:
        """Whether the driver has Spark, or a function, write each batch: neither a topic nor a table of ours."""
        return bool(self.python or (self.format and not self.path))

    @property
    def target(self) -> str:
        """A foreign sink's `format` and place, or its function."""
        return f"python {self.python}" if self.python else place_of(self.format, self.options)


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """The address of OpenLineage's run events, their namespace of jobs, and the namespace of datasets of topics."""

    url: str = ""  # empty: the environment says
    namespace: str = ""
    topics: str = ""  # kafka://host:9092; empty: the address of the server's lookups


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline. Paths are absolute; `folder` is the file's, in which modules are searched first."""

    name: str
    server: Access
    sources: dict[str, Source]
    tables: dict[str, Lookup] = {}
    steps: tuple[Step, ...] = ()
    sinks: dict[str, Sink]
    dead_letters: str = ""
    output: Literal["append", "update", "complete"] = "append"
    trigger: str = TRIGGER  # or available_now
    state: Path | str  # a URL is a text
    master: str = "local[*]"
    spark: dict[str, str] = {}
    storage: dict[str, str] = {}  # of the object store that tables are in
    schema_registry: Access | None = None
    lineage: Lineage = Lineage()
    folder: Path
    file: str  # as the user named it
    warnings: tuple[str, ...] = ()  # about the file, for its reader

    def __repr__(self) -> str:
        return shown(self, "storage", "spark")

    @property
    def home(self) -> Path | str:
        """The folder of this pipeline's state, or its URL."""
        return (
            f"{self.state.rstrip('/')}/{self.name}" if isinstance(self.state, str) else self.state / self.name
        )

    @property
    def uses_server(self) -> bool:
        """Whether some part of it is a topic."""
        sinks = any(sink.topic or sink.topic_column for sink in self.sinks.values())
        return bool(sinks or self.dead_letters) or any(
            not source.format or source.reader_schema.startswith(OF_TOPIC) for source in self.sources.values()
        )

    @property
    def once(self) -> bool:
        """Whether a run ends when everything that was there is processed."""
        return self.trigger == AVAILABLE_NOW


AVAILABLE_NOW = "available_now"
OF_TOPIC: Final = "topic:"  # in `reader_schema` of a foreign source
OF_REGISTRY: Final = "registry:"

# Options that name a place in some format: what a checkpoint, or a repeated batch, belongs to. The others may be secrets.
_PLACES: Final = ("path", "table", "dbtable", "topic", "subscribe", "subscribepattern", "assign")


def place_of(format: str, options: Mapping[str, str]) -> str:
    """A format and its path or table, without its other options."""
    places = {name.lower(): text for name, text in options.items()}
    return " ".join([f"format {format}", *(f"{name}={places[name]}" for name in _PLACES if name in places)])


def source_topics(spec: Spec) -> dict[str, str]:
    """What each source reads, in a form that does not depend on how it is written."""
    return {
        name: (source.format and place_of(source.format, source.options))
        or ",".join(sorted(str(TopicName.parse(topic)) for topic in source.topics))
        or f"pattern {source.pattern}"
        for name, source in sorted(spec.sources.items())
    }


def goes_on(before: dict[str, str], now: dict[str, str]) -> bool:
    """Whether a checkpoint of sources (`source_topics`) can go on with others: each has its topics still, perhaps more.

    What a topic was left with is not known when it comes back: so none is left out.
    """
    return before.keys() == now.keys() and all(
        topics == now[name]
        or (
            not any(each.startswith(("pattern ", "format ")) for each in (topics, now[name]))
            and set(topics.split(",")) <= set(now[name].split(","))
        )
        for name, topics in before.items()
    )


def fingerprint(spec: Spec) -> str:
    """What a checkpoint belongs to, 16 hexadecimal digits: the topics that its offsets are of.

    The server's address, limits, steps and sinks may change under a checkpoint, and topics may join (`goes_on`); what
    Spark cannot carry over, it refuses itself.
    """
    text = json.dumps(source_topics(spec), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
