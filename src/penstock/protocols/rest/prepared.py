"""The JSON of the messages that a fetch hands out, as far as possible written before it is asked for.

After a fetch that brought all it asked for, the server waits: for the client, which reads the answer, and for the commit of
the acknowledgement. During that the next entries are encoded, as far as they are in memory. Nothing is delivered
by that: a fetch that brings other messages writes those.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.broker.consumer import Consumer
from penstock.broker.log import Log
from penstock.model.entry import Entry
from penstock.protocols.values import Form
from penstock.runtime.clock import Clock

from .encoding import Encoding
from .parts import Bounds, Decoding, Part

PREPARED_BYTES_MAX: Final = 8 << 20  # of all consumers together
KEPT_MS: Final = 1000  # before they make room for those of another consumer
FETCH_MESSAGES_MIN: Final = 100  # of a fetch that is worth it
TEXT_MESSAGES: Final = 200  # are written together
TEXT_BYTES: Final = 64 * 1024
# Texts that are written before others have their turn on the loop. That is a fetch of the usual size: smaller steps have the
# thread that commits wait for Python's lock at each of them.
STEP_TEXTS: Final = 5


class Written(NamedTuple):
    """The JSON of entries that follow one another, each message with a comma before it."""

    entries: int
    messages: int
    text: bytes


class Prepared:
    """The encoded entries that may come next in a fetch of the same `form` and `bounds`: each of them whole, as it
    is handed out for the first time."""

    def __init__(self, form: Form, bounds: Bounds) -> None:
        self.form = form
        self.bounds = bounds
        self.open = True  # until the fetch comes
        self.began_ms = 0
        self.size = 0
        self._written: dict[tuple[int, int], Written] = {}  # by the ledger and the first entry

    def add(self, written: Written, first: Part) -> None:
        self._written[first.topic.ledger, first.entry.entry_id] = written
        self.size += len(written.text)

    def drop(self) -> None:
        """Give the memory back, though the fetch may still come."""
        self._written.clear()
        self.size = 0

    def find(self, parts: Sequence[Part], at: int) -> Written | None:
        """The prepared texts of `parts` from `at` on."""
        topic, entry_id = parts[at].topic, parts[at].entry.entry_id
        found = self._written.get((topic.ledger, entry_id))
        if found is None:
            return None
        run = parts[at : at + found.entries]
        whole = sum([len(one.places) for one in run if one.redeliveries == 0 and one.topic is topic])
        same = [one.entry.entry_id for one in run] == list(range(entry_id, entry_id + found.entries))
        return found if same and whole == found.messages else None


class Preparing:
    """Writes what may come next for each consumer that fetches."""

    def __init__(self, decoding: Decoding, clock: Clock) -> None:
        self._decoding = decoding
        self._clock = clock
        self._kept: dict[Prepared, None] = {}  # the oldest first
        self._size = 0

    def begin(self, prepared: Prepared, consumer: Consumer, encoding: Encoding) -> None:
        """Write what may come next for `consumer`, step by step until that is ended."""
        following: list[tuple[Log, Entry]] = []
        left = prepared.bounds.messages_left
        for source in consumer.attached:
            topic = source.topic
            for entry in source.upcoming(left):
                following.append((topic, entry))
                left -= entry.count
        if following:
            following.reverse()
            prepared.began_ms = self._clock.monotonic_ms()
            self._kept[prepared] = None
            self._step_soon(prepared, following, encoding)

    def end(self, prepared: Prepared) -> None:
        """The fetch came, or never will."""
        prepared.open = False
        if prepared in self._kept:
            del self._kept[prepared]
            self._size -= prepared.size

    def _step_soon(self, prepared: Prepared, following: list[tuple[Log, Entry]], encoding: Encoding) -> None:
        asyncio.get_running_loop().call_soon(self._step, prepared, following, encoding)

    def _step(self, prepared: Prepared, following: list[tuple[Log, Entry]], encoding: Encoding) -> None:
        for _ in range(STEP_TEXTS):
            if not prepared.open or not self._has_room(prepared):
                return
            parts = self._take(prepared.bounds, following)
            if not parts:
                return
            written = write(parts, encoding)
            prepared.add(written, parts[0])
            self._size += len(written.text)
        self._step_soon(prepared, following, encoding)

    def _take(self, bounds: Bounds, following: list[tuple[Log, Entry]]) -> list[Part]:
        """The parts of the next text, of one log; `following` has the last entry first."""
        parts: list[Part] = []
        messages = size = 0
        while following and messages < TEXT_MESSAGES and size < TEXT_BYTES:
            topic, entry = following[-1]
            if parts and topic is not parts[0].topic:
                break
            following.pop()
            part = self._decoding.part(topic, entry, (1 << entry.count) - 1, 0)
            if len(part.places) < entry.count or bounds.take(part.sizes) < entry.count:
                following.clear()
                break
            parts.append(part)
            messages += entry.count
            size += len(entry.data)
        return parts

    def _has_room(self, prepared: Prepared) -> bool:
        """Whether there is room for more; the oldest texts are dropped, unless their fetch may still come."""
        while self._size >= PREPARED_BYTES_MAX:
            oldest = next(iter(self._kept))
            if oldest is prepared or oldest.began_ms + KEPT_MS > self._clock.monotonic_ms():
                return False
            self.end(oldest)
            oldest.drop()  # its instance holds it until the fetch comes
        return True


def write(parts: Sequence[Part], encoding: Encoding) -> Written:
    """The messages of `parts`."""
    texts = encoding.encode(parts).texts
    return Written(len(parts), len(texts), f",{','.join(texts)}".encode())


def write_all(parts: Sequence[Part], encoding: Encoding, prepared: Prepared | None) -> list[bytes]:
    """The messages of `parts` in several texts, as `write` does, except for prepared ones."""
    texts: list[bytes] = []
    at = 0
    while at < len(parts):
        found = None if prepared is None else prepared.find(parts, at)
        if found is None:
            until, messages = at, 0
            while until < len(parts) and messages < TEXT_MESSAGES:
                messages += len(parts[until].places)
                until += 1
                if prepared is not None and until < len(parts) and prepared.find(parts, until) is not None:
                    break
            found = write(parts[at:until], encoding)
        texts.append(found.text)
        at += found.entries
    return texts
