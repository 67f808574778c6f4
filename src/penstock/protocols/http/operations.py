"""Operations of HTTP endpoints, each declared once, at its handler: routers and OpenAPI are made from them."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from penstock.model.errors import ErrorKind, PenstockError

from .answers import not_allowed
from .params import Parameter

H = TypeVar("H", bound=Callable[..., Any])

# What nearly every operation may be refused with.
ALWAYS: Final = (
    ErrorKind.BAD_PARAMETER,
    ErrorKind.UNAUTHENTICATED,
    ErrorKind.FORBIDDEN,
    ErrorKind.UNAVAILABLE,
    ErrorKind.NEWER_FORMAT,
)


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path. `request` and `answer` are types that msgspec knows; None is an empty body.

    `answers` are further representations by their media type; `errors` what it may be refused with.
    """

    method: str
    path: str
    tag: str
    summary: str
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    request: Any = None
    request_needed: bool = True
    example: Any = None  # a body that would be taken as it is
    answer: Any = None
    status: int = 200
    accepted: Any = None  # the answer with 202, while the work goes on
    answers: tuple[str, ...] = ()
    bodies: tuple[str, ...] = ()  # media types of a body that is not JSON of a type of ours
    media: tuple[str, ...] = ("application/json",)  # of `request`, `answer` and errors
    further: tuple[tuple[int, str], ...] = ()  # further statuses, with what they mean
    errors: tuple[ErrorKind, ...] = ()
    handler: Any = None  # what serves it; its arguments are its endpoint's

    @property
    def secured(self) -> bool:
        """Whether it needs credentials, if authentication is on."""
        return ErrorKind.UNAUTHENTICATED in self.errors


class Table:
    """The operations of some handlers; each is below all of `bases`."""

    def __init__(self, tag: str, *bases: str) -> None:
        self._tag = tag
        self._bases = bases or ("",)
        self._operations: list[Operation] = []

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._operations)

    def on(self, method: str, *paths: str, **about: Any) -> Callable[[H], H]:
        """Declare the decorated function as what serves `method` at `paths`; `about` is of `Operation`."""

        def declare(handler: H) -> H:
            for path in paths:
                for base in self._bases:
                    fields = {"tag": self._tag, "handler": handler, **about}
                    self._operations.append(Operation(method=method, path=base + path, **fields))
            return handler

        return declare


class _Node:
    """What may follow some segments, and the paths that end there, with the places of their names."""

    __slots__ = ("any", "literal", "only", "paths")

    def __init__(self) -> None:
        self.literal: dict[str, _Node] = {}
        self.only: dict[re.Pattern[str], _Node] = {}
        self.any: _Node | None = None
        self.paths: list[tuple[str, list[tuple[str, int]]]] = []


class Router:
    """Finds which of some paths is meant, at a cost that does not grow with their number.

    `{name}` matches any segment, or those that match the pattern in `only` of that name.
    """

    def __init__(self, paths: Iterable[str], only: Mapping[str, re.Pattern[str]] | None = None) -> None:
        self._root = _Node()
        for path in paths:
            node, names = self._root, []
            for at, segment in enumerate(path.split("/")[1:]):
                if not segment.startswith("{"):
                    node = node.literal.setdefault(segment, _Node())
                    continue
                names.append((segment[1:-1], at))
                pattern = (only or {}).get(segment[1:-1])
                if pattern is not None:
                    node = node.only.setdefault(pattern, _Node())
                else:
                    node.any = node.any or _Node()
                    node = node.any
            node.paths.append((path, names))

    def find(self, segments: Sequence[str]) -> tuple[str, dict[str, str]] | None:
        """The best path that segments are of, and the values of its names; None without a match."""
        return next(self.all(segments), None)

    def all(self, segments: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
        """Every such path, the best first: a literal segment goes before `{name}`."""
        reached = [(self._root, 0)]
        while reached:
            node, at = reached.pop()
            if at == len(segments):
                for path, names in node.paths:
                    yield path, {name: segments[place] for name, place in names}
                continue
            segment = segments[at]
            if node.any is not None:
                reached.append((node.any, at + 1))
            for pattern, below in node.only.items():
                if pattern.fullmatch(segment):
                    reached.append((below, at + 1))
            literal = node.literal.get(segment)
            if literal is not None:
                reached.append((literal, at + 1))


class Handlers:
    """Finds what serves a request: the first declared path that matches and has its method."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._methods: dict[str, dict[str, Any]] = {}
        for operation in operations:
            self._methods.setdefault(operation.path, {})[operation.method] = operation.handler
        self._router = Router(self._methods)

    def find(self, method: str, segments: Sequence[str]) -> tuple[str, Any, dict[str, str]]:
        """The path as declared, the handler, and the values of the path's names; raises NOT_FOUND, METHOD_NOT_ALLOWED."""
        allowed: list[str] = []
        for path, names in self._router.all(segments):
            methods = self._methods[path]
            if method in methods:
                return path, methods[method], names
            allowed += methods
        if allowed:
            raise not_allowed(method, allowed)
        raise PenstockError(ErrorKind.NOT_FOUND, f"there is nothing at {'/' + '/'.join(segments)[:199]}")
