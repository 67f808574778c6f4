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


class StoredData(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What was stored of a key or a value: `size` in bytes, framing included."""

    type: str
    subject: str | None = None
    schema_id: int | None = None
    schema_version: int | None = None
    size: int


class Stored(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Where a record is: in a stream with `error_code` 200, in a batch with the `id` of its entry."""

    id: str | None = None
    error_code: int | None = None
    cluster_id: str
    topic_name: str
    partition_id: int
    offset: int
    timestamp: str
    key: StoredData | None = None
    value: StoredData | None = None


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


class FailedEntry(msgspec.Struct):
    """Why a record of a batch was not stored."""

    id: str
    error_code: int
    message: str


class BatchAnswer(msgspec.Struct):
    """What became of each record of a batch."""

    successes: list[Stored]
    failures: list[FailedEntry]
