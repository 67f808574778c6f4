"""One request to the schema registry: its caller and permissions, and what its path, query and body say."""

from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, TopicName
from penstock.model.subjects import (
    BAD_SCHEMA,
    CONTEXT,
    NO_SCHEMA,
    RegistryCode,
    RegistryError,
    context_named,
    context_of,
    qualified,
    topic_of,
)
from penstock.protocols.auth.permissions import ADMIN
from penstock.protocols.caller import Caller
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.media import parse_media_type

from .registry import Registry
from .shapes import GivenSchema

# Others may be slow to decode.
_CHARSETS: Final = ("utf-8", "utf-16", "utf-16le", "utf-16be", "utf-32", "us-ascii", "iso-8859-1")
_TRUE: Final = ("true", "1", "")


class Call:
    """One request: its caller, what its path names, its query and its body."""

    def __init__(
        self, registry: Registry, caller: Caller, names: dict[str, str], exchange: Exchange, body: bytes
    ) -> None:
        self.registry = registry
        self.caller = caller
        self.context = context_named(names["context"]) if "context" in names else CONTEXT
        self._names = names
        self._exchange = exchange
        self._body = body
        query: str = exchange.scope["query_string"].decode("latin-1")
        self._pairs = parse_qsl(query, keep_blank_values=True)
        self._query = dict(self._pairs)

    @property
    def subject(self) -> str:
        return qualified(self.context, self._names["subject"])

    @property
    def topic(self) -> TopicName | None:
        """The topic whose schemas the subject has."""
        return topic_of(self.subject)

    @property
    def version(self) -> str:
        return self._names["version"]

    @property
    def id(self) -> int:
        text = self._names["id"]
        if text.isascii() and text.isdigit() and len(text) < 11:
            return int(text)
        raise PenstockError(ErrorKind.NOT_FOUND, "HTTP 404 Not Found")

    def text(self, name: str, default: str = "") -> str:
        return self._query.get(name, default)

    def texts(self, name: str) -> list[str]:
        """Every value of a parameter."""
        return [value for key, value in self._pairs if key == name]

    def flag(self, name: str) -> bool:
        value = self._query.get(name)
        return value is not None and value.lower() in _TRUE

    def number(self, name: str, default: int) -> int:
        value = self._query.get(name, "")
        return int(value) if value.isascii() and value.isdigit() and len(value) < 11 else default

    def given(self) -> GivenSchema:
        """The schema in the body. Raises RegistryError."""
        found: GivenSchema = self.json(GivenSchema)
        if found.schema is None:
            raise RegistryError(NO_SCHEMA, "The schema field is missing")
        for one in found.references or ():  # a schema that the caller may not see is not there
            if not self.sees(qualified(context_of(self.subject), one.subject)):
                raise RegistryError(
                    BAD_SCHEMA,
                    f"Invalid schema: no schema reference found for subject {one.subject!r} and version {one.version}",
                )
        return found

    def json(self, kind: Any) -> Any:
        """The body. Raises RegistryError for one that is not of this type."""
        media = parse_media_type(self._exchange.headers.get("content-type", ""))
        charset = media[1].get("charset", "utf-8").lower() if media else "utf-8"
        if charset not in _CHARSETS:
            raise RegistryError(RegistryCode(415, 415), f"The charset {charset[:40]!r} is not taken")
        try:
            text = self._body if charset == "utf-8" else self._body.decode(charset)
            return msgspec.json.decode(text, type=kind)
        except (msgspec.ValidationError, LookupError, UnicodeError, RecursionError) as error:
            raise RegistryError(NO_SCHEMA, f"The body cannot be read: {error}") from None
        except msgspec.DecodeError as error:
            raise RegistryError(RegistryCode(400, 400), f"The body is not valid JSON: {error}") from None

    def page(self, found: list[Any]) -> list[Any]:
        """The part of a list that `offset` and `limit` name."""
        offset, limit = self.number("offset", 0), self.number("limit", -1)
        return found[offset:] if limit < 0 else found[offset : offset + limit]

    # -- permissions

    def may_read(self) -> None:
        """Raise FORBIDDEN unless the caller may know the subject."""
        topic = self.topic
        if topic is None:
            self.caller.may_list(DEFAULT_NAMESPACE)
        else:
            self.caller.may_look(topic)

    def may_register(self) -> None:
        """Raise FORBIDDEN unless the caller may publish to the subject's topic, or somewhere if it is of none."""
        topic = self.topic
        if topic is None:
            self.caller.may_list(DEFAULT_NAMESPACE)
            self.caller.may_produce_somewhere()
        else:
            self.caller.may_produce(topic)

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
        topic = self.topic
        return topic is None or self.caller.allowed(topic)[ADMIN]

    def sees(self, subject: str) -> bool:
        topic = topic_of(subject)
        return self.caller.knows(DEFAULT_NAMESPACE) if topic is None else self.caller.sees(topic)
