"""Headers of Kafka's records as properties of messages: names may repeat there, and values are bytes or null."""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

HEADERS: Final = "penstock-headers"  # a property: all headers, if the others do not say all of them

Headers = Sequence[tuple[str, bytes | None]]

_decoder: Final = msgspec.json.Decoder(list[tuple[str, str | None]])


def properties_of(headers: Headers) -> dict[str, str] | None:
    """The properties that stand for headers; None if there are no headers."""
    if not headers:
        return None
    found: dict[str, str] = {}
    whole = len({name for name, _ in headers}) == len(headers)
    for name, value in headers:
        try:
            found[name] = "" if value is None else value.decode()
        except UnicodeDecodeError:
            whole = False
        whole = whole and value is not None and name != HEADERS
    if not whole:
        given = [(name, None if value is None else b64encode(value).decode()) for name, value in headers]
        found[HEADERS] = msgspec.json.encode(given).decode()
    return found


def headers_of(properties: Mapping[str, str]) -> Headers:
    """The headers that properties stand for."""
    if HEADERS in properties:
        try:
            given = _decoder.decode(properties[HEADERS])
            return [
                (name, None if value is None else b64decode(value, validate=True)) for name, value in given
            ]
        except ValueError:
            pass  # another's
    return [(name, value.encode()) for name, value in properties.items()]
