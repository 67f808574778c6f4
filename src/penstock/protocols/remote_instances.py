"""Consumer instances that other processes of the service have: requests for them are passed on.

The id of an instance names its process, so that any process finds it. Requests without an id are for any instance of a
subscription: the properties of its consumers, which every process sees in the cluster, name the processes.
"""

import secrets
from collections.abc import AsyncIterator
from typing import Final

from penstock.broker.fleet import Caller as Client
from penstock.broker.fleet import Fleet, ForwardedRequest, ProcessGoneError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import OWN_PROPERTIES

from .context import ServerContext
from .forwarding import StoppingError, Waits, forward
from .http.exchange import Exchange

INSTANCE: Final = (
    f"{OWN_PROPERTIES}consumer-instance"  # an id that names the process; not that of the instance
)
_ID_BYTES: Final = 18
_ASK_S: Final = 5.0  # for another process to say whether it has an instance


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

    async def polled(self, id: str, exchange: Exchange, wait_s: float, empty: bytes, path: str = "") -> bool:
        """As `answered`, for a request that may wait for `wait_s`. If this process stops before that, the answer is `empty`."""
        try:
            async with self._polls.hold(exchange):
                return await self.answered(id, exchange, wait_s=wait_s, path=path)
        except StoppingError:
            await exchange.answer(empty)
            return True

    def drain(self) -> None:
        """End every wait at another process."""
        self._polls.end()

    async def answered(
        self,
        id: str,
        exchange: Exchange,
        *,
        wait_s: float = 0.0,
        body: bytes | None = None,
        path: str = "",
    ) -> bool:
        """Whether another process has the instance, and answered the request; `wait_s` and `body` are as of `forward`. If the id names
        no process, or one that has ended, the others are asked for `path`: the one that has the instance answers 204.

        Raises CONSUMER_NOT_FOUND if that process has ended, and UNAVAILABLE.
        """
        fleet = self._context.fleet
        if fleet is None or exchange.forwarded is not None:
            return False
        owner = fleet.owner_of(id)
        if owner == fleet.id:
            return False
        if owner is not None and await _passed_on(fleet, owner, exchange, wait_s, body):
            return True
        holder = await self.holder(path) if path else None
        if holder is not None and await _passed_on(fleet, holder, exchange, wait_s, body):
            return True
        if owner is None and holder is None:
            return False
        raise PenstockError(
            ErrorKind.CONSUMER_NOT_FOUND, "the process that had the consumer instance has ended"
        )

    async def holder(self, path: str) -> str | None:
        """The other process that answers GET of a path with 204; None without one."""
        fleet = self._context.fleet
        if fleet is None:
            return None
        ask = ForwardedRequest(
            method=b"GET", target=path.encode(), headers=(), body=b"", caller=Client(process=True)
        )
        for process in list(fleet.counts):
            try:
                async with fleet.send(process, ask, _ASK_S) as answer:
                    while await answer.part():
                        pass
                    if answer.status == 204:
                        return process
            except (ProcessGoneError, PenstockError):
                continue
        return None

    async def answered_by_any(
        self, topic: TopicName, subscription: str, exchange: Exchange, body: bytes
    ) -> bool:
        """Whether another process has an instance of the subscription, and answered the request."""
        fleet = self._context.fleet
        if fleet is None or exchange.forwarded is not None:
            return False
        async for process in self._processes(topic, subscription):
            if await _passed_on(fleet, process, exchange, body=body):
                return True
        return False

    async def _processes(self, topic: TopicName, subscription: str) -> AsyncIterator[str]:
        broker, fleet = self._context.broker, self._context.fleet
        if broker.cluster is None or fleet is None:
            return
        log = broker.topics.logs(topic)[0] if broker.topics.exists(topic) else topic
        known = {fleet.id}
        for properties in await broker.cluster.consumers(log, subscription):
            process = fleet.owner_of(properties.get(INSTANCE, ""))
            if process is not None and process not in known:
                known.add(process)
                yield process


async def _passed_on(
    fleet: Fleet, process: str, exchange: Exchange, wait_s: float = 0.0, body: bytes | None = None
) -> bool:
    """Whether another process answered a request; False if it has ended."""
    try:
        await forward(fleet, process, exchange, wait_s, body)
    except ProcessGoneError:
        return False
    return True
