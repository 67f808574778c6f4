"""The bodies of produce requests and answers in the dialect that Pulsar shipped (docs/rest.md)."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.protocols.declarations import Long, SchemaText


class ShippedMessage(Struct, kw_only=True, rename="camel"):
    """A message of the shipped dialect: the payload is a text whatever the schema. Unknown fields are passed over."""

    payload: str | None = None
    key: str | None = None
    key_is_base64: bool = False
    properties: dict[str, str] | None = None
    event_time: str | Long | None = None
    sequence_id: Long | None = None
    replication_clusters: list[str] | None = None
    disable_replication: bool = False
    deliver_at: int | None = None
    deliver_after_ms: int | None = None


class ShippedEnvelope(Struct, kw_only=True, rename="camel"):
    """The fields of a request of the shipped dialect; a version counts before schemas, -1 is none."""

    schema_version: Annotated[int, Meta(ge=-1, le=2**63 - 1)] = -1
    key_schema: SchemaText | None = None
    value_schema: SchemaText | None = None
    producer_name: str | None = None


class ShippedRequest(ShippedEnvelope, kw_only=True, rename="camel"):
    """A produce request of the shipped dialect."""

    messages: list[ShippedMessage]


class RawShippedRequest(ShippedEnvelope, kw_only=True, rename="camel"):
    """The same, its messages not looked at."""

    messages: list[msgspec.Raw]


class PlainShippedMessage(Struct, forbid_unknown_fields=True, gc=False):
    """The commonest message: a payload and nothing else."""

    payload: str


class PlainShippedRequest(ShippedEnvelope, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The commonest request."""

    messages: list[PlainShippedMessage]


class ShippedResult(Struct, rename="camel"):
    """What became of one message, in the shipped dialect; the id is `ledger:entry:partition`, in a batch with `:index`."""

    error_code: int
    message_id: str | UnsetType = UNSET
    schema_version: int | UnsetType = UNSET
    error: str | UnsetType = UNSET
    error_msg: str | UnsetType = UNSET


class ShippedAnswer(Struct, rename="camel"):
    """One result a message, in their order."""

    message_publish_results: list[ShippedResult]
    schema_version: int
