"""Answers to entries by their ids alone, for clients of Pulsar's protocol, if a log has one ledger."""

from collections.abc import Collection
from typing import cast

from penstock.broker.delivery import Receiver
from penstock.model.message_id import MessageId

from .receiver import Receiver as AttachedReceiver
from .subscription import Subscription
from .topic_consumer import TopicConsumer


class AttachedEntryAnswers:
    """`broker.EntryAnswers` of the attached consumers of one topic or partition; the owner has the others."""

    def __init__(self, source: Subscription, ledger: int) -> None:
        self._source = source
        self._ledger = ledger

    def _part(self, consumer: Receiver) -> TopicConsumer | None:
        return cast(AttachedReceiver, consumer).parts.get(self._source)

    def acknowledge_but(self, entry_id: int, unacked: int, consumer: Receiver) -> bool:
        part = self._part(consumer)
        return part is not None and part.acknowledge_but((self._ledger, entry_id), unacked)

    async def acknowledge_but_late(self, entry_id: int, unacked: int, consumer: Receiver) -> None:
        part = self._part(consumer)
        if part is not None:
            part.acknowledge_late((self._ledger, entry_id), unacked)

    def negative(self, entry_id: int, index: int, delay_ms: int, by: Receiver | None = None) -> bool:
        part = None if by is None else self._part(by)
        if by is None or part is None:
            return False
        message_id = MessageId(self._ledger, entry_id, self._source.topic.name.partition, index)
        count = part.negative(message_id, delay_ms)
        cast(AttachedReceiver, by).settled(count)
        return count > 0

    def redeliver_all(self, consumer: Receiver) -> None:
        part = self._part(consumer)
        if part is not None:
            part.redeliver_all()


class WholeEntries:
    """`broker.PartialBatches` of a log whose entries are single messages: no part of one is ever sent."""

    clients: Collection[str] = ()

    def learn(self, version: str) -> None:
        """Nothing depends on it."""

    def add(self, entry_id: int, end: int, mask: int) -> None:
        """Not called: entries have no parts here."""

    def left(self, entry_id: int, bits: int) -> int:
        return bits
