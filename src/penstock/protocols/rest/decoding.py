"""Entries to messages, the last few remembered: the consumers of a subscription share batches, and so do pages."""

from collections import OrderedDict
from typing import Final

from penstock.broker.entry_format import EntryFormat
from penstock.model.entry import Entry
from penstock.model.message import Message

REMEMBERED_BYTES_MAX: Final = 8 << 20  # of payloads; a batch is 1 MiB at most when it was published here
MESSAGE_BYTES: Final = 500  # about what a decoded message weighs beside its payload


class Decoding:
    """Decodes entries; who gets the messages must not change them."""

    def __init__(self, encoder: EntryFormat) -> None:
        self._encoder = encoder
        self._recent: OrderedDict[tuple[int, int], tuple[list[Message], int]] = OrderedDict()
        self._bytes = 0

    def decode(self, entry: Entry) -> list[Message]:
        """Every message of an entry; raises CHECKSUM, BAD_ENCODING."""
        if entry.count == 1:
            return self._encoder.decode(entry)
        key = entry.ledger, entry.entry_id  # never used again for another entry
        known = self._recent.get(key)
        if known is not None:
            self._recent.move_to_end(key)
            return known[0]
        messages = self._encoder.decode(entry)
        size = sum(len(message.payload) for message in messages) + MESSAGE_BYTES * len(messages)
        self._recent[key] = messages, size
        self._bytes += size
        while self._bytes > REMEMBERED_BYTES_MAX:
            _, (_, let_go) = self._recent.popitem(last=False)
            self._bytes -= let_go
        return messages
