"""Schemas of replies (PIP-371, PIP-43): a reply may name a version of the topic's schema, and is given back as JSON."""

from typing import Any

from msgspec import UNSET

from penstock.broker.producer import Reply
from penstock.broker.schemas import Schemas
from penstock.model.errors import PenstockError
from penstock.model.names import TopicName


def check_reply(schemas: Schemas, topic: TopicName, content: bytes, version: int | None) -> None:
    """Raise SCHEMA_NOT_FOUND for a version the topic does not have, BAD_MESSAGE for content that is not of it."""
    if version is not None:
        from penstock.codec import codec_for  # only where schemas are used

        codec_for(schemas.version(topic, version).schema).check(content)


def value_of(schemas: Schemas, topic: TopicName, reply: Reply) -> Any:
    """The reply as JSON; UNSET where it names no schema, or the schema is gone meanwhile."""
    if reply.schema_version is None:
        return UNSET
    from penstock.codec import codec_for

    try:
        return codec_for(schemas.version(topic, reply.schema_version).schema).decode(reply.content)
    except PenstockError:
        return UNSET
