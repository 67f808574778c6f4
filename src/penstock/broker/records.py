"""How the messages of a topic are stored as records of the cluster, for programs that may read them there themselves."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from penstock.model.names import TopicName


class SchemaId(msgspec.Struct, frozen=True, kw_only=True):
    """The meaning of a schema registry's id in front of the values, or of the keys, of a topic.

    `version` is a version of the topic's schema, or of the keys' schema; None: the bytes belong to the content. `indexes` are
    Protobuf's message indexes of each message of the schema's file. The meaning is valid for `for_ms`, 0: for good.
    """

    id: int
    version: int | None
    indexes: Sequence[bytes] | None = None
    for_ms: int = 0


class RecordFormat(msgspec.Struct, frozen=True, kw_only=True):
    """`topic` is the topic's name in the cluster. With a `registry`, contents may begin with a schema's id; `keyed`: keys, too. `own`: it is
    the server's own, and versions in headers are the topic's."""

    topic: str
    registry: bool
    own: bool = False
    keyed: bool = False
    values: Sequence[SchemaId] = ()
    keys: Sequence[SchemaId] = ()


class RecordFormats(Protocol):
    """The formats of all topics."""

    def version_of(self, schema_id: int) -> int:
        """The version by which values are written with an id of a schema before them, of a topic's subject, or of any in a configured
        registry."""

    async def of(
        self, topic: TopicName, values: Sequence[int] = (), keys: Sequence[int] = ()
    ) -> RecordFormat:
        """The format of a topic, with the meaning of ids in front of its values and keys; those that nobody knows mean no
        schema. Raises NOT_SUPPORTED and BAD_PARAMETER for a name that the cluster cannot have."""
