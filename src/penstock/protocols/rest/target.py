"""What a path names, and which operation that is."""

from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName, check_local

DOMAINS: Final = ("persistent", "non-persistent")
PREFIX: Final = b"/topics/"

# Operations on many topics at once, which the request's body names.
_MANY: Final = ("offsets", "sizes", "cursors")
_NO_TOPIC: Final = TopicName("persistent", "", "", "")


class Target(NamedTuple):
    """The resource of a request; `shipped` says that it was named in the shipped dialect."""

    operation: str
    topic: TopicName
    shipped: bool = False
    partition: int | None = None
    subscription: str = ""
    consumer: str = ""


def locate(raw_path: bytes) -> Target:
    """The target of a path that begins with `/topics/`; raises NOT_FOUND, INVALID_NAME, PARTITION_NOT_FOUND."""
    parts = [_text(part) for part in raw_path[len(PREFIX) :].split(b"/")]
    if len(parts) == 1 and parts[0] in _MANY:
        return Target(f"many {parts[0]}", _NO_TOPIC)
    domain, shipped = "persistent", parts[0] in DOMAINS
    if shipped:
        domain, *parts = parts
    if len(parts) < 3:
        raise _not_found(raw_path)
    topic = TopicName.of(domain, parts[0], parts[1], parts[2])
    target = _resource(Target("topic", topic, shipped), parts[3:])
    if target is None:
        raise _not_found(raw_path)
    return target


def _resource(whole: Target, rest: Sequence[str]) -> Target | None:
    match rest:
        case []:
            return whole
        case ["request"]:
            return whole._replace(operation="request")
        case ["partitions", number]:
            return whole._replace(operation="partition", partition=_partition(number))
        case ["partitions", number, ("messages" | "offsets") as what]:
            return whole._replace(operation=what, partition=_partition(number))
        case ["subscription", name]:
            return whole._replace(operation="subscription", subscription=check_local("subscription", name))
        case ["subscription", name, "cursor"]:
            return whole._replace(operation="cursor", subscription=check_local("subscription", name))
        case ["subscription", name, "consumer" | "consumers", consumer]:
            return whole._replace(operation="consumer", subscription=name, consumer=consumer)
        case ["subscription", name, "consumer" | "consumers", consumer, "messages"]:
            return whole._replace(operation="fetch", subscription=name, consumer=consumer)
    return None


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
