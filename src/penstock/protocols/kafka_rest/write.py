"""POST to a partition: all messages of a request are appended, or none (docs/kafka-rest.md)."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.capability import Capability
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.protocols.http.answers import Answer
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.limits import Limits
from penstock.protocols.payloads import TopicSchemas
from penstock.protocols.producer_cache import ProducerCache
from penstock.protocols.trace import traced

from .bodies import read_messages
from .framing import HEAD_BYTES, Budget
from .logs import Logs, check_partition
from .positions import TrimmedError
from .ranges import Piece
from .representations import INLINE_BYTES, content_range

logger = logging.getLogger(__name__)

# A log that was never read here may take long to be read; the message is stored by then.
PLACING_S: Final = 2.0


class Write:
    """Write requests."""

    def __init__(self, broker: Broker, limits: Limits, logs: Logs) -> None:
        self._broker = broker
        self._limits = limits
        self._logs = logs
        self._producers = ProducerCache(broker)

    async def __call__(self, name: TopicName, partition: int, exchange: Exchange) -> Answer:
        """Answer POST."""
        self._check_place(name, partition)
        body = await exchange.body(self._limits.max_request_bytes, encoded=True)
        budget = Budget(self._limits.max_read_bytes, self._limits.max_messages_per_request)
        if len(body) > INLINE_BYTES or exchange.encoding is not None:
            messages = await asyncio.to_thread(read_messages, exchange.headers, body, budget)
        else:
            messages = read_messages(exchange.headers, body, budget)
        exchange.count_unfolded(budget.unfolded, budget.grown)
        trace = exchange.trace()
        bytes_max = self._broker.settings.max_message_bytes
        for message in messages:
            if len(message.payload) > bytes_max:
                raise PenstockError(
                    ErrorKind.TOO_LARGE, f"a message of {len(message.payload)} bytes; the most is {bytes_max}"
                )
            message.partition = partition
            if trace is not None:
                message.properties = traced(message.properties, trace)
        self._broker.schemas.check_next(name, None)
        cached = await self._producers.get(name, "", TopicSchemas(self._broker.schemas, name))
        ids = _all(await cached.producer.publish(messages))
        if Capability.BYTE_POSITIONS not in self._broker.capabilities:
            return Answer(status=204)
        size = sum(HEAD_BYTES + len(message.payload) for message in messages)
        place = await self._place(name, partition, ids, size)
        return Answer(status=204, headers={} if place is None else {"content-range": place})

    def _check_place(self, name: TopicName, partition: int) -> None:
        """Raise TOPIC_NOT_FOUND or PARTITION_NOT_FOUND before a topic is made for nothing."""
        auto = self._broker.topics.auto(name)
        if self._broker.topics.exists(name) or not auto.allowed:
            count = self._logs.partitions(name)
        else:
            count = auto.partitions or 1
        check_partition(name, partition, count)

    async def _place(
        self, name: TopicName, partition: int, ids: Sequence[MessageId], size_bytes: int
    ) -> str | None:
        """The range of the messages; None if that takes too long to find out, or if they are deleted already."""
        try:
            async with asyncio.timeout(PLACING_S):
                log = await self._logs.get(name, partition, refresh=False)
                stored = await log.place(ids, size_bytes)
        except (TimeoutError, TrimmedError):
            return None
        except PenstockError as error:
            if self._broker.cluster is None:
                raise
            # They are stored, whatever the cluster says to further questions.
            logger.warning("the place of stored messages is not known: %s", error.message)
            return None
        return (
            None
            if stored is None
            else content_range(Piece(stored.start, stored.end, lasting=True), stored.size)
        )


def _all(results: Sequence[MessageId | PenstockError]) -> list[MessageId]:
    """The ids of messages stored together; raises the error of a refusal."""
    for result in results:
        if isinstance(result, PenstockError):
            raise result
    return [result for result in results if isinstance(result, MessageId)]
