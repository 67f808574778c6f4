"""What REST's operations share: their paths and what these name, parameters, errors."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, NamedTuple
from urllib.parse import unquote_to_bytes

from msgspec import Meta

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName, check_subscription
from penstock.protocols.http import operations
from penstock.protocols.http.operations import Operation, Router
from penstock.protocols.http.params import Parameter

TOPIC: Final = "/topics/{tenant}/{namespace}/{topic}"
SHIPPED: Final = "/topics/{domain}/{tenant}/{namespace}/{topic}"  # in the dialect that Pulsar shipped
DOMAINS: Final = ("persistent", "non-persistent")
INSTANCE: Final = (  # both are PIP-64's
    "/subscription/{subscription}/consumer/{consumer_id}",
    "/subscription/{subscription}/consumers/{consumer_id}",
)
PREFIX: Final = b"/topics/"

Ms = Annotated[int, Meta(ge=0, le=2**40)]
COUNT: Final = {"type": "integer", "minimum": 1}
NUMBER: Final = {"type": "integer", "minimum": 0}
FLAG: Final = {"type": "boolean"}

ALWAYS: Final = (*operations.ALWAYS, ErrorKind.INVALID_NAME)
PRODUCING: Final = (
    *ALWAYS,
    ErrorKind.TOPIC_NOT_FOUND,
    ErrorKind.PARTITION_NOT_FOUND,
    ErrorKind.INCOMPATIBLE_SCHEMA,
    ErrorKind.PRODUCER_FENCED,
    ErrorKind.EXCLUSIVE_PRODUCER,
    ErrorKind.TOO_LARGE,
    ErrorKind.BAD_MEDIA_TYPE,
    ErrorKind.NEEDS_KEY_VALUE_SCHEMA,
    ErrorKind.NEEDS_VALUE_SCHEMA,
    ErrorKind.BAD_KEY_SCHEMA,
    ErrorKind.BAD_VALUE_SCHEMA,
    ErrorKind.BAD_MESSAGE,
    ErrorKind.STORAGE_FULL,
    ErrorKind.STORAGE_FAILED,
    ErrorKind.TOPIC_TERMINATED,
)
READING: Final = (
    *ALWAYS,
    ErrorKind.TOPIC_NOT_FOUND,
    ErrorKind.PARTITION_NOT_FOUND,
    ErrorKind.NOT_ACCEPTABLE,
    ErrorKind.NOT_SUPPORTED,
)
CONSUMING: Final = (*ALWAYS, ErrorKind.TOPIC_NOT_FOUND, ErrorKind.SUBSCRIPTION_NOT_FOUND)

TIMEOUT: Final = Parameter("timeout", "How long to wait for the first message, in ms.", NUMBER)
BOUNDS: Final = (
    Parameter("max_messages", "At most so many messages.", COUNT),
    Parameter("max_bytes", "At most so many bytes of keys and values, but at least one message.", COUNT),
    Parameter(
        "encoding",
        "How values are shown: by their schemas, or their payloads as base64 or text.",
        {"type": "string", "enum": ["json", "base64", "text"]},
    ),
)

_NO_TOPIC: Final = TopicName("persistent", "", "", "")


class Target(NamedTuple):
    """The resource of a request; `shipped` says that it was named in the shipped dialect.

    `operation` is the operation's path: below the topic, or whole if the request's body names the topics.
    """

    operation: str
    topic: TopicName
    shipped: bool = False
    partition: int | None = None
    subscription: str = ""
    consumer: str = ""


class Paths:
    """The paths of operations, to find the target of a request."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        paths = {below(operation): operation.path for operation in operations}
        self._whole = {path for path, whole in paths.items() if path == whole}
        self._below = Router(path for path, whole in paths.items() if path != whole)

    def locate(self, raw_path: bytes) -> Target:
        """The target of a path that begins with `/topics/`; raises NOT_FOUND, INVALID_NAME, PARTITION_NOT_FOUND."""
        parts = [_text(part) for part in raw_path[len(PREFIX) :].split(b"/")]
        if len(parts) == 1 and f"/topics/{parts[0]}" in self._whole:
            return Target(f"/topics/{parts[0]}", _NO_TOPIC)
        domain, shipped = "persistent", parts[0] in DOMAINS
        if shipped:
            domain, *parts = parts
        if len(parts) < 3:
            raise _not_found(raw_path)
        topic = TopicName.of(domain, parts[0], parts[1], parts[2])
        found = self._below.find(parts[3:])
        if found is None:
            raise _not_found(raw_path)
        path, names = found
        return _target(Target(path, topic, shipped), names)


def below(operation: Operation) -> str:
    """An operation's path below the topic; the whole one if it names none."""
    return operation.path.removeprefix(SHIPPED).removeprefix(TOPIC)


def declared_path(operation: str, *, shipped: bool) -> str:
    """The whole path of a target's operation, as it was declared."""
    if operation.startswith(PREFIX.decode()):
        return operation
    return (SHIPPED if shipped else TOPIC) + operation


def _target(whole: Target, given: Mapping[str, str]) -> Target:
    partition, subscription = given.get("partition"), given.get("subscription")
    consumer = given.get("consumer_id")
    if subscription is not None:
        check_subscription(subscription)
    return whole._replace(
        partition=None if partition is None else _partition(partition),
        subscription=subscription or "",
        consumer=consumer or "",
    )


def _partition(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    raise PenstockError(ErrorKind.PARTITION_NOT_FOUND, f"no partition {text[:80]!r}")


def _text(part: bytes) -> str:
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise PenstockError(ErrorKind.INVALID_NAME, "the path is no UTF-8") from None


def _not_found(raw_path: bytes) -> PenstockError:
    return PenstockError(ErrorKind.NOT_FOUND, f"there is nothing at {raw_path[:200].decode('latin-1')}")


def error_code(error: PenstockError) -> int:
    """PIP-64's code of one message's error: 2 if a retry may help, else 1."""
    return 2 if error.retriable else 1
