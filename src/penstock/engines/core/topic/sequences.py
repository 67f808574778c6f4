"""Deduplication: which sequence ids of which producer are stored or on their way (docs/architecture.md)."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from penstock.model.message_id import UNKNOWN_ID, MessageId

RECENT_MAX: Final = 1000  # ids that a repeat may still be answered with; the same as a client's pending queue


class _Producer:
    __slots__ = ("failed", "recent", "stored", "stored_ms")

    def __init__(self, stored: int, now: int) -> None:
        self.stored_ms = now  # when it published last, or was read from the store
        self.stored = stored  # the highest
        self.recent: OrderedDict[int, asyncio.Future[MessageId]] = OrderedDict()  # on their way, or stored
        # New when they are sent again, though later ones are stored.
        self.failed: OrderedDict[int, None] = OrderedDict()


class Sequences:
    """Per topic: what each producer name has published."""

    def __init__(self, stored: dict[str, int], now: Callable[[], int] = lambda: 0) -> None:
        """`now` returns the monotonic time in ms."""
        self._now = now
        self._producers = {name: _Producer(last, now()) for name, last in stored.items()}

    def last(self, producer: str) -> int:
        """The highest sequence id stored under a name, -1 if there is none."""
        known = self._producers.get(producer)
        return -1 if known is None else known.stored

    def admit(self, producer: str, sequence_id: int) -> asyncio.Future[MessageId] | None:
        """None: it is new and now on its way (`stored` or `failed` must follow). Else the id it got, or will."""
        known = self._producers.get(producer)
        if known is None:
            known = self._producers[producer] = _Producer(-1, self._now())
        loop = asyncio.get_running_loop()
        earlier = known.recent.get(sequence_id)
        if earlier is not None:
            return earlier
        if sequence_id <= known.stored and sequence_id not in known.failed:
            earlier = loop.create_future()
            earlier.set_result(UNKNOWN_ID)
            return earlier
        known.failed.pop(sequence_id, None)
        known.recent[sequence_id] = loop.create_future()
        if len(known.recent) > RECENT_MAX and next(iter(known.recent.values())).done():
            known.recent.popitem(last=False)
        return None

    def stored(self, producer: str, sequence_id: int, message_id: MessageId) -> None:
        """Sequence ids that were admitted, or counted by the producer, are durable."""
        known = self._producers.get(producer)
        if known is None:
            known = self._producers[producer] = _Producer(-1, 0)
        known.stored = max(known.stored, sequence_id)
        known.stored_ms = self._now()
        future = known.recent.get(sequence_id)
        if future is not None and not future.done():
            future.set_result(message_id)

    def failed(self, producer: str, sequence_id: int, error: Exception) -> None:
        """Admitted sequence ids were not stored: a repeat is new again."""
        known = self._producers.get(producer)
        if known is None:
            return
        future = known.recent.pop(sequence_id, None)
        known.failed[sequence_id] = None
        if len(known.failed) > RECENT_MAX:
            known.failed.popitem(last=False)
        if future is not None and not future.done():
            future.set_exception(error)
            future.exception()  # a failure that no caller waits for is not reported

    def silent_since(self, before_ms: int) -> list[str]:
        """The producers that stored nothing since a time (monotonic, ms), and have nothing on its way."""
        return [
            name
            for name, known in self._producers.items()
            if known.stored_ms < before_ms and all(future.done() for future in known.recent.values())
        ]

    def forget(self, producers: Iterable[str]) -> None:
        """What they published is not known any more."""
        for name in producers:
            self._producers.pop(name, None)
