"""Deliveries that wait for a consumer's endpoint, and the endpoint's permits; the same for every engine."""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from penstock.broker.delivery import Budget, ConsumerFigures, Delivery
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.model.policy import UNACKED_PER_CONSUMER_MAX, ConsumerOptions

PERMITS_MAX: Final = 2**31 - 1
COUNT_BYTES: Final = 32 * 1024  # of deliveries are counted in the budget at a time: none pays for it alone


class Outbox(ABC):
    """Of `broker.Receiver`: what its endpoint takes, and what it permits.

    Deliveries in the outbox, and those taken from it last, count in the `budget` of its principal.
    """

    def __init__(
        self, name: str, subscription: str, options: ConsumerOptions, budget: Budget | None, connected_ms: int
    ) -> None:
        self.name = name
        self.subscription = subscription
        self.options = options
        self.budget = budget
        self.connected_ms = connected_ms
        self.outbox: deque[Delivery] = deque()
        self.outbox_bytes = 0
        self.unacked = 0
        self.unacked_max = UNACKED_PER_CONSUMER_MAX
        self.permits = 0
        self.delivered = 0
        self.owner: str | None = None  # the role it acts for, which alone answers the requests it was given
        self.proxy: str | None = None  # the role that made it for its owner; None: the owner itself
        self.closed = False
        self.close_reason: PenstockError | None = None
        self.end_reached: Callable[[], None] | None = None  # everything of a terminated topic was read
        self.moved: Callable[[], None] | None = (
            None  # a subscription was moved, by any consumer or an administrator
        )
        self._alone = options.flow and not options.type.shared
        self._ready = asyncio.Event()
        self._taken_bytes = 0  # by the last `take`
        self._counted = 0  # in the budget

    def figures(self) -> ConsumerFigures:
        return ConsumerFigures(
            connected_ms=self.connected_ms,
            permits=self.permits,
            capacity=self.capacity(),
            unacked=self.unacked,
            unacked_max=self.unacked_max,
        )

    def capacity(self) -> int:
        """How many more messages it takes now."""
        options = self.options
        # One that gets everything may hold back its acknowledgements for as long as it likes, as in Pulsar.
        room = PERMITS_MAX if self._alone else self.unacked_max - self.unacked
        if options.window is not None:
            room = min(room, options.window - self.unacked)
        if options.flow:
            room = min(room, self.permits)
        return room

    def permit(self, permits: int) -> None:
        """Count `permits` more; raises BAD_PARAMETER unless positive. Sums are capped."""
        if permits <= 0:
            raise PenstockError(ErrorKind.BAD_PARAMETER, f"permits must be positive, not {permits}")
        self.permits = min(PERMITS_MAX, self.permits + permits)

    def check_cumulative(self, message_id: MessageId) -> None:
        """Raise BAD_PARAMETER if everything up to a message cannot be acknowledged at once."""
        if self.options.type.shared:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER,
                f"cumulative acknowledgement is not for {self.options.type.value} subscriptions",
            )
        if message_id in (LATEST, EARLIEST):
            raise PenstockError(
                ErrorKind.BAD_PARAMETER, "cumulative acknowledgement needs a message's own id"
            )

    def stop_flow(self) -> None:
        self.permits = 0

    def _pop(self, count_max: int, bytes_max: int) -> list[Delivery]:
        """Take from the outbox, oldest first, up to `count_max` deliveries: one, and more within `bytes_max`."""
        taken: list[Delivery] = []
        size = 0
        while self.outbox and len(taken) < count_max and size < bytes_max:
            delivery = self.outbox.popleft()
            size += len(delivery.entry.data)
            taken.append(delivery)
        self.outbox_bytes -= size
        self._taken_bytes = size
        return taken

    def _still_out(self, taken: Iterable[Delivery]) -> tuple[list[Delivery], int]:
        """Without messages that were acknowledged as they waited: they are redeliveries. Also returns how many those are; their
        permits are given back."""
        kept: list[Delivery] = []
        dropped = 0
        for delivery in taken:
            mask = self._out_of(delivery)
            if mask != delivery.mask:
                dropped += (delivery.mask & ~mask).bit_count()
                if not mask:
                    continue
                delivery = msgspec.structs.replace(delivery, mask=mask)
            kept.append(delivery)
        if dropped and self.options.flow:
            self.permits = min(PERMITS_MAX, self.permits + dropped)
        return kept, dropped

    @abstractmethod
    def _out_of(self, delivery: Delivery) -> int:
        """Which messages of a delivery that waits are not acknowledged, as bits."""

    async def ready(self) -> bool:
        while not self.outbox:
            if self.closed:
                return False
            if self._counted:
                self._taken_bytes = 0
                self._count()
            self._ready.clear()
            await self._ready.wait()
        return True

    @abstractmethod
    def _count(self) -> None:
        """Count in the budget what it has now."""
