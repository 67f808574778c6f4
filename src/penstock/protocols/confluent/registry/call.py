"""One request to the schema registry: what its path and body name, and what its caller may do with it."""

from collections.abc import Callable
from typing import Any

from penstock.model.confluent import ConfluentError
from penstock.model.names import DEFAULT_NAMESPACE, TopicName
from penstock.model.subjects import (
    BAD_SCHEMA,
    CONTEXT,
    NO_SCHEMA,
    context_named,
    context_of,
    qualified,
    topic_of,
)
from penstock.protocols.auth.permissions import ADMIN
from penstock.protocols.caller import Caller
from penstock.protocols.confluent.call import Call
from penstock.protocols.confluent.content import NOT_FOUND, NOT_FOUND_TEXT
from penstock.protocols.http.exchange import Exchange

from .registry import Registry
from .shapes import GivenSchema


class RegistryCall(Call):
    """One request to the registry."""

    def __init__(
        self,
        registry: Registry | None,
        caller: Caller,
        names: dict[str, str],
        exchange: Exchange,
        body: bytes,
        topic_of: Callable[[str], TopicName | None] = topic_of,
    ) -> None:
        """`registry`: None for a request that another one answers; `topic_of` finds the topic of a subject."""
        super().__init__(caller, names, exchange, body)
        self._registry = registry
        self._topic_of = topic_of
        self.context = context_named(names["context"]) if "context" in names else CONTEXT
        self.shown: str | None = None  # the subject of an answer that depends on nothing else of the caller

    @property
    def registry(self) -> Registry:
        assert self._registry is not None, "the request is answered here"
        return self._registry

    @property
    def subject(self) -> str:
        return qualified(self.context, self.names["subject"])

    @property
    def topic(self) -> TopicName | None:
        """The topic whose schemas the subject has."""
        return self._topic_of(self.subject)

    @property
    def version(self) -> str:
        return self.names["version"]

    @property
    def id(self) -> int:
        text = self.names["id"]
        if text.isascii() and text.isdigit() and len(text) < 11:
            return int(text)
        raise ConfluentError(NOT_FOUND, NOT_FOUND_TEXT)

    def given(self) -> GivenSchema:
        """The schema in the body. Raises ConfluentError."""
        found: GivenSchema = self.json(GivenSchema)
        if found.schema is None:
            raise ConfluentError(NO_SCHEMA, "The schema field is missing")
        for one in found.references or ():  # a schema that the caller may not see is not there
            if not self.sees(qualified(context_of(self.subject), one.subject)):
                raise ConfluentError(
                    BAD_SCHEMA,
                    f"Invalid schema: no schema reference found for subject {one.subject!r} and version {one.version}",
                )
        return found

    def page(self, found: list[Any]) -> list[Any]:
        """The part of a list that `offset` and `limit` name."""
        offset, limit = self.number("offset", 0), self.number("limit", -1)
        return found[offset:] if limit < 0 else found[offset : offset + limit]

    # -- permissions

    def may_read(self) -> None:
        """Raise FORBIDDEN unless the caller may know the subject."""
        may_read(self.caller, self.topic)

    def may_register(self) -> None:
        """Raise FORBIDDEN unless the caller may publish to the subject's topic, or somewhere if it is of none."""
        may_register(self.caller, self.topic)

    def may_administer(self) -> None:
        """Raise FORBIDDEN unless the caller administers the subject's topic, or the default namespace."""
        topic = self.topic
        if topic is None:
            self.caller.may_administer(DEFAULT_NAMESPACE)
        else:
            self.caller.may_administer_topic(topic)

    @property
    def administers(self) -> bool:
        """Whether the caller administers the subject's topic; nothing is noted as refused."""
        return administers(self.caller, self.topic)

    def sees(self, subject: str) -> bool:
        return sees(self.caller, self._topic_of(subject))


# Rights by the topic of a subject; None: it belongs to none, and the rights in the default namespace count.


def may_read(caller: Caller, topic: TopicName | None) -> None:
    """Raise FORBIDDEN unless a caller may know a subject."""
    if topic is None:
        caller.may_list(DEFAULT_NAMESPACE)
    else:
        caller.may_look(topic)


def may_register(caller: Caller, topic: TopicName | None) -> None:
    """Raise FORBIDDEN unless a caller may publish to a subject's topic, or somewhere if it is of none."""
    if topic is None:
        caller.may_list(DEFAULT_NAMESPACE)
        caller.may_produce_somewhere()
    else:
        caller.may_produce(topic)


def administers(caller: Caller, topic: TopicName | None) -> bool:
    """Whether a caller administers a subject's topic; nothing is noted as refused."""
    return topic is None or caller.allowed(topic)[ADMIN]


def sees(caller: Caller, topic: TopicName | None) -> bool:
    """Whether a caller may know the subject of a topic, or (None) one that belongs to none."""
    if caller.role is None:
        return True
    return caller.knows(DEFAULT_NAMESPACE) if topic is None else caller.sees(topic)
