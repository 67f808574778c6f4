"""Replies between processes (PIP-371): records of one topic. Each process reads one partition of it, which others may share.

A request has the address of its reply in headers, `penstock-reply-to: {topic}:{partition}`, and its number,
`penstock-correlation-id`. A reply is a record there with that number; `penstock-is-error` and `penstock-schema-version` may be
missing. So any client of Kafka's can reply.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from penstock.broker.delivery import Outcome
from penstock.broker.producer import Reply
from penstock.engines.shared.replies import CORRELATION_ID, Replies, receive
from penstock.engines.shared.requests import REPLY_BYTES_MAX, Requests
from penstock.engines.subscription import Subscription
from penstock.engines.subscription.receiver import Receiver
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.names import NamespaceName
from penstock.runtime.tasks import Tasks, finished

from .cluster import KafkaCluster
from .driver.fetcher import Fetcher
from .driver.producer import RecordProducer
from .driver.record import At, Header, NewRecord, Record

log = logging.getLogger(__name__)

PARTITIONS: Final = 16
CONFIG: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "600000",  # twice the longest wait for a reply
    "max.message.bytes": str(REPLY_BYTES_MAX + (1 << 16)),
}
AGAIN_S: Final = 1.0  # until the topic is followed again after a loss
_PARTITION_DIGITS: Final = 5


class ReplyPartitions:
    """`shared.ReplyTransport` and `shared.ReplyAddresses`: an address is `{topic}:{partition}`."""

    def __init__(
        self,
        cluster: KafkaCluster,
        fetcher: Fetcher,
        records: RecordProducer,
        requests: Requests,
        tasks: Tasks,
    ) -> None:
        self.topic = cluster.settings.replies_topic
        self.partitions = PARTITIONS  # as far as known
        self._cluster = cluster
        self._fetcher = fetcher
        self._records = records
        self._requests = requests
        self._tasks = tasks
        self._beginning: asyncio.Task[None] | None = None
        self._live = False
        self._at: At = (self.topic, -1)
        self._position = -1  # of the next record; -1: nothing was listened to before

    def own(self, process: str, namespace: NamespaceName) -> str:
        return f"{self.topic}:{int(process, 16) % self.partitions}"

    def accepts(self, reply_to: str, namespace: NamespaceName) -> bool:
        topic, _, partition = reply_to.rpartition(":")
        return (
            topic == self.topic
            and partition.isascii()
            and partition.isdigit()
            and len(partition) <= _PARTITION_DIGITS
        )

    async def start(self) -> None:
        """Learn the number of partitions of the topic, if it exists. Raises UNAVAILABLE."""
        found = await self._cluster.admin.describe(self.topic)
        if found is not None:
            self.partitions = found.partitions

    # -- in

    async def listen(self, reply_to: str) -> None:
        if not self._live:
            if self._beginning is None:
                self._beginning = self._tasks.spawn(self._begin(reply_to), f"listen to replies on {reply_to}")
            await asyncio.shield(self._beginning)

    async def _begin(self, reply_to: str) -> None:
        try:
            at = _place(reply_to)
            found = await self._cluster.have(self.topic, PARTITIONS, CONFIG)
            self.partitions = found.partitions
            if at[1] >= self.partitions:
                raise PenstockError(
                    ErrorKind.UNAVAILABLE,
                    f"{at[0]} has {self.partitions} partitions, fewer than were expected: ask again",
                )
            first, end = await self._fetcher.ends(at)
            # From before the loss, if known: replies may have come since.
            self._position = end if self._position < 0 else min(max(first, self._position), end)
            self._at = at
            self._live = True
            try:
                await self._fetcher.follow(at, self._position, self)
            except PenstockError:
                self._live = False
                raise
        finally:
            self._beginning = None

    def arrived(self, records: Sequence[Record]) -> None:
        """As `driver.tail.Follower.arrived`. Records of other processes are ignored."""
        for record in records:
            headers = {
                name: (value or b"").decode(errors="replace") for name, value in record.headers() or ()
            }
            if self._requests.owns(headers.get(CORRELATION_ID, "")):
                receive(self._requests, headers, record.value() or b"")
            self._position = record.offset() + 1

    def truncated(self) -> None:
        """As `driver.tail.Follower.truncated`. `lost` follows."""

    def reached(self, offset: int) -> None:
        """As `driver.tail.Follower.reached`."""
        self._position = max(self._position, offset)

    def lost(self) -> None:
        """As `driver.tail.Follower.lost`."""
        log.warning("replies cannot be received on %s, partition %d", *self._at)
        self._live = False
        self._tasks.spawn(self._listen_again(), "listen to replies again")

    async def _listen_again(self) -> None:
        topic, partition = self._at
        while not self._live:
            await asyncio.sleep(AGAIN_S)
            try:
                await self.listen(f"{topic}:{partition}")
            except PenstockError as error:
                log.debug("replies cannot be received yet: %s", error.message)

    # -- out

    async def send(self, reply_to: str, message: OutMessage) -> None:
        if self._records.full:
            await self._records.room()
        headers: list[Header] = [(name, value.encode()) for name, value in (message.properties or {}).items()]
        sent = self._records.send(_place(reply_to), (NewRecord(message.payload, None, headers),))
        (outcome,) = await finished(sent.future)
        if isinstance(outcome, PenstockError):
            raise outcome

    async def close(self) -> None:
        if self._live:
            self._live = False
            await self._fetcher.leave(self._at)


def _place(reply_to: str) -> At:
    topic, _, partition = reply_to.rpartition(":")
    return topic, int(partition)


class SentReplies:
    """`core.broker.hosting.Replies`: those of consumers whose subscriptions run in this process."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    async def reply(self, source: Subscription, consumer: Receiver | None, reply: Reply) -> Outcome:
        source.answers.check_out(reply.request_id, consumer)
        entry = await source.topic.entry(reply.request_id.entry)
        return await self._replies.reply(entry, source.topic.name, reply)

    def reply_all(
        self, source: Subscription, consumer: Receiver | None, replies: Sequence[Reply]
    ) -> Sequence[Reply]:
        """Each reply is examined by `reply`: it may be for another process."""
        return replies
