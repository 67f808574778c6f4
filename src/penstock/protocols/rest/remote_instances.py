"""Consumer instances that other processes of the service have: requests for them are passed on.

The id of an instance names its process, so that any process finds it. Requests without an id are for any instance of a
subscription: the properties of its consumers, which every process sees in the cluster, name the processes.
"""

import secrets
from collections.abc import AsyncIterator
from typing import Final

from penstock.broker.fleet import ProcessGoneError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.policy import OWN_PROPERTIES
from penstock.protocols.context import ServerContext
from penstock.protocols.forwarding import StoppingError, Waits, forward
from penstock.protocols.http.exchange import Exchange

from .operations import Target

INSTANCE: Final = (
    f"{OWN_PROPERTIES}consumer-instance"  # an id that names the process; not that of the instance
)
_ID_BYTES: Final = 18


class RemoteInstances:
    """`new_id` and `properties` are of an instance of this process."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._polls = Waits()

    def new_id(self) -> str:
        """The id of a new instance."""
        fleet = self._context.fleet
        return secrets.token_urlsafe(_ID_BYTES) if fleet is None else fleet.new_id()

    def properties(self) -> dict[str, str]:
        """The properties of the consumer of a new instance, for other processes."""
        fleet = self._context.fleet
        return {} if fleet is None or self._context.broker.cluster is None else {INSTANCE: fleet.new_id()}

    async def polled(self, id: str, exchange: Exchange, wait_s: float, empty: bytes) -> bool:
        """As `answered`, for a request that may wait for `wait_s`. If this process stops before that, the answer is `empty`."""
        try:
            async with self._polls.hold(exchange):
                return await self.answered(id, exchange, wait_s=wait_s)
        except StoppingError:
            await exchange.answer(empty)
            return True

    def drain(self) -> None:
        """End every wait at another process."""
        self._polls.end()

    async def answered(
        self, id: str, exchange: Exchange, *, wait_s: float = 0.0, body: bytes | None = None
    ) -> bool:
        """Whether another process has the instance, and answered the request; `wait_s` and `body` are as of `forward`.

        Raises CONSUMER_NOT_FOUND if that process has ended, and UNAVAILABLE.
        """
        fleet = self._context.fleet
        owner = None if fleet is None else fleet.owner_of(id)
        if fleet is None or owner is None or owner == fleet.id or exchange.forwarded is not None:
            return False
        try:
            await forward(fleet, owner, exchange, wait_s, body)
        except ProcessGoneError:
            raise PenstockError(
                ErrorKind.CONSUMER_NOT_FOUND, "the process that had the consumer instance has ended"
            ) from None
        return True

    async def answered_by_any(self, target: Target, exchange: Exchange, body: bytes) -> bool:
        """Whether another process has an instance of the subscription, and answered the request."""
        fleet = self._context.fleet
        if fleet is None or exchange.forwarded is not None:
            return False
        async for process in self._processes(target):
            try:
                await forward(fleet, process, exchange, body=body)
            except ProcessGoneError:
                continue
            return True
        return False

    async def _processes(self, target: Target) -> AsyncIterator[str]:
        broker, fleet = self._context.broker, self._context.fleet
        if broker.cluster is None or fleet is None:
            return
        log = broker.topics.logs(target.topic)[0] if broker.topics.exists(target.topic) else target.topic
        known = {fleet.id}
        for properties in await broker.cluster.consumers(log, target.subscription):
            process = fleet.owner_of(properties.get(INSTANCE, ""))
            if process is not None and process not in known:
                known.add(process)
                yield process
