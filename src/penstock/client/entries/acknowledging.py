"""Sends a consumer's acknowledgements, over any number of connections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from penstock.client.aio.link import Link
from penstock.client.aio.tasks import log
from penstock.client.errors import PulsarException, Timeout
from penstock.client.session import commands

from .acks import GROUP_MAX, AckGroup, AckSink, EntryAcks
from .arrived import Place

GROUP_S: Final = 0.01  # how long an acknowledgement may wait for others to go with
RECEIPTS_SINCE: Final = 17  # the version of the protocol whose brokers answer acknowledgements


class Acknowledging:
    """One consumer's."""

    def __init__(self, consumer_id: int, topic: str, timeout_s: float) -> None:
        self.consumer_id = consumer_id
        self._topic = topic
        self._timeout_s = timeout_s
        self._acks = EntryAcks()
        self._link: Link | None = None
        self._attached = 0  # how often it was attached: two times may be over one connection
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def attach(self, link: Link) -> None:
        """There is a connection: what has no answer goes again, then what waits."""
        self._link = link
        self._attached += 1
        for group in self._acks.unsettled:
            self._send(link, group)
        self.send()

    def detach(self) -> None:
        """The connection is gone."""
        self._link = None

    def add(self, places: Iterable[Place]) -> None:
        """Whole entries are done."""
        self._acks.add(places)
        self._added()

    def add_part(self, place: Place, open_bits: int) -> None:
        """All messages of an entry but those of `open_bits` are done."""
        self._acks.add_part(place, open_bits)
        self._added()

    def add_up_to(self, place: Place, open_bits: int) -> None:
        """All entries before `place` are done, and that one but for the messages of `open_bits`."""
        self._acks.add_up_to(place, open_bits)
        self._added()

    def _added(self) -> None:
        if len(self._acks) >= GROUP_MAX:
            self.send()
        elif self._timer is None:
            self._timer = self._loop.call_later(GROUP_S, self.send)

    def send(self) -> None:
        """Send waiting acknowledgements, if there is a connection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._link is not None and len(self._acks):
            for group in self._acks.take():
                self._send(self._link, group)

    def _send(self, link: Link, group: AckGroup) -> None:
        command = group.command(self.consumer_id)
        if link.session.protocol_version < RECEIPTS_SINCE:
            link.write([commands.framed(command)])
            self._acks.settle(group)
        else:
            # Written here and now: what follows it on this connection is to come after it.
            link.request(command).add_done_callback(partial(self._answered, link, self._attached, group))

    def _answered(self, link: Link, attached: int, group: AckGroup, answer: asyncio.Future[Any]) -> None:
        error = None if answer.cancelled() else answer.exception()
        if error is not None:
            if self._link is None or attached != self._attached or link.closed:
                return  # it went again for the broker's next consumer, or goes
            log.warning("acknowledgements on %s failed: %s", self._topic, error)
        self._acks.settle(group, error if isinstance(error, PulsarException) else None)

    async def flush(self) -> None:
        """Wait until the broker has answered all of them. Raises what it says, and Timeout."""
        self.send()
        self._acks.take()  # without a connection: they go with the next one
        waiting = self._acks.unsettled
        for group in waiting:
            if group.settled is None:
                group.settled = self._loop.create_future()
        try:
            async with asyncio.timeout(self._timeout_s):
                for group in waiting:
                    assert group.settled is not None
                    await asyncio.shield(group.settled)
        except TimeoutError as error:
            if isinstance(error, PulsarException):
                raise
            raise Timeout("the broker did not answer acknowledgements in time") from None

    def give_to(self, to: AckSink) -> None:
        """Acknowledge over another connection what has no answer."""
        self._acks.give_to(to)

    def drop(self, error: PulsarException) -> bool:
        """None of those until now means anything any more. Returns whether there were any."""
        found = bool(len(self._acks) or self._acks.unsettled)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._acks.forget(error)
        return found
