"""The formats of records that processes share through a cluster, and their versions (docs/upgrades.md, decision 0091).

A Kafka record names the version of its value in a header, a Pulsar message in a property, both called `penstock-version`; a
journal's record names it in its JSON. A record without a version has version 1: earlier releases named none.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final

import msgspec

from .errors import ErrorKind, PenstockError

VERSION: Final = "penstock-version"  # the header, and the property
UNNAMED: Final = 1  # the version of records that name none
_SHOWN_MAX: Final = 20  # characters of an invalid version


class Format(msgspec.Struct, frozen=True):
    """One format: this release writes version `written`, and reads versions 1 to `newest`.

    One release raises `newest`, a later one `written`, so that neighbouring releases can run side by side.
    """

    name: str
    written: int = 1
    newest: int = 1

    def check(self, version: bytes | str | int | None, key: str) -> int:
        """The number of the version that a record names; None is version 1. Raises NEWER_FORMAT if it is unknown."""
        if version is None:
            return UNNAMED
        text = version.decode(errors="replace") if isinstance(version, bytes) else str(version)
        number = int(text) if text.isascii() and text.isdigit() and len(text) <= _SHOWN_MAX else 0
        if not 1 <= number <= self.newest:
            raise PenstockError(
                ErrorKind.NEWER_FORMAT,
                f"{self.name} {key!r} has version {text[:_SHOWN_MAX]}, which a newer release wrote: this Penstock reads"
                f" 1 to {self.newest}",
            )
        return number

    def properties(self) -> dict[str, str]:
        """The properties of a message that name the version."""
        return {VERSION: str(self.written)}

    def headers(self) -> list[tuple[str, bytes | None]]:
        """The headers of a record that name the version."""
        return [(VERSION, b"%d" % self.written)]


DOCUMENTS: Final = {
    kind: Format(f"document {kind}")
    for kind in (
        "namespace",
        "tenant",
        "topic-policies",
        "topic-properties",
        "schema",
        "fleet",
    )
}
# Version 1 of these two is not written: a header costs bytes in each message, and any client may write replies.
MESSAGES: Final = Format("message")
REPLIES: Final = Format("reply")
POSITIONS: Final = Format("journal of byte positions")
PARTS: Final = Format("staged part")
COMMITS: Final = Format("staged commit")
WRITERS: Final = Format("writer's log")
CURSORS: Final = Format("cursor save")
REGISTRY: Final = Format("registry record")

FORMATS: Final = (
    *DOCUMENTS.values(),
    MESSAGES,
    REPLIES,
    POSITIONS,
    PARTS,
    COMMITS,
    WRITERS,
    CURSORS,
    REGISTRY,
)


def document_format(kind: str) -> Format:
    """The format of a kind of documents."""
    return REGISTRY if kind == "registry" else DOCUMENTS.get(kind) or Format(f"document {kind}")


def version_of(headers: Iterable[tuple[str, bytes | None]] | None) -> bytes | None:
    """The version that a record's headers name, or None."""
    if headers:
        for name, value in headers:
            if name == VERSION:
                return value or b""
    return None


def with_unknown_fields(document: bytes, before: bytes | None, known: Collection[str]) -> bytes:
    """A JSON object that replaces another one, extended by the fields of the other one that are not in `known`.

    So a process keeps the fields that a newer one added, at the top level of the document.
    """
    if before is None:
        return document
    try:
        fields = _fields(before)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return document  # it cannot be read, and is replaced as a whole
    unknown = {name: value for name, value in fields.items() if name not in known}
    return msgspec.json.encode({**_fields(document), **unknown}) if unknown else document


_fields: Final[Callable[[bytes], dict[str, msgspec.Raw]]] = msgspec.json.Decoder(
    dict[str, msgspec.Raw]
).decode
