"""The formats of what processes keep in a cluster for one another, each with its version (docs/upgrades.md, decision 0091).

A record of Kafka's names the version of its value in a header, a message of Pulsar's in a property, both called
`penstock-version`; a record of a journal names it in its JSON. A record that names none is of version 1, as releases that
named no versions wrote it. Cursors in a group's commits name theirs in their first bytes (`engines/kafka/cursors.py`).
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final

import msgspec

from .errors import ErrorKind, PenstockError

VERSION: Final = "penstock-version"  # the header, and the property
UNNAMED: Final = 1  # the version of what names none
_SHOWN_MAX: Final = 20  # characters of something that is no version


class Format(msgspec.Struct, frozen=True):
    """One format: `written` is the version that this release writes, and it reads all from 1 to `newest`.

    `newest` is raised by one release, and `written` by a later one, so that both may run side by side.
    """

    name: str
    written: int = 1
    newest: int = 1

    def check(self, version: bytes | str | int | None, key: str) -> int:
        """The version that a record names, None: it names none. Raises NEWER_FORMAT for one that is not known here."""
        if version is None:
            return UNNAMED
        text = version.decode(errors="replace") if isinstance(version, bytes) else str(version)
        number = int(text) if text.isascii() and text.isdigit() and len(text) <= _SHOWN_MAX else 0
        if not 1 <= number <= self.newest:
            raise PenstockError(
                ErrorKind.NEWER_FORMAT,
                f"{self.name} {key!r} has version {text[:_SHOWN_MAX]}, which is not known here: this Penstock reads"
                f" 1 to {self.newest}, and a newer release wrote it",
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
        "subscription-properties",
        "beginnings",
        "consumers",
        "processes",
        "redirects",
        "calls",
        "answers",
    )
}
# Version 1 of these two is not named: a header costs bytes in each message, and any client may write replies.
MESSAGES: Final = Format("message")
REPLIES: Final = Format("reply")
POSITIONS: Final = Format("journal of byte positions")
PARTS: Final = Format("staged part")
COMMITS: Final = Format("staged commit")
WRITERS: Final = Format("writer's log")

FORMATS: Final = (*DOCUMENTS.values(), MESSAGES, REPLIES, POSITIONS, PARTS, COMMITS, WRITERS)


def document_format(kind: str) -> Format:
    """That of a kind of documents."""
    return DOCUMENTS.get(kind) or Format(f"document {kind}")


def version_of(headers: Iterable[tuple[str, bytes | None]] | None) -> bytes | None:
    """The version that a record's headers name, None: they name none."""
    if headers:
        for name, value in headers:
            if name == VERSION:
                return value or b""
    return None


def with_unknown_fields(document: bytes, before: bytes | None, known: Collection[str]) -> bytes:
    """A JSON object that replaces another one, with the fields of that one that are not `known` here.

    A newer process wrote them: an older one that changes other fields keeps them, at the top level of the document.
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
