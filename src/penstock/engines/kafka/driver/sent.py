"""Records of one call for one partition, from when they are sent until each has its outcome."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from confluent_kafka import KafkaError, Message

from penstock.model.errors import PenstockError
from penstock.runtime.tasks import Uncancellable

from .record import RECORD_BYTES

Outcome = int | PenstockError  # the offset of a record, or why it was not stored


class Sender(Protocol):
    """Who sends records, and bounds how many are on their way."""

    def failed(self, error: KafkaError, what: str) -> PenstockError:
        """A record of a topic was not stored."""

    def ended(self, sent: "AnySent") -> None:
        """Every record of a call has its outcome."""


class AnySent:
    """`future` gets the outcome of each record, in the order in which they were sent; `size` is about their bytes."""

    __slots__ = ("_left", "_outcomes", "_sender", "count", "future", "size", "what")

    def __init__(self, sender: Sender, what: str, count: int) -> None:
        self.what = what
        self.size = 0
        self.count = self._left = count
        self.future: asyncio.Future[list[Outcome]] = Uncancellable()
        self._sender = sender
        self._outcomes: list[Outcome] = []

    @property
    def held(self) -> int:
        """The bytes that they take on their way."""
        return self.size + self.count * RECORD_BYTES

    def _end(self) -> None:
        self._sender.ended(self)
        self.future.set_result(self._outcomes)


class Sent(AnySent):
    """Records of any kind: `delivered` is called with the place of each."""

    __slots__ = ()

    def __init__(self, sender: Sender, what: str, count: int) -> None:
        super().__init__(sender, what, count)
        self._outcomes = [-1] * count

    def delivered(self, place: int, error: KafkaError | None, message: Message) -> None:
        """What became of a record."""
        if error is None:
            self._outcomes[place] = message.offset()
        else:
            self._outcomes[place] = self._sender.failed(error, self.what)
        self._left -= 1
        if not self._left:
            self._end()

    def refuse(self, place: int, error: PenstockError) -> None:
        """A record could not be sent."""
        self._outcomes[place] = error
        self._left -= 1
        if not self._left:
            self._end()


class SentValues(AnySent):
    """Records that have nothing but values to tell them apart: a callback that is the same for all of them costs half as much.

    A partition stores records in the order in which they are sent, so that the offsets, in order, are those of the values.
    librdkafka reports them in that order, too. That is relied on only where some fail: unless their values agree, all have failed.
    """

    __slots__ = ("_failed", "_refused", "_values")

    def __init__(self, sender: Sender, what: str, values: Sequence[bytes | str | None]) -> None:
        super().__init__(sender, what, len(values))
        self._values = values
        self._failed: dict[int, bytes | None] = {}  # by when it was reported
        self._refused: list[Outcome] = []  # of the last records

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """What became of a record."""
        if error is None:
            self._outcomes.append(message.offset())
        else:
            self._failed[len(self._outcomes)] = message.value()
            self._outcomes.append(self._sender.failed(error, self.what))
        self._left -= 1
        if not self._left:
            self._end()

    def refuse_from(self, place: int, error: PenstockError) -> None:
        """The records from a place on could not be sent."""
        self._refused = [error] * (self.count - place)
        self._left -= len(self._refused)
        if not self._left:
            self._end()

    @property
    def failed(self) -> bool:
        """Whether some were not stored."""
        return bool(self._failed or self._refused)

    def _end(self) -> None:
        outcomes = self._outcomes
        if not self._failed:
            outcomes.sort()
        elif not self._in_order():
            outcomes[:] = [next(one for one in outcomes if isinstance(one, PenstockError))] * len(outcomes)
        outcomes += self._refused
        super()._end()

    def _in_order(self) -> bool:
        offsets = [one for one in self._outcomes if isinstance(one, int)]
        return offsets == sorted(offsets) and all(
            _bytes(self._values[at]) == (value or b"") for at, value in self._failed.items()
        )


def _bytes(value: bytes | str | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""
