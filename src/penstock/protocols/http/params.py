"""Parameters of a request, with their types and errors."""

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from penstock.model.errors import ErrorKind, PenstockError

_TRUE: Final = frozenset(("true", "1", "yes"))
_FALSE: Final = frozenset(("false", "0", "no"))
_MAX: Final = 2**63 - 1
# Pulsar's, which asks which broker owns the topic; and a browser's credentials, which the endpoint has read.
_IGNORED: Final = frozenset(("authoritative", "token"))


def whole_number(name: str, text: str, *, least: int = 0, most: int = _MAX) -> int:
    """A whole number within bounds; raises BAD_PARAMETER."""
    if not (text.isascii() and text.isdigit() and len(text) < 20) or not least <= int(text) <= most:
        raise PenstockError(
            ErrorKind.BAD_PARAMETER, f"{name} must be a whole number of at least {least}, not {text[:80]!r}"
        )
    return int(text)


def flag(name: str, text: str, *, empty: bool) -> bool:
    """True or false, `empty` without a value; raises BAD_PARAMETER."""
    if not text:
        return empty
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise PenstockError(ErrorKind.BAD_PARAMETER, f"{name} must be true or false, not {text[:80]!r}")


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of the query, a header or the path; `schema` is JSON schema."""

    name: str
    description: str
    schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "string"})
    where: str = "query"


class Params:
    """The parameters of a query, read strictly: those not in `known` are refused with BAD_PARAMETER.

    A parameter declared as an array may be given several times.
    """

    def __init__(self, query: bytes, known: Iterable[Parameter]) -> None:
        self._known = {one.name: one.schema for one in known if one.where == "query"}
        self._values: dict[str, str] = {}
        self._lists: dict[str, list[str]] = {}
        if not query:
            return
        try:
            pairs = parse_qsl(
                query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100
            )
        except ValueError:
            raise PenstockError(ErrorKind.BAD_PARAMETER, "the query cannot be read") from None
        for name, value in pairs:
            if name in _IGNORED:
                continue
            if name not in self._known:
                raise PenstockError(
                    ErrorKind.BAD_PARAMETER,
                    f"unknown parameter {name[:80]!r}: {', '.join(sorted(self._known)) or 'none'} can be given",
                )
            if self._known[name].get("type") == "array":
                self._lists.setdefault(name, []).append(value)
                continue
            if name in self._values:
                raise PenstockError(ErrorKind.BAD_PARAMETER, f"{name} is given twice")
            self._values[name] = value

    def text(self, name: str) -> str | None:
        return self._values.get(name)

    def texts(self, name: str) -> list[str] | None:
        """The values of an array, None when it is not given."""
        return self._lists.get(name)

    def choice(self, name: str) -> str:
        """One of the declared choices, the first when it is not given."""
        choices: list[str] = self._known[name]["enum"]
        value = self._values.get(name, choices[0])
        if value not in choices:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER, f"{name} must be one of {', '.join(choices)}, not {value[:80]!r}"
            )
        return value

    def number(self, name: str, *, most: int | None = None) -> int | None:
        """A whole number of at least the declared minimum; more than `most` counts as `most`."""
        value = self._values.get(name)
        if value is None:
            return None
        number = whole_number(name, value, least=self._known[name].get("minimum", 0))
        return number if most is None else min(number, most)

    def flag(self, name: str) -> bool:
        value = self._values.get(name)
        return value is not None and flag(name, value, empty=True)
