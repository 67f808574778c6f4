"""Operations of HTTP endpoints, each declared once, at its handler: routers and OpenAPI are made from them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
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
)


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path. `request` and `answer` are types that msgspec knows; None is no body.

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
    answer: Any = None
    status: int = 200
    answers: tuple[str, ...] = ()
    bodies: tuple[str, ...] = ()  # media types of a body that is not JSON of a type of ours
    further: tuple[tuple[int, str], ...] = ()  # statuses that are no error, with what they mean
    errors: tuple[ErrorKind, ...] = ()
    handler: Any = None  # what serves it; its arguments are its endpoint's

    @property
    def secured(self) -> bool:
        """Whether it needs credentials, where authentication is on."""
        return ErrorKind.UNAUTHENTICATED in self.errors


class Table:
    """The operations of some handlers; each stands below all of `bases`."""

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


class Router:
    """Finds which of some paths is meant; `{name}` stands for any segment."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._by_count: dict[int, dict[str, list[str]]] = {}
        for path in paths:
            pattern = path.split("/")[1:]
            self._by_count.setdefault(len(pattern), {})[path] = pattern

    def all(self, segments: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
        """Every path that segments, decoded, are of, and what stands for its names."""
        for path, pattern in self._by_count.get(len(segments), {}).items():
            pairs = list(zip(pattern, segments, strict=True))
            if all(wanted == given for wanted, given in pairs if wanted[0] != "{"):
                yield path, {wanted[1:-1]: given for wanted, given in pairs if wanted[0] == "{"}

    def find(self, segments: Sequence[str]) -> tuple[str, dict[str, str]] | None:
        """The first that matches; None where there is none."""
        return next(self.all(segments), None)


class Handlers:
    """Finds what serves a request: the first declared path that matches and has its method."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._methods: dict[str, dict[str, Any]] = {}
        for operation in operations:
            self._methods.setdefault(operation.path, {})[operation.method] = operation.handler
        self._router = Router(self._methods)

    def find(self, method: str, segments: Sequence[str]) -> tuple[Any, dict[str, str]]:
        """The handler, and what stands for the names of its path; raises NOT_FOUND, METHOD_NOT_ALLOWED."""
        allowed: list[str] = []
        for path, names in self._router.all(segments):
            methods = self._methods[path]
            if method in methods:
                return methods[method], names
            allowed += methods
        if allowed:
            raise not_allowed(method, allowed)
        raise PenstockError(ErrorKind.NOT_FOUND, f"there is nothing at {'/' + '/'.join(segments)[:199]}")
