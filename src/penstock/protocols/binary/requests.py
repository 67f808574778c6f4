"""Which published entries are requests (PIP-371)."""

from typing import Final

import msgspec

from penstock.model.entry import Entry, NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import REQUEST_TIMEOUT_PROPERTY
from penstock.wire.entry import WireFormat

_MARK: Final = REQUEST_TIMEOUT_PROPERTY.encode()


class Asked(msgspec.Struct, frozen=True):
    """A requester waits so long for the reply to the message with that sequence id."""

    sequence_id: int
    timeout_ms: int


def waits_for(entry: NewEntry) -> Asked | None:
    """What an entry asks for; None when it is no request.

    A request is sent alone, or is the first with the property in an uncompressed batch. Raises
    BAD_PARAMETER for a timeout that is no number.
    """
    if _MARK not in entry.data:
        return None
    stored = Entry(0, 0, 0, entry.count, entry.publish_time, entry.deliver_at, entry.data)
    for message in WireFormat().decode(stored):
        text = message.properties.get(REQUEST_TIMEOUT_PROPERTY)
        if text is None:
            continue
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise PenstockError(ErrorKind.BAD_PARAMETER, f"{REQUEST_TIMEOUT_PROPERTY} is no number")
        return Asked(message.sequence_id, int(text))
    return None
