"""Acknowledgements of logs of many ledgers, given over HTTP: they go through the consumers that this server has."""

from collections.abc import Collection, Sequence

from penstock.broker.consumer import Consumer
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId


class AttachedConsumers:
    """The consumers of one subscription on this server."""

    def __init__(self, consumers: Sequence[Consumer]) -> None:
        self._consumers = consumers
        self._used: dict[Consumer, None] = {}

    @property
    def used(self) -> Collection[Consumer]:
        """The consumers that may have acknowledged something: their flush makes it durable."""
        return self._used.keys()

    async def acknowledge_all(self, texts: Sequence[str]) -> bool:
        """Acknowledge messages together; False if one of them is to be looked at by itself."""
        try:
            ids = [MessageId.parse(text) for text in texts]
        except PenstockError:
            return False
        if EARLIEST in ids or LATEST in ids:
            return False
        for consumer in self._consumers:
            self._used[consumer] = None
            if await consumer.acknowledge_all(ids) == len(ids):
                return True
        return False

    async def acknowledge(self, message_id: MessageId) -> None:
        """Acknowledge one message; raises MESSAGE_NOT_FOUND."""
        error = _missing(message_id)
        for consumer in self._consumers:
            try:
                await consumer.acknowledge(message_id)
            except PenstockError as refused:
                error = refused
            else:
                self._used[consumer] = None
                return
        raise error

    async def acknowledge_cumulative(self, message_id: MessageId) -> None:
        """Acknowledge everything up to and with a message; raises MESSAGE_NOT_FOUND, BAD_PARAMETER."""
        if not self._consumers:
            raise _missing(message_id)
        await self._consumers[0].acknowledge_cumulative(message_id)
        self._used[self._consumers[0]] = None

    def negative(self, message_id: MessageId, delay_ms: int) -> None:
        """Give a message back; raises MESSAGE_NOT_FOUND."""
        if not any(consumer.negative(message_id, delay_ms) for consumer in self._consumers):
            raise _missing(message_id)


def _missing(message_id: MessageId) -> PenstockError:
    return PenstockError(
        ErrorKind.MESSAGE_NOT_FOUND, f"message {message_id} is with no consumer of this server"
    )
