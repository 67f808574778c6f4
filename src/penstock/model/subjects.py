"""Schemas as a registry with Confluent's API has them: subjects, versions, references, levels, modes and codes."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from .confluent import ConfluentCode
from .names import DEFAULT_NAMESPACE, TopicName

VALUE: Final = "-value"  # the end of a topic's subject
CONTEXT: Final = "."  # the default one
VERSION_MAX: Final = 2**31 - 1

# Serializers frame a payload: MAGIC, the id of its schema (4 bytes, big-endian), and of Protobuf the indexes of the message.
MAGIC: Final = b"\0"
HEAD_BYTES: Final = 5
INDEXES_MAX: Final = 33  # of one payload


class Reference(msgspec.Struct, frozen=True):
    """A schema that another one uses; `name` is a full name in Avro, a `$ref` in JSON, an import in Protobuf."""

    name: str
    subject: str
    version: int


class Definition(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A schema's text and what belongs to it."""

    schema: str
    schema_type: str = "AVRO"  # AVRO, JSON or PROTOBUF
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None


class SubjectVersion(msgspec.Struct, frozen=True):
    """A version of a subject; versions and ids count from 1."""

    subject: str
    version: int
    id: int
    definition: Definition
    deleted: bool = False  # softly: still found by id, and with `deleted=true`
    topic_version: int | None = None  # of the topic's schema that it is
    topic_time: int | None = (
        None  # when the topic got it, ms since the epoch: numbers begin again with a new topic
    )
    registered: bool = False  # by a client of the registry, not learned from the topic
    unknown: Mapping[str, Any] | None = None  # fields of its record that another registry wrote

    @property
    def of_topic(self) -> tuple[int | None, int | None]:
        """The topic's schema that it is."""
        return self.topic_version, self.topic_time


class Level(StrEnum):
    """Which schemas a new one is compared with, and in which direction."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def transitive(self) -> bool:
        return self.value.endswith("_TRANSITIVE")

    @property
    def backward(self) -> bool:
        """Whether the new schema must read what older ones wrote."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def forward(self) -> bool:
        """Whether older schemas must read what the new one writes."""
        return self.value.startswith(("FORWARD", "FULL"))


class Mode(StrEnum):
    """Whether a subject may be written."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"
    FORWARD = "FORWARD"


SUBJECT_NOT_FOUND: Final = ConfluentCode(404, 40401)
VERSION_NOT_FOUND: Final = ConfluentCode(404, 40402)
SCHEMA_NOT_FOUND: Final = ConfluentCode(404, 40403)
SUBJECT_DELETED: Final = ConfluentCode(404, 40404)
SUBJECT_NOT_DELETED: Final = ConfluentCode(404, 40405)
VERSION_DELETED: Final = ConfluentCode(404, 40406)
VERSION_NOT_DELETED: Final = ConfluentCode(404, 40407)
LEVEL_NOT_SET: Final = ConfluentCode(404, 40408)
MODE_NOT_SET: Final = ConfluentCode(404, 40409)
INCOMPATIBLE: Final = ConfluentCode(409, 409)
NO_SCHEMA: Final = ConfluentCode(422, 422)
BAD_SCHEMA: Final = ConfluentCode(422, 42201)
BAD_VERSION: Final = ConfluentCode(422, 42202)
BAD_LEVEL: Final = ConfluentCode(422, 42203)
BAD_MODE: Final = ConfluentCode(422, 42204)
NOT_PERMITTED: Final = ConfluentCode(422, 42205)
REFERENCED: Final = ConfluentCode(422, 42206)
BAD_SUBJECT: Final = ConfluentCode(422, 42208)


def topic_of(subject: str) -> TopicName | None:
    """The topic whose schemas are the versions of a subject: `{topic}-value` in the default context."""
    if not subject.endswith(VALUE) or context_of(subject) != CONTEXT:
        return None
    found = TopicName.parse_known(subject.removesuffix(VALUE))
    # A topic has one subject: other spellings of its name belong to no topic.
    return found if found is not None and found.partition < 0 and subject_of(found) == subject else None


def subject_of(topic: TopicName, end: str = VALUE) -> str:
    """The subject of a topic's values, or of what `end` says: by its local name for those of `public/default`, else by its full name."""
    topic = topic.base
    if topic.namespace_name == DEFAULT_NAMESPACE:
        return f"{topic.local}{end}"
    return f"persistent://{topic.tenant}/{topic.namespace}/{topic.local}{end}"


def context_of(subject: str) -> str:
    """The context of a subject: `.ctx` of `:.ctx:name`, else the default one."""
    if subject.startswith(":."):
        return subject[1:].partition(":")[0]
    return CONTEXT


def qualified(context: str, subject: str) -> str:
    """A subject as it is called outside of `/contexts/CONTEXT`."""
    subject = subject.removeprefix(":.:")  # the default context, named
    return subject if context == CONTEXT or subject.startswith(":.") else f":{context}:{subject}"


def context_named(text: str) -> str:
    """A context as a path names it: `.dev`, `dev` or `:.dev:`."""
    return "." + text.strip(":").lstrip(".")
