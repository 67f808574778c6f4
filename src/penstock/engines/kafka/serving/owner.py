"""Brings lease and journal together: slots that the group assigns to this process are claimed, and served from then on."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Protocol

from penstock.engines.kafka.driver.lease import Lease, LeaseListener
from penstock.model.errors import PenstockError
from penstock.runtime.tasks import Tasks

from .cursors import Cursors

log = logging.getLogger(__name__)

RETRY_S: Final = 0.5  # until slots are claimed again
MAINTAIN_S: Final = 5.0  # between checks whether the journal has grown


class SlotHost(Protocol):
    """Serves the subscriptions of slots; called on the loop."""

    def opened(self, slots: Sequence[int]) -> None:
        """These slots are this process's, and their cursors can be loaded."""

    async def closing(self, slots: Sequence[int]) -> None:
        """Stop delivering, and save the cursors: another process gets the slots when this returns, or after some seconds."""

    def closed(self, slots: Sequence[int]) -> None:
        """These slots are not this process's any more: end their subscriptions; saves fail."""

    def confirmed(self) -> None:
        """Slots that were in doubt are this process's: go on delivering."""

    def refused(self, error: PenstockError) -> None:
        """This process can own no slots: the cluster does not allow it, or the settings do not fit."""


class SlotOwner:
    """`LeaseListener`. `open_lease` makes the lease that this listens to."""

    def __init__(
        self,
        host: SlotHost,
        cursors: Cursors,
        open_lease: Callable[[LeaseListener], Lease],
        tasks: Tasks,
    ) -> None:
        self.lease = open_lease(self)
        self._host = host
        self._cursors = cursors
        self._tasks = tasks
        self._assigned: set[int] = set()  # by the group
        self._open: set[int] = set()
        self._claiming = False
        cursors.on_replaced.append(self._replaced)
        cursors.on_refused.append(host.refused)

    def owns(self, slot: int) -> bool:
        """Whether this process may deliver and acknowledge messages of a slot now."""
        return slot in self._open and self.lease.holds(slot)

    @property
    def open(self) -> Collection[int]:
        """The slots that are served, or will be once they are confirmed."""
        return self._open

    def start(self) -> None:
        """Join the group, and keep the journal short from now on."""
        self.lease.start()
        self._tasks.spawn(self._maintain(), "checkpoint cursors")

    # -- from the lease

    def gained(self, slots: Sequence[int]) -> None:
        self._assigned.update(slots)
        self._claim_soon()

    async def releasing(self, slots: Sequence[int]) -> None:
        self._assigned.difference_update(slots)
        still = self._opened(slots)
        # No subscription is opened while an earlier one of its name is being saved, even if the slots come back.
        self._open.difference_update(still)
        if still:
            await self._host.closing(still)
        await self._cursors.release(slots)
        self._open.update(still)
        self._close(slots)
        if not self._assigned.isdisjoint(slots):  # they came back before the cluster had answered
            self._claim_soon()

    def lost(self, slots: Sequence[int]) -> None:
        self._assigned.difference_update(slots)
        self._cursors.forget(slots)
        self._close(slots)

    async def confirm(self) -> None:
        await self._cursors.confirm()

    def confirmed(self) -> None:
        self._host.confirmed()

    def refused(self, error: PenstockError) -> None:
        self._host.refused(error)

    # -- from the journal

    def _replaced(self, slots: Sequence[int]) -> None:
        self._close(slots)
        self._claim_soon()  # those that the group still assigns to this process

    # -- claims

    def _claim_soon(self) -> None:
        if not self._claiming:
            self._claiming = True
            self._tasks.spawn(self._claim_all(), "claim slots")

    async def _claim_all(self) -> None:
        try:
            while wanted := sorted(self._assigned - self._open):
                # Not while the assignment is in doubt: a process that was stopped would disturb its successor.
                sure = [slot for slot in wanted if self.lease.holds(slot)]
                if sure and await self._claim(sure):
                    continue
                await asyncio.sleep(RETRY_S)
        finally:
            self._claiming = False

    async def _claim(self, slots: Sequence[int]) -> bool:
        try:
            await self._cursors.claim(slots)
        except PenstockError as error:
            log.info("slots are not claimed yet: %s", error.message)
            return False
        owned = [slot for slot in slots if slot in self._assigned and slot in self._cursors.owned]
        if owned:
            self._open.update(owned)
            self._host.opened(owned)
        return bool(owned)

    def _opened(self, slots: Iterable[int]) -> list[int]:
        return [slot for slot in slots if slot in self._open]

    def _close(self, slots: Iterable[int]) -> None:
        closed = self._opened(slots)
        if closed:
            self._open.difference_update(closed)
            self._host.closed(closed)

    async def _maintain(self) -> None:
        while True:
            await asyncio.sleep(MAINTAIN_S)
            try:
                await self._cursors.maintain()
            except PenstockError as error:
                log.info("the cursors' journal is not shortened: %s", error.message)
