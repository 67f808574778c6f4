"""Messages on stdout: columns for people, the server's own JSON for programs, each batch with one write."""

import os
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import click
import msgspec

from penstock.cli import output
from penstock.model.message_json import JSON_NAMES

WIDTH_MAX: Final = 24  # of a key or of properties, before they push what follows aside
HEADS: Final = ("place", "published", "key", "properties", "value")


class Messages(msgspec.Struct):
    """What a read or a fetch answers; the messages are looked at as far as needed."""

    messages: list[msgspec.Raw]
    next_message_id: str | None = None


class _Id(msgspec.Struct, rename=JSON_NAMES):
    message_id: str


_decode: Final = msgspec.json.Decoder(Messages).decode
_id: Final = msgspec.json.Decoder(_Id).decode


def decode(answer: bytes) -> Messages:
    """The messages of an answer, as they were written."""
    return _decode(answer)


def ids(found: Sequence[msgspec.Raw]) -> list[str]:
    """The messages' ids."""
    return [_id(message).message_id for message in found]


def printer() -> Callable[[Sequence[msgspec.Raw]], None]:
    """How this command prints messages; what it was given is written to stdout when it returns."""
    if output.for_people():
        return Columns().print
    if output.chosen().template is None:
        return _print_json  # as the server wrote them
    show = output.lines()
    return lambda found: show([msgspec.json.decode(message) for message in found])


def _print_json(found: Sequence[msgspec.Raw]) -> None:
    if found:
        output.write(b"\n".join([bytes(message) for message in found]).decode())


class Row(NamedTuple):
    """A message in columns, its value aside."""

    place: str
    published: str
    key: str
    properties: str


class Columns:
    """Messages for people, with their heads before the first. A column becomes wider as needed, never smaller."""

    def __init__(self) -> None:
        self._widths = [len(head) for head in HEADS[:-1]]
        self._begun = False
        self._colour = (
            sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and "NO_COLOR" not in os.environ
        )

    def print(self, found: Sequence[msgspec.Raw]) -> None:
        """Print messages."""
        if not found:
            return
        messages = [msgspec.json.decode(message) for message in found]
        rows = [row(message) for message in messages]
        for at in range(len(self._widths)):
            widest = max(len(one[at]) for one in rows)
            self._widths[at] = max(self._widths[at], min(widest, WIDTH_MAX))
        lines = (
            [] if self._begun else [self._style("  ".join(self._padded(HEADS[:-1])) + "  value", bold=True)]
        )
        self._begun = True
        for one, message in zip(rows, messages, strict=True):
            place, published, key, properties = self._padded(one)
            lines.append(
                "  ".join(
                    (
                        self._style(f"{place}  {published}", dim=True),
                        self._style(key, fg="cyan"),
                        self._style(properties, dim=True),
                        self._value(message),
                    )
                )
            )
        output.write("\n".join(lines))

    def _padded(self, cells: Sequence[str]) -> list[str]:
        return [cell.ljust(width) for cell, width in zip(cells, self._widths, strict=True)]

    def _value(self, message: dict[str, Any]) -> str:
        error = message.get("error")
        if error:
            return self._style(printable(f"({error})"), fg="red")
        value = message.get("value")
        return self._style("null", dim=True) if value is None else printable(output.text(value))

    def _style(self, text: str, **style: Any) -> str:
        return click.style(text, **style) if self._colour else text


def row(message: dict[str, Any]) -> Row:
    """The columns of a message as it was read."""
    place, key, properties = message.get("offset"), message.get("key"), message.get("properties") or {}
    published = datetime.fromtimestamp(message["publishTime"] / 1000, UTC)
    return Row(
        f"{message.get('partition', 0)}:{message['messageId'] if place is None else place}",
        published.strftime("%Y-%m-%d %H:%M:%S.") + f"{message['publishTime'] % 1000:03}",
        "-" if key is None else printable(output.text(key)),
        " ".join(f"{printable(name)}={printable(value)}" for name, value in properties.items()) or "-",
    )


def printable(text: str) -> str:
    """A text that does nothing to a terminal: control characters are shown by their escapes."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
