"""Positions in a log of a cluster: dense offsets if its brokers number entries, else opaque ones made from the id.

An opaque position is `ledger << 64 | entry << 24 | index`: it rises with the log, so that what follows an entry is
at its `end` or later, and it is never shown.
"""

from typing import Final

from penstock.client.entries.arrived import Arrived, Place
from penstock.model.entry import Entry
from penstock.model.message_id import MessageId

_LEDGER_SHIFT: Final = 64
_ENTRY_SHIFT: Final = 24
_ENTRY_MASK: Final = (1 << _LEDGER_SHIFT - _ENTRY_SHIFT) - 1
BEFORE_ALL: Final[Place] = (-1, -1)


def opaque(place: Place, index: int = 0) -> int:
    """The opaque position of a message."""
    return place[0] << _LEDGER_SHIFT | place[1] << _ENTRY_SHIFT | index


def place_of(position: int) -> Place:
    """The id of an opaque position."""
    return position >> _LEDGER_SHIFT, position >> _ENTRY_SHIFT & _ENTRY_MASK


def opaque_end(last: MessageId) -> int:
    """The opaque position after a message, the last of its entry."""
    return opaque((last.ledger, last.entry)) + max(0, last.batch_index) + 1


def entry_of(arrived: Arrived, *, numbered: bool) -> Entry:
    """An entry that came from a broker. In a cluster that numbers entries, an entry from before the numbering was turned on
    gets the offset 0."""
    if not numbered:
        offset = opaque((arrived.ledger, arrived.entry_id))
    else:
        offset = 0 if arrived.index is None else max(0, arrived.index - arrived.count + 1)
    return Entry(
        arrived.ledger,
        arrived.entry_id,
        offset,
        arrived.count,
        arrived.publish_time,
        arrived.deliver_at,
        arrived.data,
    )
