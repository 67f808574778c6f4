"""Which path means which call: patterns over the segments of a path as it was sent.

Segments are taken apart before they are decoded, so that a topic's name may hold a slash.
"""

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote

from penstock.model.errors import ErrorKind
from penstock.protocols.http.answers import Answer
from penstock.protocols.http.operations import ALWAYS, Operation
from penstock.protocols.http.params import Parameter

from .call import Call

Handler = Callable[[Call], Awaitable[Answer]]
H = TypeVar("H", bound=Handler)


BUNDLE: Final = "0x00000000_0xffffffff"  # each namespace is one, as all of it is served here

_NUMBER: Final[dict[str, Any]] = {"type": "integer", "minimum": 0}
_FLAG: Final[dict[str, Any]] = {"type": "boolean"}
_MODES: Final[dict[str, Any]] = {"type": "string", "enum": ["PERSISTENT", "NON_PERSISTENT", "ALL"]}
_QUOTA: Final[dict[str, Any]] = {"type": "string", "enum": ["destination_storage", "message_age"]}
_PLACES: Final[dict[str, Any]] = {"type": "string", "enum": ["earliest", "latest"]}
_TEXT: Final[dict[str, Any]] = {"type": "string"}
_QUERY: Final = {
    "mode": _MODES,
    "backlogQuotaType": _QUOTA,
    "messageTTL": _NUMBER,
    "initialPosition": _PLACES,
    "messagePosition": _NUMBER,
    "key": _TEXT,
}
_IN_PATH: Final[dict[str, dict[str, Any]]] = {
    **dict.fromkeys(("version", "count", "seconds", "timestamp", "position", "ledger", "entry"), _NUMBER),
    "bundle": {"type": "string", "enum": [BUNDLE]},
}

_ALWAYS: Final = (*ALWAYS, ErrorKind.NOT_FOUND)
# What an endpoint whose path has this may be refused with besides.
_BY_PART: Final = {
    "{tenant}": (ErrorKind.INVALID_NAME, ErrorKind.NAMESPACE_NOT_FOUND, ErrorKind.NAMESPACE_IN_USE),
    "{topic}": (ErrorKind.TOPIC_NOT_FOUND, ErrorKind.PARTITION_NOT_FOUND, ErrorKind.METHOD_NOT_ALLOWED),
    "{subscription}": (ErrorKind.SUBSCRIPTION_NOT_FOUND, ErrorKind.SUBSCRIPTION_BUSY),
    "/schemas/": (ErrorKind.SCHEMA_NOT_FOUND,),
}


class AdminOperation(Operation, frozen=True, kw_only=True):
    """One call under its path: `{name}` stands for any segment, the rest for itself."""

    fixed: bool = False  # what it answers is a truth of one server, whatever is configured


class Refusal(NamedTuple):
    """Methods of paths that are refused, with the reason. A path that ends in `/**` means all below it."""

    methods: tuple[str, ...]
    paths: tuple[str, ...]
    reason: str


class Table:
    """Endpoints as one module declares them."""

    def __init__(self) -> None:
        self.endpoints: list[AdminOperation] = []

    def on(
        self,
        method: str,
        *paths: str,
        query: tuple[str, ...] = (),
        body: Any = None,
        answer: Any = None,
        status: int | None = None,
        text: bool = False,
        fixed: bool = False,
    ) -> Callable[[H], H]:
        """Declare the decorated function as the call under `paths`.

        A GET answers an object unless `answer` says otherwise; anything else answers nothing (204).
        """
        if method == "GET" and answer is None and not text and status != 204:
            answer = dict[str, Any]
        if status is None:
            status = 204 if answer is None and not text else 200

        def declare(handler: H) -> H:
            for path in paths:
                parameters = [Parameter(name, "", _QUERY.get(name, _FLAG)) for name in query]
                names = re.findall(r"{(\w+)}", path)
                parameters += [
                    Parameter(name, "", _IN_PATH[name], "path") for name in names if name in _IN_PATH
                ]
                operation = AdminOperation(
                    method=method,
                    path=path,
                    tag="admin",
                    summary=(handler.__doc__ or "").strip().partition("\n")[0],
                    parameters=tuple(parameters),
                    request=body,
                    request_needed=body in (int, bool) and "messageTTL" not in query,
                    answer=answer,
                    status=status,
                    answers=("text/plain", "application/octet-stream") if text else (),
                    errors=_errors(method, path, takes=body is not None, fixed=fixed),
                    handler=handler,
                    fixed=fixed,
                )
                self.endpoints.append(operation)
            return handler

        return declare


def _errors(method: str, path: str, *, takes: bool, fixed: bool) -> tuple[ErrorKind, ...]:
    """What a call may be refused with: as its path, its method and its having a body say."""
    kinds = list(_ALWAYS)
    for part, more in _BY_PART.items():
        if part in path:
            kinds += more
    if fixed and takes:
        kinds.append(ErrorKind.METHOD_NOT_ALLOWED)
    if takes:
        kinds += (ErrorKind.TOO_LARGE, ErrorKind.BAD_VALUE_SCHEMA, ErrorKind.INCOMPATIBLE_SCHEMA)
    if method == "PUT":
        kinds += (
            ErrorKind.ALREADY_EXISTS,
            ErrorKind.TOO_MANY_TOPICS,
            ErrorKind.TOO_MANY_SUBSCRIPTIONS,
            ErrorKind.TOO_LARGE,
        )
    return tuple(kinds)


class _Node:
    __slots__ = ("any", "below", "by_method", "literal", "particular", "refused")

    def __init__(self) -> None:
        self.literal: dict[str, _Node] = {}
        self.particular: dict[str, _Node] = {}  # by a name of _PARTICULAR
        self.any: _Node | None = None
        self.by_method: dict[str, AdminOperation] = {}
        self.refused: dict[str, str] = {}  # why, by method
        self.below = ""  # why all that is below is refused


class Found(NamedTuple):
    """An endpoint, or None with the methods that there are, and why this one is refused where that is known;
    none and no reason where the path means nothing."""

    endpoint: AdminOperation | None
    segments: list[str]
    methods: list[str]
    reason: str = ""


class Paths:
    """All endpoints, and what is refused, by path and method. A literal segment goes before `{name}`."""

    def __init__(self, endpoints: Iterable[AdminOperation], refusals: Iterable[Refusal] = ()) -> None:
        self._root = _Node()
        for endpoint in endpoints:
            node = self._node(endpoint.path)
            assert endpoint.method not in node.by_method, f"declared twice: {endpoint.method} {endpoint.path}"
            node.by_method[endpoint.method] = endpoint
        for refusal in refusals:
            for path in refusal.paths:
                if path.endswith("/**"):
                    self._node(path[:-3]).below = refusal.reason
                    continue
                node = self._node(path)
                for method in refusal.methods:
                    if method not in node.by_method:
                        node.refused[method] = refusal.reason

    def _node(self, path: str) -> _Node:
        """The place of a pattern, made where there is none."""
        node = self._root
        for segment in path.strip("/").split("/"):
            if segment[1:-1] in _PARTICULAR:
                node = node.particular.setdefault(segment[1:-1], _Node())
            elif segment.startswith("{"):
                node.any = node.any or _Node()
                node = node.any
            else:
                node = node.literal.setdefault(segment, _Node())
        return node

    def find(self, method: str, raw_path: str) -> Found:
        """The endpoint for a path as it was sent, still percent-encoded."""
        segments = raw_path.strip("/").split("/")
        methods: list[str] = []
        reason = ""
        for node in self._reach(self._root, segments, 0):
            endpoint = node.by_method.get(method)
            if endpoint is not None:
                return Found(endpoint, segments, [])
            methods += [m for m in node.by_method if m not in methods]
            reason = reason or node.refused.get(method, "") or node.below
        return Found(None, segments, methods, reason)

    def _reach(self, node: _Node, segments: list[str], at: int) -> Iterable[_Node]:
        if node.below or (at == len(segments) and (node.by_method or node.refused)):
            yield node
        if at == len(segments):
            return
        segment = segments[at]
        literal = node.literal.get(segment)
        if literal is not None:
            yield from self._reach(literal, segments, at + 1)
        for name, particular in node.particular.items():
            if _PARTICULAR[name].fullmatch(segment):
                yield from self._reach(particular, segments, at + 1)
        if node.any is not None and segment:
            yield from self._reach(node.any, segments, at + 1)


# What some names stand for; the others stand for any segment.
_PARTICULAR: Final = {
    "domain": re.compile("persistent|non-persistent"),
    "bundle": re.compile("0x[0-9a-fA-F]{8}_0x[0-9a-fA-F]{8}"),
}


def named(endpoint: AdminOperation, segments: list[str]) -> dict[str, str]:
    """The values of an endpoint's `{name}` segments, decoded."""
    pattern = endpoint.path.strip("/").split("/")
    return {
        wanted[1:-1]: unquote(given, errors="strict")
        for wanted, given in zip(pattern, segments, strict=True)
        if wanted.startswith("{")
    }
