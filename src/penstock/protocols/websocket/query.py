"""Query parameters as Pulsar reads them: the first of a repeated key, unknown keys ignored, Java's numbers."""

import re
from enum import Enum
from typing import Final, TypeVar
from urllib.parse import parse_qsl

from penstock.model.errors import ErrorKind, PenstockError

E = TypeVar("E", bound=Enum)

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1


def bad(text: str) -> PenstockError:
    """A parameter that cannot be: 400 on an upgrade."""
    return PenstockError(ErrorKind.BAD_PARAMETER, text)


class Query:
    """The parameters of one upgrade request."""

    def __init__(self, raw: bytes) -> None:
        self._values: dict[str, str] = {}
        for name, value in parse_qsl(raw.decode("latin-1"), keep_blank_values=True):
            self._values.setdefault(name, value)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str | None:
        """The value as it is; None where there is none."""
        return self._values.get(name)

    def name(self, key: str) -> str:
        """A name that must not be blank; "" where there is none."""
        value = self._values.get(key)
        if value is None:
            return ""
        if not value.strip():
            raise bad(f"{key} cannot be blank")
        return value

    def flag(self, name: str) -> bool:
        """Java's parseBoolean: `true` in any case, everything else is false."""
        return self._values.get(name, "").lower() == "true"

    def integer(self, name: str, default: int, *, least: int = -_INT_MAX - 1) -> int:
        """Java's parseInt, and at least `least`."""
        return self._number(name, default, least, _INT_MAX)

    def long(self, name: str, default: int) -> int:
        """Java's parseLong."""
        return self._number(name, default, -_LONG_MAX - 1, _LONG_MAX)

    def _number(self, name: str, default: int, least: int, most: int) -> int:
        text = self._values.get(name)
        if text is None:
            return default
        if not _INTEGER.fullmatch(text) or not -most - 1 <= int(text) <= most:
            raise bad(f'For input string: "{text[:80]}" ({name})')  # Pulsar's text, and which parameter it is
        value = int(text)
        if value < least:
            raise bad(f"{name} needs to be >= {least}")
        return value

    def choice(self, name: str, kind: type[E], default: E) -> E:
        """One of an enumeration, by its exact value."""
        text = self._values.get(name)
        if text is None:
            return default
        try:
            return kind(text)
        except ValueError:
            raise bad(f"Invalid {name} {text[:80]}") from None
