"""The target of a request to a Pulsar admin API: the segments of its path, and the one function that writes the path.

A name cannot change the structure of a path: each segment is percent-encoded as a whole, and a segment that a client or a
server could interpret (`.`, `..`, an empty one) is refused.
"""

import re
from typing import Final, Self
from urllib.parse import quote, unquote, unquote_to_bytes

import msgspec

from .errors import ErrorKind, PenstockError
from .names import NamespaceName, TopicName

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_DECODINGS_MAX: Final = 4  # of one segment, by all servers on the way together
_SHOWN_MAX: Final = 80  # characters of a segment in an error


class Target(msgspec.Struct, frozen=True):
    """The decoded segments of a path. Create it with `of`, which checks them."""

    segments: tuple[str, ...]

    @classmethod
    def of(cls, *segments: str) -> Self:
        """A target of these segments; raises INVALID_NAME for a segment that could be interpreted."""
        for segment in segments:
            problem = problem_of(segment)
            if problem:
                raise PenstockError(ErrorKind.INVALID_NAME, problem)
        return cls(segments)

    @classmethod
    def of_namespace(cls, name: NamespaceName, *more: str) -> Self:
        """The path of a namespace below `/admin/v2`, followed by `more`."""
        return cls.of("admin", "v2", "namespaces", name.tenant, name.namespace, *more)

    @classmethod
    def of_topic(cls, name: TopicName, *more: str) -> Self:
        """The path of a topic below `/admin/v2`, followed by `more`; raises INVALID_NAME."""
        return cls.of("admin", "v2", name.domain, name.tenant, name.namespace, name.local, *more)

    @classmethod
    def of_subscription(cls, name: TopicName, subscription: str, *more: str) -> Self:
        """The path of a subscription below `/admin/v2`, followed by `more`; raises INVALID_NAME."""
        return cls.of_topic(name, "subscription", encoded_once(subscription), *more)

    @classmethod
    def of_schemas(cls, name: TopicName, *more: str) -> Self:
        """The path of a topic's schemas below `/admin/v2`, followed by `more`; raises INVALID_NAME."""
        local = encoded_once(name.local)
        return cls.of("admin", "v2", "schemas", name.tenant, name.namespace, local, *more)

    @property
    def path(self) -> str:
        """The path, with every segment percent-encoded."""
        return "".join(f"/{quote(segment, safe='')}" for segment in self.segments)

    def is_path(self, path: str) -> bool:
        """Whether a path from a broker has the same segments. Brokers write a space as `+` or `%20`, and `+` as `%2B`."""
        if not path.startswith("/"):
            return False
        found = [unquote_to_bytes(part.replace("+", " ")) for part in path[1:].split("/")]
        return found == [segment.encode() for segment in self.segments]


def problem_of(segment: str) -> str:
    """Why a segment could change the structure of a path after up to `_DECODINGS_MAX` decodings; empty if it could not."""
    try:
        segment.encode()
    except UnicodeEncodeError:
        return "a segment of the path is not valid Unicode"
    decoded = segment
    for _ in range(_DECODINGS_MAX):
        if decoded in ("", ".", ".."):
            return f"the path has the segment {segment[:_SHOWN_MAX]!r}"
        if _CONTROL.search(decoded):
            return f"a segment of the path has control characters: {segment[:_SHOWN_MAX]!r}"
        before, decoded = decoded, unquote(decoded)
        if decoded == before:
            return ""
    return f"a segment of the path is encoded more than {_DECODINGS_MAX} times"


def encoded_once(name: str) -> str:
    """A name encoded once more, for segments that Pulsar decodes twice (subscriptions, and topics below `/schemas`): else
    it would read `a%2Fb` as `a/b`, and `a+b` as `a b`."""
    return quote(name, safe="") if "%" in name or "+" in name else name
