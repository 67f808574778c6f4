"""Which path means which call: patterns over the segments of a path as it was sent.

Segments are taken apart before they are decoded, so that a topic's name may hold a slash.
"""

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote

from penstock.protocols.http.answers import Answer

from .call import Call

Handler = Callable[[Call], Awaitable[Answer]]
H = TypeVar("H", bound=Handler)


class AdminOperation(NamedTuple):
    """One call under its path: `{name}` stands for any segment, the rest for itself."""

    method: str
    path: str
    handler: Handler
    query: tuple[str, ...]  # the parameters it looks at
    body: Any  # the type of what it expects; None: nothing
    status: int
    answer: Any  # the type of what it answers; None: nothing
    text: bool  # it answers text or bytes rather than JSON
    fixed: bool  # what it answers is a truth of one server, whatever is configured

    @property
    def summary(self) -> str:
        """The first line of what the handler says of itself."""
        return (self.handler.__doc__ or "").strip().partition("\n")[0]


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
                self.endpoints.append(
                    AdminOperation(method, path, handler, query, body, status, answer, text, fixed)
                )
            return handler

        return declare


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
