"""Records as they are produced, and the results of their publication."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

Type = Literal["BINARY", "JSON", "STRING", "AVRO", "JSONSCHEMA", "PROTOBUF"]
Strategy = Literal["TOPIC_NAME", "RECORD_NAME", "TOPIC_RECORD_NAME"]


class Header(msgspec.Struct, forbid_unknown_fields=True):
    """A header; `value` is base64."""

    name: str
    value: str | None = None


class Data(msgspec.Struct, forbid_unknown_fields=True):
    """A key or a value, and how it is encoded.

    `type` with `schema` (for AVRO, JSONSCHEMA, PROTOBUF) or alone (for the others); or no type and `schema_id`, `schema_version` or
    neither, which is the newest schema of the subject.
    """

    type: Type | None = None
    subject: str | None = None
    subject_name_strategy: Strategy | None = None
    schema_id: int | None = None
    schema_version: int | None = None
    schema: str | None = None
    data: Any = None


class Record(msgspec.Struct, forbid_unknown_fields=True):
    """A record to publish."""

    partition_id: int | None = None
    headers: list[Header] | None = None
    key: Data | None = None
    value: Data | None = None
    timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class StoredData(msgspec.Struct, omit_defaults=True):
    """What was stored of a key or a value: `size` in bytes, framing included."""

    size: int
    type: str | None = None
    subject: str | None = None
    schema_id: int | None = None
    schema_version: int | None = None


class Stored(msgspec.Struct, omit_defaults=True):
    """Where a record is."""

    cluster_id: str
    topic_name: str
    partition_id: int
    offset: int
    timestamp: str
    key: StoredData | None = None
    value: StoredData | None = None


class StoredInStream(Stored, omit_defaults=True, kw_only=True):
    """The same in a stream, beside errors."""

    error_code: int


class Failed(msgspec.Struct):
    """Why a record was not stored."""

    error_code: int
    message: str


class Entry(Record, forbid_unknown_fields=True, kw_only=True):
    """A record of a batch, with the caller's id."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=80)]


class Batch(msgspec.Struct):
    """Records to publish together."""

    entries: list[Entry] = []


class StoredEntry(Stored, omit_defaults=True, kw_only=True):
    """Where a record of a batch is."""

    id: str


class FailedEntry(msgspec.Struct):
    """Why a record of a batch was not stored."""

    id: str
    error_code: int
    message: str


class BatchAnswer(msgspec.Struct):
    """What became of each record of a batch."""

    successes: list[StoredEntry]
    failures: list[FailedEntry]
