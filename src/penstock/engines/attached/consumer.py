"""A consumer of subscriptions that run elsewhere: a link for each partition, and its answers to messages.

Partitions and topics may be added and removed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from penstock.broker.delivery import Budget, Outcome
from penstock.broker.producer import Reply
from penstock.broker.topic import Topic
from penstock.client.errors import PulsarException
from penstock.engines.shared.unsubscribing import check_sole_consumer
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions

from .errors import engine_error
from .link import Attachment, Link, LinkSink, OwnerLink
from .moving_link import MovingLink
from .receiver import Receiver
from .subscription import Subscription, subscription_deleted
from .topic_consumer import Means, TopicConsumer

log = logging.getLogger(__name__)

FOLLOW_S: Final = 60.0  # how often partitions and topics that came are looked for, as Pulsar's clients do
Names = Callable[[], Awaitable[Sequence[TopicName]]]


class Cluster(Protocol):
    """The connection to the cluster, as far as consumers use it."""

    async def link_to(self, wanted: Attachment, sink: LinkSink) -> OwnerLink:
        """A link to the present owner of a partition, which the caller starts. Raises `Moved` while it has none."""

    def subscription(self, topic: Topic, name: str) -> Subscription:
        """The subscription of that name, as all consumers of this process see it."""

    @property
    def numbered(self) -> bool: ...
    def flag(self, name: str, default: bool = False) -> bool:
        """A setting of the brokers."""


class Consumer(Receiver):
    """`broker.Consumer`, which is `open`ed once."""

    def __init__(
        self,
        means: Means,
        cluster: Cluster,
        names: Sequence[TopicName],
        subscription: str,
        options: ConsumerOptions,
        budget: Budget | None,
        name: str,
    ) -> None:
        """`name`: if the options have none."""
        super().__init__(options.name or name, subscription, options, budget, means.clock)
        self._means = means
        self._cluster = cluster
        self._names = tuple(names)
        self._ledgers: dict[int, TopicConsumer] = {}  # whose they are, as far as that was looked for
        self._following: asyncio.Task[None] | None = None
        self._joining = asyncio.Lock()
        self._leaving: list[asyncio.Task[None]] = []
        self._unique = False
        self._follow_names: Names = self._named
        self._matches: Callable[[TopicName], bool] | None = None
        # None: it follows topics by a pattern
        self._bases: Sequence[TopicName] | None = [name.base for name in names]
        self._looks = False  # a look is about to begin

    # -- start and end

    async def open(
        self,
        *,
        unique_name: bool = False,
        follow: Names | None = None,
        matches: Callable[[TopicName], bool] | None = None,
    ) -> None:
        """Subscribe to every partition; if one fails, raises its error and is attached to none.

        `follow` returns the present topics, if these are more than the partitions of the named ones,
        and `matches` whether a topic may be one of them.
        """
        self._unique = unique_name
        if follow is not None:
            self._follow_names, self._matches, self._bases = follow, matches, None
        try:
            for name in self._names:
                await self._join(name, first=True)
        except BaseException:
            await self.leave()
            raise
        self._means.topics.listeners.add(self._changed, self._bases)
        self._following = self._means.tasks.spawn(self._follow(), f"follow the topics of {self.name}")

    async def _named(self) -> Sequence[TopicName]:
        return self._names

    async def _join(self, name: TopicName, *, first: bool) -> None:
        """Attach it to every log of a topic that it is not attached to. Later partitions are read from their beginning."""
        topics = await self._means.topics.all_of(name, create=None if first else False)
        known = {source.topic.name for source in self.parts}
        named = {topic.name.partition for topic in topics} & {self.options.start.partition}
        for topic in topics:
            if topic.name in known or self.closed:
                continue
            start = self.options.start
            if not first or (named and start not in (EARLIEST, LATEST) and topic.name.partition not in named):
                start = EARLIEST  # an id says nothing of the other partitions
            await self._attach(topic, start)

    async def _attach(self, topic: Topic, start: MessageId) -> None:
        cluster, options = self._cluster, self.options
        source = cluster.subscription(topic, self.subscription)
        by_index = cluster.flag("acknowledgmentAtBatchIndexLevelEnabled")
        part = TopicConsumer(self, source, self._means, numbered=cluster.numbered, by_index=by_index)
        wanted = Attachment(topic.name, self.subscription, self.name, options, start)
        part.link = MovingLink(cluster.link_to, wanted, part, self._means.tasks)
        source.add(self, unique_name=self._unique)
        try:
            fresh = options.durable and start not in (EARLIEST, LATEST) and not await source.exists()
            await part.link.start()
            if fresh:
                await part.seek(start, inclusive=options.start_inclusive)
        except BaseException as error:
            source.remove(self)
            await part.close()
            if isinstance(error, PulsarException):
                raise engine_error(error) from None
            raise
        self.parts[source] = part
        if self.closed:
            self._drop(part)
        self.grant()

    async def _follow(self) -> None:
        while not self.closed:
            await asyncio.sleep(FOLLOW_S)
            await self.look()

    def _changed(self, topic: TopicName) -> None:
        """This process learned of a topic, or of partitions: there may be something to join before it is time to look."""
        if self._looks or self.closed:
            return
        if self._matches is None or self._matches(topic):
            self._looks = True
            self._means.tasks.spawn(self._look_now(), f"look at the topics of {self.name}")

    async def _look_now(self) -> None:
        self._looks = False
        await self.look()

    async def look(self, names: Names | None = None) -> None:
        """Join new partitions and topics, leave removed ones."""
        async with self._joining:
            try:
                found = await (names or self._follow_names)()
            except (PenstockError, OSError) as error:
                log.info("the topics of consumer %s are not known now: %s", self.name, error)
                return
            for name in found:
                try:
                    await self._means.topics.learn(name)
                    await self._join(name, first=False)
                except (PenstockError, OSError) as error:  # already gone, or tried again
                    log.info("consumer %s cannot join %s now: %s", self.name, name, error)
            bases = {name.base for name in found}
            for source in [one for one in self.parts if one.topic.name.base not in bases]:
                self._drop(self.parts[source])

    def part_ended(self, source: Subscription, error: PenstockError) -> None:
        """A topic delivers no more: the consumer ends with the last one."""
        if source in self.parts:
            self._drop(self.parts[source])
        if not self.parts and self._bases is not None and not self.closed:
            self.close(error)

    def _drop(self, part: TopicConsumer) -> None:
        self.void(part.source)
        self.parts.pop(part.source, None)
        self._ledgers = {ledger: one for ledger, one in self._ledgers.items() if one is not part}
        part.source.remove(self)
        self._leaving.append(self._means.tasks.spawn(part.close(), f"leave {part.source.topic.name}"))
        self._leaving = [task for task in self._leaving if not task.done()]

    def close(self, reason: PenstockError | None = None) -> None:
        """Leave every topic; unacknowledged messages go to other consumers."""
        if self.closed:
            return
        self.closed, self.close_reason = True, reason
        self._means.topics.listeners.discard(self._changed, self._bases)
        if self._following is not None and self._following is not asyncio.current_task():
            self._following.cancel()
        for part in list(self.parts.values()):
            self._drop(part)
        self.outbox.clear()
        self.outbox_bytes = self._taken_bytes = 0
        self._count()
        self.budget = None
        self._ready.set()

    async def leave(self, *, keep_ms: int = 0) -> None:
        """Close, and wait until the cluster knows, for `leave_s` at most. The cluster ends a subscription that is not
        durable with its last consumer, whatever `keep_ms` says."""
        self.close()
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=self._means.leave_s())

    async def unsubscribe(self) -> None:
        """Delete the subscription of each topic, and close. The cluster refuses while there are other consumers; all
        partitions are checked first, so that a refusal changes nothing.

        Raises SUBSCRIPTION_SHARED and stays open, unless only some of the topics were refused: then it closes.
        """
        attached = self.attached
        check_sole_consumer(attached)
        if len(attached) > 1:
            await asyncio.gather(*(one.check_sole_consumer() for one in attached))
        done = False
        try:
            for part in list(self.parts.values()):
                await part.unsubscribe()
                done = True
        except PenstockError as error:
            if done:
                self.close(error)
            raise
        self.close(subscription_deleted(self.subscription))

    # -- its topics

    @property
    def attached(self) -> Sequence[Subscription]:
        return list(self.parts)

    @property
    def drained(self) -> bool:
        return bool(self.parts) and self.idle and all(part.at_end for part in self.parts.values())

    def end_reached_of(self, source: Subscription) -> None:
        """A topic is terminated, and all of it acknowledged."""
        if self.end_reached is not None and all(one.at_end for one in self.parts.values()):
            self.end_reached()

    def active(self, source: Subscription, active: bool) -> None:
        """The cluster reports whether it is the active consumer of a topic."""
        if active:
            source.active = self
        elif source.active is self:
            source.active = None
        if self.active_changed is not None:
            self.active_changed(source, active)

    async def seek_in(self, source: Subscription, target: MessageId | int, *, inclusive: bool) -> None:
        """Move the subscription of one topic."""
        await self.parts[source].seek(target, inclusive=inclusive)

    def forget(self, source: Subscription) -> None:
        """The subscription of a topic was moved by others."""
        part = self.parts.get(source)
        if part is not None:
            part.forget()

    def start_over(self, source: Subscription) -> None:
        """The log of a topic was truncated, and other messages get the ids of lost ones."""
        part = self.parts.get(source)
        if part is not None:
            part.start_over()

    def settle_in(self, source: Subscription, message_id: MessageId) -> Link | None:
        """Acknowledge a message that is out here; returns the link, None if nothing is known of its entry."""
        part = self.parts.get(source)
        if part is None or part.out.row((message_id.ledger, message_id.entry)) is None:
            return None
        count, out = part.acknowledge([message_id])
        self.settled(out)
        return part.link if count > 0 else None

    def source_of(self, message_id: MessageId) -> Subscription:
        return self._part_of(message_id).source

    def _part_of(self, message_id: MessageId) -> TopicConsumer:
        if len(self.parts) == 1:
            (part,) = self.parts.values()
            if message_id.partition in (-1, part.source.topic.name.partition):
                return part
        found = self._ledgers.get(message_id.ledger) or self._find(message_id)
        if found is None:
            raise PenstockError(
                ErrorKind.MESSAGE_NOT_FOUND, f"message id {message_id} is of no topic of this consumer"
            )
        return found

    def _find(self, message_id: MessageId) -> TopicConsumer | None:
        """Ledgers are the cluster's, and each is of one topic: the topic it was seen in, else the partition's."""
        place = (message_id.ledger, message_id.entry)
        found = [part for part in self.parts.values() if part.out.row(place) is not None]
        if found:
            self._ledgers[message_id.ledger] = found[0]
            return found[0]
        of = [
            part for part in self.parts.values() if part.source.topic.name.partition == message_id.partition
        ]
        return of[0] if len(of) == 1 else None

    # -- answers

    async def acknowledge(self, message_id: MessageId) -> None:
        count, out = self._part_of(message_id).acknowledge([message_id])
        self.settled(out)
        if not count:
            raise PenstockError(ErrorKind.MESSAGE_NOT_FOUND, f"message {message_id} is not out here")

    async def acknowledge_all(self, message_ids: Sequence[MessageId]) -> int:
        by_part: dict[TopicConsumer, list[MessageId]] = {}
        for message_id in message_ids:
            try:
                by_part.setdefault(self._part_of(message_id), []).append(message_id)
            except PenstockError:
                continue
        acknowledged = were_out = 0
        for part, group in by_part.items():
            count, out = part.acknowledge(group)
            acknowledged += count
            were_out += out
        self.settled(were_out)
        return acknowledged

    async def acknowledge_cumulative(self, message_id: MessageId) -> None:
        self.check_cumulative(message_id)
        self.settled(self._part_of(message_id).acknowledge_up_to(message_id))

    def negative(self, message_id: MessageId, delay_ms: int | None = None) -> bool:
        delay = self.options.nack_delay_ms if delay_ms is None else delay_ms
        count = self._part_of(message_id).negative(message_id, delay)
        self.settled(count)
        return count > 0

    async def reply(
        self,
        message_id: MessageId,
        content: bytes,
        *,
        is_error: bool = False,
        schema_version: int | None = None,
    ) -> Outcome:
        outcome = await self.answer(Reply(message_id, content, is_error, schema_version))
        await self.acknowledge(message_id)
        return outcome

    async def answer(self, reply: Reply) -> Outcome:
        """Send a reply to a request that is out, and leave its acknowledgement to the caller; raises MESSAGE_NOT_FOUND."""
        part = self._part_of(reply.request_id)
        entry = part.request(reply.request_id)
        if entry is None:
            return Outcome.NOT_A_REQUEST
        assert self._means.give_reply is not None, "the link delivers no replies"
        return await self._means.give_reply(entry, part.source.topic.name.base, reply)

    def reply_all(self, replies: Sequence[Reply]) -> Sequence[Reply]:
        """Only the requesting process knows which requests wait: `reply` handles each."""
        return list(replies)

    async def seek(self, target: MessageId | int) -> None:
        if isinstance(target, int) or target in (EARLIEST, LATEST):
            await asyncio.gather(*(part.seek(target) for part in list(self.parts.values())))
        else:
            await self._part_of(target).seek(target)

    async def flush(self) -> None:
        await asyncio.gather(*(part.flush() for part in list(self.parts.values())))
