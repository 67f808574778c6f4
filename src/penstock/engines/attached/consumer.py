"""Attached consumers: their answers to the messages that they were given."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from penstock.broker.delivery import Outcome
from penstock.broker.producer import Reply
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.model.names import TopicName

from .subscriber import Subscriber
from .subscription import Subscription
from .topic_consumer import TopicConsumer

Answer = Callable[[Entry, TopicName, Reply], Awaitable[Outcome]]


class Consumer(Subscriber):
    """`broker.Consumer`. `give_reply`, which its creator sets, delivers replies to waiting requesters (PIP-371)."""

    give_reply: Answer

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
        """Ledgers are the cluster's, and each is of one topic: where it was seen decides, else the partition."""
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
        return await self.give_reply(entry, part.source.topic.name.base, reply)

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
