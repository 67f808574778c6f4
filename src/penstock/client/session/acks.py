"""Acknowledgements: what of each batch is done, and many of them in one command."""

from __future__ import annotations

from typing import Final

from penstock.client.message_id import MessageId
from penstock.wire.pulsar_pb2 import MessageIdData

from . import commands

GROUP_MAX: Final = 1000  # acknowledgements in one command
GROUP_S: Final = 0.1  # how long one may wait for others; both as in Pulsar's clients

_UINT64: Final = 2**64
_SIGN: Final = 2**63

Place = tuple[int, int]  # ledger and entry


class Acks:
    """One consumer's. Without `by_index` a batch is acknowledged once all of it is."""

    def __init__(self, consumer_id: int, *, by_index: bool) -> None:
        self._consumer_id = consumer_id
        self._by_index = by_index
        self._open: dict[
            Place, int
        ] = {}  # of batches in part acknowledged: a bit for each message that is not
        self._partial: dict[Place, None] = {}
        self._whole: dict[Place, None] = {}
        self._up_to: tuple[Place, int] | None = None  # cumulative: the entry, and what of it is open
        self._since: float | None = None

    def arrived(self, place: Place, open_bits: int | None) -> None:
        """An entry came (again); `open_bits` None: all of it."""
        if open_bits is None:
            self._open.pop(place, None)
        else:
            self._open[place] = open_bits

    def add(self, message_id: MessageId, now: float) -> list[Place]:
        """Acknowledge one message; returns the entries that are done by it."""
        done = [(message_id.ledger_id(), message_id.entry_id())]
        index = message_id.batch_index()
        if index >= 0:
            place = done[0]
            size = max(message_id.batch_size(), index + 1)
            bits = self._open.get(place, (1 << size) - 1) & ~(1 << index)
            if bits:
                self._open[place] = bits
                if self._by_index:
                    self._partial[place] = None
                    self._begin(now)
                return []
            self._open.pop(place, None)
            self._partial.pop(place, None)
        done += message_id._chunks[:-1]  # the last is the message's own place
        for place in done:
            self._whole[place] = None
        self._begin(now)
        return done

    def add_up_to(self, message_id: MessageId, now: float) -> Place | None:
        """Acknowledge a message and all before it; returns the last entry that is done by it."""
        place, bits = (message_id.ledger_id(), message_id.entry_id()), 0
        index, size = message_id.batch_index(), message_id.batch_size()
        if 0 <= index < size - 1:
            if self._by_index:
                bits = (1 << size) - (1 << index + 1)
                self._open[place] = bits
            elif place[1] > 0:
                place = (place[0], place[1] - 1)
            else:
                return None
        if self._up_to is None or place >= self._up_to[0]:
            self._up_to = (place, bits)
            self._begin(now)
        last = (place[0], place[1] - 1) if bits else place
        self._open = {other: left for other, left in self._open.items() if other > last}
        return last

    def is_open(self, message_id: MessageId) -> bool:
        """Whether a message of an entry that is not done is itself not acknowledged."""
        bits = self._open.get((message_id.ledger_id(), message_id.entry_id()))
        return bits is None or message_id.batch_index() < 0 or bool(bits >> message_id.batch_index() & 1)

    def full(self) -> bool:
        """Whether they are too many to wait for more."""
        return len(self._whole) + len(self._partial) >= GROUP_MAX

    def deadline(self) -> float | None:
        """When they have to go."""
        return None if self._since is None else self._since + GROUP_S

    def flush(self) -> list[bytes]:
        """The commands for the broker."""
        frames: list[bytes] = []
        if self._up_to is not None:
            place, bits = self._up_to
            frames.append(commands.acknowledge(self._consumer_id, [wire_place(place, bits)], cumulative=True))
        ids = [wire_place(place) for place in self._whole]
        ids += [wire_place(place, self._open.get(place, 0)) for place in self._partial]
        frames += [
            commands.acknowledge(self._consumer_id, ids[at : at + GROUP_MAX])
            for at in range(0, len(ids), GROUP_MAX)
        ]
        self._whole.clear()
        self._partial.clear()
        self._up_to = self._since = None
        return frames

    def restart(self) -> None:
        """A new connection: a partly acknowledged batch is redelivered whole. Its acknowledgements are still to be sent."""
        self._open.clear()
        self._partial.clear()

    def _begin(self, now: float) -> None:
        if self._since is None:
            self._since = now


def wire_place(place: Place, open_bits: int = 0) -> MessageIdData:
    """An entry, as the wire names it; `open_bits` are the messages of it that are not acknowledged."""
    data = MessageIdData(ledgerId=place[0] % _UINT64, entryId=place[1] % _UINT64)
    while open_bits:
        word = open_bits % _UINT64
        data.ack_set.append(word - _UINT64 if word >= _SIGN else word)
        open_bits >>= 64
    return data


def bits_of(words: list[int]) -> int:
    """The wire's set of bits as one number."""
    bits = 0
    for number, word in enumerate(words):
        bits |= (word % _UINT64) << 64 * number
    return bits
