"""The options of every source and sink, each said once: its name in Spark, its key in a declared pipeline, how its text is read.

Spark hands options over as texts, under names in lower case.
"""

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from penstock.client.access import Access
from penstock.model.errors import PenstockError

from .errors import PipelineError

STORAGE: Final = "storage."  # before the name of an option of an object store
ENVIRONMENT: Final = "env:"  # a value that is looked up where it is used: for secrets

# By `stream`, the queries that an option may belong to instead; and the rest of the refusal.
_OTHERS: Final = {True: "batch", False: "stream"}
_ONLY: Final = {
    "stream": "a stream only: a batch reads all that it asks for",
    "batch": "a batch only: a stream has no end",
}

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")

# What options of Spark's Kafka connector, of Pulsar's and of Delta's are called here.
_ELSEWHERE: Final = {
    "kafka.bootstrap.servers": "the server is named by option url, like http://127.0.0.1:8080",
    "service.url": "the server is named by option url, like http://127.0.0.1:8080",
    "admin.url": "the server is named by option url, like http://127.0.0.1:8080",
    "kafka.group.id": "a durable subscription that follows a stream is named by option subscription",
    "groupidprefix": "a durable subscription that follows a stream is named by option subscription",
    "includeheaders": "a message's headers are its properties: say include=properties",
    "startingoffsetsbytimestamp": "say startingTimestamp, in ms since the epoch",
    "endingoffsetsbytimestamp": "say endingTimestamp, in ms since the epoch",
    "maxrecordspertrigger": "say maxOffsetsPerTrigger",
    "maxfilespertrigger": "say maxOffsetsPerTrigger",
    "versionasof": "say version",
    "timestampasof": "say version",
    "txnappid": "who writes is named by option writer",
    "txnversion": "the number of the batch is option batch",
    "mergeschema": "leave it out: a table's columns grow by themselves",
    "overwriteschema": "leave it out: a table's columns grow by themselves",
}
_KAFKA: Final = ("kafka.", "kafkaconsumer.", "fetchoffset.")
_KAFKAS: Final = "an option of Kafka's connector, which this is not; leave it out"
_LIKE: Final = 0.7  # of 1: one letter too many, or two exchanged, but not another word


class Option(NamedTuple):
    """An option of a data source. `kind` is str, bool, the least whole number, or what there is to choose from."""

    name: str  # in Spark
    key: str = ""  # in a declared pipeline, if it is said there under one name
    kind: type[str] | type[bool] | int | tuple[str, ...] = str
    default: Any = None
    only: str = ""  # stream or batch


def is_url(path: str) -> bool:
    """Whether a table's path is a URL, and not a folder of a file system."""
    return _URL.match(path) is not None


def storage_options(options: Mapping[str, str]) -> dict[str, str]:
    """An object store's options as a data source takes them."""
    return {f"{STORAGE}{name}": text for name, text in options.items()}


def shown(struct: msgspec.Struct, *secret: str) -> str:
    """What `repr` says of a struct, without the values of mappings that may hold credentials: `secret` are their fields."""
    texts = []
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        texts.append(f"{name}={dict.fromkeys(value, '…') if name in secret else value!r}")
    return f"{type(struct).__name__}({', '.join(texts)})"


def revealed(option: str, text: str) -> str:
    """The value of an option that may name an environment variable. Raises PipelineError if that is not set."""
    if not text.startswith(ENVIRONMENT):
        return text
    variable = text.removeprefix(ENVIRONMENT)
    if variable not in os.environ:
        raise PipelineError(f"option {option}: the environment variable {variable} is not set")
    return os.environ[variable]


def split_prefixed(given: Mapping[str, str], prefix: str) -> tuple[dict[str, str], dict[str, str]]:
    """The options whose names begin with a prefix, without it and in lower case, and the others."""
    found, others = {}, {}
    for name, text in given.items():
        if name.lower().startswith(prefix):
            found[name[len(prefix) :].lower()] = text
        else:
            others[name] = text
    return found, others


def names_in(text: str) -> tuple[str, ...]:
    """Names between commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def parse_server(found: Mapping[str, Any]) -> Access:
    """The server that options name (`SERVER`). Raises PipelineError, which names the option."""
    given = {one.key: found[one.name].strip() for one in SERVER if found[one.name] is not None}
    if not given.get("url"):
        raise PipelineError("option url is missing: the server's address, like http://127.0.0.1:8080")
    if given.get("token_file") and given.get("token_env"):
        raise PipelineError("options tokenFile and tokenEnv exclude one another")
    if given.get("key_file") and not given.get("cert_file"):
        raise PipelineError("option tlsKeyFile needs tlsCertFile")
    try:
        return Access(**given)
    except PenstockError as error:
        raise PipelineError(f"option url: {error.message}") from None


def server_options(server: Access) -> dict[str, str]:
    """What `parse_server` reads. Raises PipelineError for a token that is given as text."""
    if server.token:
        raise PipelineError(
            "a token for Spark is named by a file or an environment variable, not given as text"
        )
    return written_options(server, SERVER)


def read_options(
    given: Mapping[str, str],
    table: Sequence[Option],
    ignored: Sequence[str] = (),
    hints: Mapping[str, str] = {},
    *,
    stream: bool | None = None,
) -> dict[str, Any]:
    """The value of each option of a table by its name, its default if it is not given.

    `ignored` are options of Spark's own, and `hints` are said of others, by names in lower case. `stream`: what the options are
    for, None for either. Raises PipelineError, which names the option.
    """
    known = {one.name.lower(): one for one in table}
    found: dict[str, Any] = {one.name: one.default for one in table}
    for key, text in given.items():
        one = known.get(key.lower())
        if one is None:
            if key.lower() not in ignored:
                raise PipelineError(unknown(key, list(found), hints))
        elif stream is not None and one.only == _OTHERS[stream]:
            raise PipelineError(f"option {one.name} is for {_ONLY[one.only]}")
        else:
            found[one.name] = _value(one, text)
    return found


def written_options(struct: object, table: Sequence[Option]) -> dict[str, str]:
    """The options that a table of a pipeline's file makes: values that differ from the defaults of the data source."""
    found: dict[str, str] = {}
    for one in table:
        value = getattr(struct, one.key) if one.key else one.default
        if value == one.default or (not value and one.kind is not bool):
            continue
        if isinstance(value, bool):
            value = str(value).lower()
        found[one.name] = ",".join(value) if isinstance(value, tuple) else str(value)
    return found


def _value(option: Option, text: str) -> Any:
    kind, plain = option.kind, text.strip()
    if isinstance(kind, tuple):
        if plain.lower() not in kind:
            raise PipelineError(f"option {option.name}: {plain!r} is none of {', '.join(kind)}")
        return plain.lower()
    if kind is bool:
        if plain.lower() not in ("true", "false"):
            raise PipelineError(f"option {option.name}: {text!r} is neither true nor false")
        return plain.lower() == "true"
    if isinstance(kind, int):
        if not plain.isascii() or not plain.isdigit() or not kind <= int(plain) < 1 << 63:
            raise PipelineError(f"option {option.name}: {plain!r} is no whole number from {kind} on")
        return int(plain)
    return text


# What each data source takes; see docs/spark.md and docs/lake.md.

# The server's. A token comes by reference only: options appear in plans, in logs and in the catalogue.
SERVER: Final = (
    Option("url", "url"),
    Option("tokenFile", "token_file"),
    Option("tokenEnv", "token_env"),
    Option("tlsCaFile", "ca_file"),
    Option("tlsCertFile", "cert_file"),
    Option("tlsKeyFile", "key_file"),
)

# Of `format("penstock")`, for reading, beside SERVER.
SOURCE: Final = (
    Option("subscribe", "topics"),
    Option("subscribePattern", "pattern"),
    Option("assign"),
    Option("startingOffsets"),
    Option("endingOffsets", only="batch"),
    Option("startingTimestamp", kind=0),
    Option("endingTimestamp", kind=0, only="batch"),
    Option("startingOffsetsByTimestamp"),
    Option("endingOffsetsByTimestamp", only="batch"),
    Option("include", default=""),
    Option("minPartitions", "min_partitions", 1, 1),
    Option("maxRecordsPerPartition", kind=1),
    Option("failOnDataLoss", "fail_on_data_loss", bool, True),
    Option("maxOffsetsPerTrigger", "max_rows_per_batch", 1, only="stream"),
    Option("maxBytesPerTrigger", "max_bytes_per_batch", 1, only="stream"),
    Option("minOffsetsPerTrigger", kind=0, default=0, only="stream"),
    Option("maxTriggerDelay", only="stream"),
    Option("pollInterval", kind=1, only="stream"),
    Option("subscription", default="", only="stream"),
    Option("fetch", default="gateway"),
    Option("pushFilters", kind=bool, default=False, only="batch"),
)

# Further ones, which say how values are decoded.
DECODE: Final = (
    Option("value.decode", "decode", ("none", "struct", "flat"), "none"),
    Option("readerSchema", "reader_schema", default="latest"),
    Option("onNewSchema", "on_new_schema", ("ignore", "fail", "restart"), "ignore"),
    Option("mode", kind=("failfast", "permissive", "dead_letter"), default="failfast"),
    Option("keepBytes", kind=bool, default=False),
)

# Of `format("penstock")`, for writing, beside SERVER.
SINK: Final = (
    Option("topic", "topic"),
    Option("delivery", "delivery", ("exactly_once", "sequence", "at_least_once")),
    Option("writer", default=""),
    Option("batch", kind=0),
    Option("ordered", "ordered", bool, False),
    Option("compression", kind=("none", "lz4", "zlib", "zstd", "snappy"), default="none"),
    Option("deadLetterTopic"),
    Option("value.encode", "encode", ("auto", "none", "avro", "json", "protobuf"), "auto"),
)

# Of `format("penstock_lake")`, for writing, beside SERVER, and for reading.
TABLE_SINK: Final = (
    Option("path", "path", default=""),
    Option("table", default=""),
    Option("partitionBy", "partition_by", default=""),
    Option("timeZone", default=""),
    Option("keys", "keys", default=""),
    Option("deleteColumn", default=""),
    Option("writer", default=""),
    Option("batch", kind=0),
    Option("targetFileBytes", kind=1 << 10),
    Option("archive", "archive", bool, default=False),
)
TABLE_SOURCE: Final = (
    Option("path", "path", default=""),
    Option("version", kind=0),
    Option("columns", default=""),
    Option("pruneFiles", kind=bool, default=False),
)


def unknown(given: str, names: Sequence[str], hints: Mapping[str, str] = {}) -> str:
    """The sentence about option `given` where there are `names`. `hints`: by lower-case name, what to do instead."""
    key = given.lower()
    known = {name.lower(): name for name in names}
    hint = hints.get(key)
    # What is said of another connector's option counts where the place has what it speaks of.
    if hint is None and (elsewhere := _ELSEWHERE.get(key)):
        hint = elsewhere if _speaks_of(elsewhere, names) else None
    if hint is None and key.startswith(_KAFKA):
        hint = _KAFKAS
    if hint is None and (part := next((name for name in names if name.lower().endswith(f".{key}")), None)):
        hint = f"did you mean {part}?"
    if hint is None and (like := difflib.get_close_matches(key, known, 1, _LIKE)):
        hint = f"did you mean {known[like[0]]}?"
    return (
        f"unknown option {given}: {hint}" if hint else f"unknown option {given}; there are {', '.join(names)}"
    )


def _speaks_of(hint: str, names: Sequence[str]) -> bool:
    words = hint.replace(":", " ").replace(",", " ").replace("=", " ").split()
    return "leave" in words or any(name in words for name in names)
