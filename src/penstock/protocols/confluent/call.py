"""One request to an API of Confluent's: its caller, and what its path, query and body say."""

from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from penstock.model.confluent import ConfluentCode, ConfluentError
from penstock.protocols.caller import Caller
from penstock.protocols.http.exchange import Exchange

from .content import media_type

# Others may be slow to decode.
_CHARSETS: Final = ("utf-8", "utf-16", "utf-16le", "utf-16be", "utf-32", "us-ascii", "iso-8859-1")
_TRUE: Final = ("true", "1", "")

UNREADABLE: Final = ConfluentCode(422, 422)  # a body that is JSON of another shape
NO_JSON: Final = ConfluentCode(400, 400)


class Call:
    """One request: its caller, the names in its path, its query and its body."""

    def __init__(self, caller: Caller, names: dict[str, str], exchange: Exchange, body: bytes) -> None:
        self.caller = caller
        self.names = names
        self.exchange = exchange
        self.body = body
        query: str = exchange.scope["query_string"].decode("latin-1")
        self._pairs = parse_qsl(query, keep_blank_values=True) if query else []
        self._query = dict(self._pairs)

    def text(self, name: str, default: str = "") -> str:
        return self._query.get(name, default)

    def texts(self, name: str) -> list[str]:
        """Every value of a parameter."""
        return [value for key, value in self._pairs if key == name]

    def flag(self, name: str) -> bool:
        value = self._query.get(name)
        return value is not None and value.lower() in _TRUE

    def number(self, name: str, default: int) -> int:
        value = self._query.get(name, "")
        return int(value) if value.isascii() and value.isdigit() and len(value) < 11 else default

    def json(self, kind: Any) -> Any:
        """The body. Raises ConfluentError for one that is not of this type."""
        _, charset = media_type(self.exchange.headers.get("content-type", ""))
        if charset not in _CHARSETS:
            raise ConfluentError(ConfluentCode(415, 415), f"The charset {charset[:40]!r} is not taken")
        try:
            text = self.body if charset == "utf-8" else self.body.decode(charset)
            return msgspec.json.decode(text, type=kind)
        except (msgspec.ValidationError, LookupError, UnicodeError, RecursionError) as error:
            raise ConfluentError(UNREADABLE, f"The body cannot be read: {error}") from None
        except msgspec.DecodeError as error:
            raise ConfluentError(NO_JSON, f"The body is not valid JSON: {error}") from None
