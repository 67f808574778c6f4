"""Which path means which call: patterns over the segments of a path as it was sent.

Segments are taken apart before they are decoded, so that a topic's name may hold a slash.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

from .answers import Answer
from .call import Call

Handler = Callable[[Call], Awaitable[Answer]]
H = TypeVar("H", bound=Handler)


class Endpoint(NamedTuple):
    """One call under its path: `{name}` stands for any segment, the rest for itself."""

    method: str
    path: str
    handler: Handler
    query: tuple[str, ...]  # the parameters it looks at
    body: Any  # the type of what it expects; None: nothing
    status: int
    answer: Any  # the type of what it answers; None: nothing
    text: bool  # it answers text or bytes rather than JSON

    @property
    def summary(self) -> str:
        """The first line of what the handler says of itself."""
        return (self.handler.__doc__ or "").strip().partition("\n")[0]


class Table:
    """Endpoints as one module declares them."""

    def __init__(self) -> None:
        self.endpoints: list[Endpoint] = []

    def on(
        self,
        method: str,
        *paths: str,
        query: tuple[str, ...] = (),
        body: Any = None,
        answer: Any = None,
        status: int | None = None,
        text: bool = False,
    ) -> Callable[[H], H]:
        """Declare the decorated function as the call under `paths`.

        A GET answers an object unless `answer` says otherwise; anything else answers nothing (204).
        """
        if method == "GET" and answer is None and not text:
            answer = dict[str, Any]
        if status is None:
            status = 204 if answer is None and not text else 200

        def declare(handler: H) -> H:
            for path in paths:
                self.endpoints.append(Endpoint(method, path, handler, query, body, status, answer, text))
            return handler

        return declare


class _Node:
    __slots__ = ("any", "by_method", "literal")

    def __init__(self) -> None:
        self.literal: dict[str, _Node] = {}
        self.any: _Node | None = None
        self.by_method: dict[str, Endpoint] = {}


class Found(NamedTuple):
    """An endpoint, or None with the methods that there are; none at all where the path means nothing."""

    endpoint: Endpoint | None
    segments: list[str]
    methods: list[str]


class Paths:
    """All endpoints, found by path and method. A literal segment goes before `{name}`."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._root = _Node()
        for endpoint in endpoints:
            node = self._root
            for segment in endpoint.path.strip("/").split("/"):
                if segment.startswith("{"):
                    node.any = node.any or _Node()
                    node = node.any
                else:
                    node = node.literal.setdefault(segment, _Node())
            assert endpoint.method not in node.by_method, f"declared twice: {endpoint.method} {endpoint.path}"
            node.by_method[endpoint.method] = endpoint

    def find(self, method: str, raw_path: str) -> Found:
        """The endpoint for a path as it was sent, still percent-encoded."""
        segments = raw_path.strip("/").split("/")
        methods: list[str] = []
        for node in self._reach(self._root, segments, 0):
            endpoint = node.by_method.get(method)
            if endpoint is not None:
                return Found(endpoint, segments, [])
            methods += [m for m in node.by_method if m not in methods]
        return Found(None, segments, methods)

    def _reach(self, node: _Node, segments: list[str], at: int) -> Iterable[_Node]:
        if at == len(segments):
            if node.by_method:
                yield node
            return
        literal = node.literal.get(segments[at])
        if literal is not None:
            yield from self._reach(literal, segments, at + 1)
        if node.any is not None and segments[at]:
            yield from self._reach(node.any, segments, at + 1)


def named(endpoint: Endpoint, segments: list[str]) -> dict[str, str]:
    """The values of an endpoint's `{name}` segments, decoded."""
    pattern = endpoint.path.strip("/").split("/")
    return {
        wanted[1:-1]: unquote(given, errors="strict")
        for wanted, given in zip(pattern, segments, strict=True)
        if wanted.startswith("{")
    }
