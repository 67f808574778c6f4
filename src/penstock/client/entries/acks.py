"""Acknowledgements of entries: many in one command, each known until the broker has answered it.

What has no answer when a connection is lost is sent again on the next one, before the broker may send messages: so
its messages are not redelivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, Protocol

from penstock.client.errors import PulsarException
from penstock.client.session.acks import wire_place
from penstock.wire.pulsar_pb2 import CommandAck

from .arrived import Place

GROUP_MAX: Final = 1000  # in one command, as in Pulsar's clients


class AckSink(Protocol):
    """What takes acknowledgements."""

    def acknowledge(self, places: Iterable[Place]) -> None:
        """Whole entries are done."""

    def acknowledge_part(self, place: Place, open_bits: int) -> None:
        """All messages of an entry but those of `open_bits` are done."""

    def acknowledge_up_to(self, place: Place, open_bits: int = 0) -> None:
        """All entries before `place` are done, and that one but for the messages of `open_bits`."""


class AckGroup:
    """Acknowledgements that go in one command. By entry, the messages that are not acknowledged, as bits; 0: all are."""

    def __init__(self, places: dict[Place, int], *, cumulative: bool) -> None:
        self.places = places
        self.cumulative = cumulative
        self.settled: asyncio.Future[None] | None = None  # for waiting callers

    def command(self, consumer_id: int) -> CommandAck:
        """The command for the broker."""
        return CommandAck(
            consumer_id=consumer_id,
            ack_type=CommandAck.Cumulative if self.cumulative else CommandAck.Individual,
            message_id=[wire_place(place, bits) for place, bits in self.places.items()],
        )

    def settle(self, error: PulsarException | None) -> None:
        """The broker has answered."""
        if self.settled is not None and not self.settled.done():
            if error is None:
                self.settled.set_result(None)
            else:
                self.settled.set_exception(error)
                self.settled.exception()  # waiting callers may have left


class EntryAcks:
    """One consumer's."""

    def __init__(self) -> None:
        self._places: dict[Place, int] = {}
        self._up_to: tuple[Place, int] | None = None
        self._unsettled: dict[AckGroup, None] = {}  # in the order they were sent

    def __len__(self) -> int:
        """How many wait to be sent."""
        return len(self._places) + (self._up_to is not None)

    def add(self, places: Iterable[Place]) -> None:
        """Whole entries are done."""
        self._places.update(dict.fromkeys(places, 0))

    def add_part(self, place: Place, open_bits: int) -> None:
        """Part of an entry is done: all but the messages of `open_bits`."""
        self._places[place] = self._places.get(place, open_bits) & open_bits

    def add_up_to(self, place: Place, open_bits: int = 0) -> None:
        """All entries before `place` are done, and that one but for the messages of `open_bits`."""
        up_to = self._up_to
        if up_to is None or place > up_to[0] or (place == up_to[0] and open_bits & ~up_to[1] == 0):
            self._up_to = (place, open_bits)

    def take(self) -> list[AckGroup]:
        """The acknowledgements to send now; each group counts as unsettled until `settle`."""
        groups: list[AckGroup] = []
        if self._up_to is not None:
            groups.append(AckGroup(dict((self._up_to,)), cumulative=True))
            self._up_to = None
        if self._places:
            given = list(self._places.items())
            self._places = {}
            groups += [
                AckGroup(dict(given[at : at + GROUP_MAX]), cumulative=False)
                for at in range(0, len(given), GROUP_MAX)
            ]
        self._unsettled.update(dict.fromkeys(groups))
        return groups

    @property
    def unsettled(self) -> list[AckGroup]:
        """Those without an answer, in order."""
        return list(self._unsettled)

    def settle(self, group: AckGroup, error: PulsarException | None = None) -> None:
        """The broker has answered a group, or it is given up."""
        if group in self._unsettled:
            del self._unsettled[group]
            group.settle(error)

    def give_to(self, to: AckSink) -> None:
        """Send over another connection unsent acknowledgements and those without an answer."""
        for group in [*self._unsettled, *self.take()]:
            for place, open_bits in group.places.items():
                if group.cumulative:
                    to.acknowledge_up_to(place, open_bits)
                elif open_bits:
                    to.acknowledge_part(place, open_bits)
            if not group.cumulative:
                to.acknowledge([place for place, open_bits in group.places.items() if not open_bits])

    def forget(self, error: PulsarException) -> None:
        """None of them means anything any more."""
        self._places, self._up_to = {}, None
        for group in self.unsettled:
            self.settle(group, error)
