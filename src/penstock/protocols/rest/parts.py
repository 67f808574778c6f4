"""Parts of entries on their way to a reader: their contents, and the number of their messages that fit into an answer."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.capability import Capability
from penstock.broker.log import Log
from penstock.model.bits import bits_of
from penstock.model.entry import Entry
from penstock.model.errors import PenstockError
from penstock.model.message import Message, PlainMessages
from penstock.wire import entry as wire

UNBOUNDED: Final = 2**63 - 1  # messages or bytes

DECODED_BYTES_MAX: Final = 8 << 20  # of payloads; a batch is 1 MiB at most when it was published here
MESSAGE_BYTES: Final = 500  # approximate memory of a decoded message without its payload
PLAIN_BYTES: Final = 50  # the same of one that is nothing but a payload

_FIRST: Final = range(1)

# What an entry holds, or why it cannot be opened.
Opened = PlainMessages | list[Message] | PenstockError


class Part(msgspec.Struct, gc=False):
    """Messages of an entry; `places` are theirs in it, ascending, and `sizes` the bytes of their keys and values.

    `redeliveries` is None if they are not counted. A batch that only its receiver can open is one message in place
    0; then `whole` has the bits of all that are meant with it.
    """

    topic: Log
    entry: Entry
    opened: Opened
    redeliveries: int | None
    places: Sequence[int]
    sizes: Sequence[int]
    whole: int = 0

    def cut(self, count: int) -> None:
        """Leave out all but the first `count`."""
        self.places, self.sizes = self.places[:count], self.sizes[:count]

    @property
    def mask(self) -> int:
        """The places as bits."""
        places = self.places
        if self.whole:
            return self.whole if places else 0
        if isinstance(places, range):
            return ((1 << len(places)) - 1) << places.start
        found = 0
        for place in places:
            found |= 1 << place
        return found


class Bounds:
    """What one answer takes at most: messages, and bytes of their keys and values; `full` once it has as much.

    The first message is taken whatever its size.
    """

    def __init__(self, messages_max: int | None, bytes_max: int | None) -> None:
        self.count = 0
        self.size = 0
        self.full = False
        self._messages_max = UNBOUNDED if messages_max is None else messages_max
        self._bytes_max = UNBOUNDED if bytes_max is None else bytes_max

    @property
    def messages_left(self) -> int:
        return self._messages_max - self.count

    def take(self, sizes: Sequence[int]) -> int:
        """How many of the messages that come next, of these sizes, are taken."""
        if self.full:
            return 0
        count, total = len(sizes), sum(sizes)
        if self.count + count < self._messages_max and self.size + total < self._bytes_max:
            self.count += count
            self.size += total
            return count
        for taken, size in enumerate(sizes):
            if self.count and self.size + size > self._bytes_max:
                self.full = True
                return taken
            self.count += 1
            self.size += size
            if self.count == self._messages_max or self.size >= self._bytes_max:
                self.full = True
                return taken + 1
        return count


class Decoding:
    """Decodes entries; the results must not be changed: the last few batches are cached, as the consumers of a
    subscription share them, and so do pages."""

    def __init__(self, broker: Broker | None = None) -> None:
        """`broker`: the one whose entries they are; None: it can do everything."""
        self._broker = broker
        self._recent: OrderedDict[tuple[int, int], tuple[Opened, int]] = OrderedDict()
        self._bytes = 0

    @property
    def numbered(self) -> bool:
        """Whether messages are shown with their offsets."""
        return self._broker is None or Capability.OFFSETS in self._broker.capabilities

    def part(self, topic: Log, entry: Entry, mask: int, redeliveries: int | None = None) -> Part:
        """The messages of an entry whose bits are set in `mask`, as far as there are such."""
        opened = self._open(entry)
        places = _FIRST if mask == 1 else _places(mask)
        sizes: Sequence[int]
        if isinstance(opened, PlainMessages):
            payloads = opened.payloads
            if len(places) == len(payloads):
                sizes = list(map(len, payloads))
            elif isinstance(places, range):
                sizes = list(map(len, payloads[places.start : places.stop]))
            else:
                sizes = [len(payloads[place]) for place in places]
        elif isinstance(opened, list):
            if entry.count > 1 and opened[0].index < 0:
                sizes = [_size(opened[0])]
                return Part(topic, entry, opened, redeliveries, range(1 if mask else 0), sizes, mask)
            places = _shown(opened, places)
            sizes = [_size(opened[place]) for place in places]
        else:
            sizes = [len(entry.data) // entry.count] * len(places)
        return Part(topic, entry, opened, redeliveries, places, sizes)

    def messages(self, entry: Entry) -> list[Message]:
        """Every message of an entry, each whole; raises CHECKSUM, BAD_ENCODING."""
        return wire.decode(entry)

    def _open(self, entry: Entry) -> Opened:
        if entry.count == 1:
            return self._decode(entry)
        key = entry.ledger, entry.entry_id  # never used again for another entry
        known = self._recent.get(key)
        if known is not None:
            self._recent.move_to_end(key)
            return known[0]
        opened = self._decode(entry)
        if isinstance(opened, PenstockError):
            return opened
        if isinstance(opened, PlainMessages):
            size = sum(map(len, opened.payloads)) + PLAIN_BYTES * len(opened.payloads)
        else:
            size = sum(len(message.payload) for message in opened) + MESSAGE_BYTES * len(opened)
        self._recent[key] = opened, size
        self._bytes += size
        while self._bytes > DECODED_BYTES_MAX:
            _, (_, evicted) = self._recent.popitem(last=False)
            self._bytes -= evicted
        return opened

    def _decode(self, entry: Entry) -> Opened:
        plain = wire.plain(entry)
        if plain is not None:
            return plain
        try:
            return wire.decode(entry)
        except PenstockError as error:
            return error


def _places(mask: int) -> Sequence[int]:
    places = bits_of(mask)
    return places if isinstance(places, range) else list(places)


def _shown(messages: Sequence[Message], places: Sequence[int]) -> Sequence[int]:
    """Those of `places` that there are, without what compaction left of others."""
    return [place for place in places if place < len(messages) and not messages[place].compacted_out]


def _size(message: Message) -> int:
    return len(message.payload) + (len(message.key) if message.key else 0)
