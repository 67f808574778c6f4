"""One request to the REST proxy: the topic and partition that its path names."""

from typing import Any

from penstock.model.confluent import ConfluentCode, ConfluentError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, TopicName
from penstock.protocols.caller import Caller
from penstock.protocols.confluent.call import Call
from penstock.protocols.confluent.content import NOT_FOUND, NOT_FOUND_TEXT
from penstock.protocols.http.exchange import Exchange

from .services import Services


class ProxyCall(Call):
    """One request to the proxy. `media` is the type of its body."""

    def __init__(
        self,
        proxy: Services,
        caller: Caller,
        names: dict[str, str],
        exchange: Exchange,
        body: bytes,
        media: str | None,
    ) -> None:
        super().__init__(caller, names, exchange, body)
        self.proxy = proxy
        self.media = media

    @property
    def topic(self) -> TopicName:
        """Raises TOPIC_NOT_FOUND."""
        return topic_named(self.names["topic"])

    @property
    def partition(self) -> int:
        """Raises ConfluentError for one that is not a number."""
        text = self.names["partition"]
        if text.isascii() and text.isdigit() and len(text) < 10:
            return int(text)
        raise ConfluentError(NOT_FOUND, NOT_FOUND_TEXT)

    def object(self) -> dict[str, Any]:
        """The body, an object; empty without a body. Raises ConfluentError."""
        found = self.json(Any) if self.body.strip() else {}
        if not isinstance(found, dict):
            raise ConfluentError(ConfluentCode(400, 400), "Bad Request: the body is not an object")
        return found


def topic_named(text: str) -> TopicName:
    """The topic of a name in a path or body: of `public/default`, or a full name. Raises TOPIC_NOT_FOUND for one that no topic can
    have."""
    found = TopicName.parse_known(text)
    if found is None or found.partition >= 0:
        raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, not_found(text))
    return found


def shown(topic: TopicName) -> str:
    """The name of a topic as it is answered."""
    if topic.namespace_name == DEFAULT_NAMESPACE and topic.persistent:
        return topic.local
    return str(topic)


def not_found(name: str) -> str:
    """The text of an error about a topic."""
    return f"Topic {name[:200]} not found."
