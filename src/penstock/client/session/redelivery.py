"""Messages to be delivered again: those refused, those not acknowledged in time, and those that go elsewhere."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.client.enums import SHARED_TYPES, ConsumerCryptoFailureAction, ConsumerType
from penstock.client.message import Message

from .acks import Place


class Receiving(msgspec.Struct, frozen=True, kw_only=True):
    """How a consumer receives. Times are in seconds; `unacked_timeout_s` 0 is never.

    `dead_after` is how many redeliveries a message gets before it goes to the dead-letter topic.
    """

    type: ConsumerType = ConsumerType.Exclusive
    queue_size: int = 1000
    nack_delay_s: float = 60.0
    unacked_timeout_s: float = 0.0
    batch_index_ack: bool = False
    dead_after: int | None = None
    chunked_max: int = 10
    ack_oldest_chunked: bool = False
    crypto: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL

    @property
    def shared(self) -> bool:
        """Whether the broker delivers single messages again, rather than all from one on."""
        return self.type in SHARED_TYPES


class Redelivery:
    """One consumer's. Entries are delivered again whole."""

    def __init__(self, settings: Receiving) -> None:
        self._delay_s = settings.nack_delay_s
        self._timeout_s = settings.unacked_timeout_s
        self._dead_after = settings.dead_after
        self._refused: dict[Place, float] = {}  # by when they are due, which is the order they came in
        self._out: dict[Place, float] = {}
        self._last_chance: dict[Place, list[Message]] = {}

    def given_up(self, redeliveries: int) -> bool:
        """Whether a message that comes so often is not to be tried again."""
        return self._dead_after is not None and redeliveries > self._dead_after

    def arrived(self, place: Place, messages: list[Message], redeliveries: int) -> None:
        """An entry came: its last time, perhaps."""
        if self._dead_after is not None and redeliveries >= self._dead_after:
            self._last_chance[place] = messages

    def handed_out(self, place: Place, now: float) -> None:
        """The application has (a message of) it."""
        if self._timeout_s > 0:
            self._out.pop(place, None)  # so that the order stays that of the times
            self._out[place] = now + self._timeout_s

    def acknowledged(self, places: Iterable[Place]) -> None:
        """Entries are done."""
        for place in places:
            self._out.pop(place, None)
            self._refused.pop(place, None)
            self._last_chance.pop(place, None)

    def acknowledged_up_to(self, last: Place) -> None:
        """All entries up to one are done."""
        for held in (self._out, self._refused, self._last_chance):
            for place in [place for place in held if place <= last]:
                del held[place]

    def refuse(self, place: Place, now: float) -> None:
        """The application did not manage."""
        self._out.pop(place, None)
        if place not in self._refused:
            self._refused[place] = now + self._delay_s

    def deadline(self) -> float | None:
        """When `due` has something."""
        times = [next(iter(held.values())) for held in (self._refused, self._out) if held]
        return min(times, default=None)

    def due(self, now: float) -> tuple[list[Place], list[tuple[Place, list[Message]]]]:
        """The entries to ask for again, and those that go to the dead-letter topic instead."""
        again: list[Place] = []
        dead: list[tuple[Place, list[Message]]] = []
        for held in (self._refused, self._out):
            while held:
                place, time = next(iter(held.items()))
                if time > now:
                    break
                del held[place]
                if place in self._last_chance:
                    dead.append((place, self._last_chance.pop(place)))
                else:
                    again.append(place)
        return again, dead

    def clear(self) -> None:
        """A new connection: the broker delivers all of them again."""
        self._refused.clear()
        self._out.clear()
        self._last_chance.clear()
