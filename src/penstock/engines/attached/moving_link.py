"""A link that stays with its partition: it is opened again at the next owner."""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import msgspec

from penstock.client.aio.tasks import STABLE_S, Backoff
from penstock.client.entries.acks import AckSink
from penstock.client.entries.arrived import Arrived, Place
from penstock.client.errors import PulsarException
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.runtime.tasks import Tasks

from .acknowledgements import Unconfirmed, Unstored
from .link import Attachment, Link, LinkSink, LinkTo, Moved, OwnerLink

log = logging.getLogger(__name__)

MOVED_MAX_S: Final = 5.0  # the longest pause between two attempts to reach the owner of a partition
START_S: Final = 20.0  # for a partition that moves while a consumer subscribes
STORE_S: Final = 30.0  # the same while its acknowledgements are in transit
STEP_S: Final = 0.5
ROUNDS_MAX: Final = 100  # of acknowledgements that are made while a link opens

# The old owner may still have the consumer that left it.
_PASSING: Final = (ErrorKind.SUBSCRIPTION_BUSY, ErrorKind.CONSUMER_BUSY)


class MovingLink:
    """A `Link` over the links that `link_to` opens, and their sink.

    After a link has ended with `Moved`, `link_to` is asked again, with pauses, until a link is open or an error says that
    trying again cannot help. The permits carry over. The sink is reset, except for a consumer that is not durable: that one continues
    after the last entry that arrived, or at the position of its last seek.

    Acknowledgements that the old link may not have stored, or that are made while there is no link, are given to the next link
    before it has permits, so that their messages are not redelivered; a `flush` waits until they are durable there, for STORE_S at most.
    Then they are lost, or if they are too many (`Unstored`): their messages may be delivered again, and a `flush` fails
    (`Unconfirmed`). Those of a consumer that is not durable are lost at once.
    """

    def __init__(self, link_to: LinkTo, wanted: Attachment, sink: LinkSink, tasks: Tasks) -> None:
        self._link_to = link_to
        self._wanted = wanted
        self._sink = sink
        self._tasks = tasks
        self._link: OwnerLink | None = None  # also while it opens
        self._open_link: OwnerLink | None = None
        self._permits = 0  # not yet given to a link
        self._unconfirmed = Unconfirmed()
        self._unstored = Unstored()  # acknowledgements for the next link
        self._turned = asyncio.Event()  # a link has opened, or none will
        self._end: PenstockError | None = None
        self._lost = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        # Entries of a non-persistent topic all have the same place.
        self._goes_on = not wanted.options.durable and wanted.topic.persistent
        self._sought: tuple[MessageId | int, bool] | None = None  # the last seek, until an entry arrives

    # -- start and end

    async def start(self) -> None:
        backoff, loop = Backoff(max_s=MOVED_MAX_S), asyncio.get_running_loop()
        until = loop.time() + START_S
        while True:
            try:
                await self._open()
                break
            except Moved:
                wait_s = backoff.next_s()
                if loop.time() + wait_s > until:
                    raise
                await asyncio.sleep(wait_s)
        self._keeping = self._tasks.spawn(self._keep(), f"keep the link to {self._wanted.topic}")

    async def _open(self) -> None:
        link = await self._link_to(self._wanted, self)
        self._link = link
        started = False
        try:
            await link.start()
            started = True
            if self._sought is not None:
                target, inclusive = self._sought
                await link.seek(target, inclusive=inclusive)
            await self._acknowledge_again(link)
        except BaseException:
            self._drop(link)
            if started:
                with suppress(PulsarException):  # not connected: the owner has noticed, or will
                    await link.close()
            raise
        if self._link is not link:  # it has ended again
            return
        self._give(link)
        self._unstored.clear()
        self._open_link = link
        self._turn()
        if self._permits > 0:
            permits, self._permits = self._permits, 0
            link.flow(permits)

    async def _acknowledge_again(self, link: OwnerLink) -> None:
        """Let the owner store acknowledgements that earlier owners may not have stored, and new ones. Raises an error that
        is retriable if it does not."""
        for _ in range(ROUNDS_MAX):
            if not self._unstored or self._link is not link:
                return
            self._give(link)
            number = self._unstored.number
            try:
                await link.flush()
            except PenstockError as error:
                if error.retriable:
                    raise
                log.info("acknowledgements on %s are lost: %s", self._wanted.topic, error)
                self._lose()
            self._unstored.stored(number)

    def _give(self, link: OwnerLink) -> None:
        if self._unstored.overrun:
            self._lose()
        else:
            self._unstored.give_to(link)

    def _turn(self) -> None:
        """Wake the callers that wait for a link."""
        self._turned.set()
        self._turned = asyncio.Event()

    def _drop(self, link: OwnerLink | None) -> None:
        """A link has ended; its open permits, and what it may not have stored, are for the next one."""
        if link is not None and self._link is link:
            self._link = self._open_link = None
            self._permits += max(0, link.permits)
            if not self._wanted.options.durable or not link.give_unstored_to(self._unstored):
                self._lose()

    def _lose(self) -> None:
        """Acknowledgements that may not be stored are lost."""
        self._unstored.clear()
        self._unconfirmed.lose()

    async def _keep(self) -> None:
        backoff, loop = Backoff(max_s=MOVED_MAX_S), asyncio.get_running_loop()
        while True:
            since = loop.time()
            await self._lost.wait()
            if loop.time() - since >= STABLE_S:
                backoff.reset()
            while self._lost.is_set():
                await asyncio.sleep(backoff.next_s())
                self._lost.clear()
                try:
                    await self._open()
                except PenstockError as error:
                    passing = isinstance(error, PulsarException) and error.passing
                    if not (error.retriable or passing or error.kind in _PASSING):
                        self._finish(error)
                        self._sink.ended(error)
                        return
                    log.info("%s has no owner that can be reached now: %s", self._wanted.topic, error)
                    self._lost.set()

    def _current(self) -> Link:
        if self._open_link is None:
            raise Moved(self._wanted.topic)
        return self._open_link

    def _finish(self, error: PenstockError) -> None:
        """There will be no other link."""
        self._end = error
        self._unstored.clear()
        self._turn()

    async def close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
        link, self._link, self._open_link = self._link, None, None
        self._finish(Moved(self._wanted.topic))
        if link is not None:
            await link.close()

    # -- in

    def arrived(self, entries: list[Arrived]) -> None:
        if self._goes_on:
            self._sought = None
            last = entries[-1]
            start = MessageId(last.ledger, last.entry_id, self._wanted.topic.partition)
            options = msgspec.structs.replace(self._wanted.options, start=start, start_inclusive=False)
            self._wanted = msgspec.structs.replace(self._wanted, options=options, start=start)
        self._sink.arrived(entries)

    def reset(self) -> None:
        self._sink.reset()

    def moved(self) -> None:
        self._unstored.clear()
        self._sink.moved()

    def active(self, active: bool) -> None:
        self._sink.active(active)

    def end_reached(self) -> None:
        self._sink.end_reached()

    def ended(self, error: PenstockError) -> None:
        if not isinstance(error, Moved):
            self._finish(error)
            self._sink.ended(error)
            return
        self._drop(self._link)
        if self._wanted.options.durable:
            self._sink.reset()
        self._lost.set()

    # -- permits

    @property
    def permits(self) -> int:
        return self._permits + (0 if self._link is None else self._link.permits)

    @property
    def due(self) -> int:
        return self._permits + (0 if self._link is None else self._link.due)

    def flow(self, permits: int) -> None:
        if self._open_link is None:
            self._permits += permits
        else:
            self._open_link.flow(permits)

    def restart(self) -> None:
        self._permits = 0
        if self._open_link is not None:
            self._open_link.restart()

    def start_over(self) -> bool:
        lost = bool(self._unstored)
        self._permits = 0
        if self._open_link is not None:
            lost |= self._open_link.start_over()
        if lost:
            self._lose()
        return lost

    # -- answers

    def _acknowledging(self) -> AckSink | None:
        """What an acknowledgement goes to; None if it is lost."""
        self._unconfirmed.give()
        if self._open_link is not None:
            return self._open_link
        if self._unstored.overrun or not self._wanted.options.durable:
            self._lose()
            return None
        return self._unstored

    def acknowledge(self, places: Iterable[Place]) -> None:
        to = self._acknowledging()
        if to is not None:
            to.acknowledge(places)

    def acknowledge_part(self, place: Place, open_bits: int) -> None:
        to = self._acknowledging()
        if to is not None:
            to.acknowledge_part(place, open_bits)

    def acknowledge_up_to(self, place: Place, open_bits: int = 0) -> None:
        to = self._acknowledging()
        if to is not None:
            to.acknowledge_up_to(place, open_bits)

    async def reply(
        self, message_id: MessageId, content: bytes, *, is_error: bool, schema_version: int | None
    ) -> str:
        return await self._current().reply(
            message_id, content, is_error=is_error, schema_version=schema_version
        )

    async def flush(self) -> None:
        await self._unconfirmed.flush(self._store, lambda: Moved(self._wanted.topic))

    async def _store(self) -> None:
        """Let the present or the next owner store the acknowledgements. Raises `Moved` if no link to it opens in time: then
        acknowledgements are lost."""
        # Not by the clock: if the whole process was stopped, owners have their time afterwards.
        left_s = STORE_S
        while self._end is None:
            link, turned = self._open_link, self._turned
            if link is not None:
                try:
                    await link.flush()
                    return
                except Moved:
                    if self._open_link is not link:
                        continue
            elif not self._unconfirmed.any:
                return
            if left_s <= 0:
                self._lose()
                raise Moved(self._wanted.topic)
            with suppress(TimeoutError):
                async with asyncio.timeout(STEP_S):
                    await turned.wait()
            left_s -= STEP_S
        raise self._end

    def redeliver(self, places: Iterable[Place]) -> None:
        if self._open_link is not None:  # else all of them are redelivered
            self._open_link.redeliver(places)

    def redeliver_all(self) -> None:
        if self._open_link is not None:
            self._open_link.redeliver_all()

    async def seek(self, to: MessageId | int, *, inclusive: bool = False) -> None:
        await self._current().seek(to, inclusive=inclusive)
        if self._goes_on:
            self._sought = to, inclusive

    async def unsubscribe(self) -> None:
        await self._current().unsubscribe()
