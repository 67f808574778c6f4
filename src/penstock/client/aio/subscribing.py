"""Topics to receivers: one, several, partitioned ones, and all that match a pattern."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from penstock.client.enums import InitialPosition, RegexSubscriptionMode
from penstock.client.errors import PulsarException, TopicNotFound
from penstock.client.message_id import MessageId
from penstock.client.schema.schema import Schema
from penstock.client.session.commands import Subscription
from penstock.client.session.redelivery import Receiving
from penstock.model.names import TopicName

from .context import Context
from .incoming import Incoming
from .lookup import topic_name
from .receiver import Receiver
from .tasks import log

REFRESH_S = 60.0  # how often new partitions are looked for, as in Pulsar's clients


@dataclass(frozen=True, kw_only=True)
class Subscribing:
    """Adds receivers to a consumer as topics and partitions come, and takes them away when topics go."""

    context: Context
    incoming: Incoming
    how: Subscription
    receiving: Receiving
    schema: Schema
    total_queue_size: int
    start: MessageId | None = None
    inclusive: bool = False

    async def topics(self, names: Iterable[str]) -> None:
        """Subscribe to topics and all their partitions, and to partitions that come later."""
        bases = [topic_name(name) for name in names]
        found = await asyncio.gather(*(self._parts(base) for base in bases))
        parts = [part for parts in found for part in parts]
        await self._add(parts, self.how.initial_position)
        if any(part.partition >= 0 and part.base in bases for part in parts):
            self._later(self._follow_partitions(bases), "look for partitions")

    async def pattern(self, pattern: str, mode: RegexSubscriptionMode, period_s: float) -> None:
        """Subscribe to the topics that match, and to those that come later."""
        domain, separator, rest = pattern.partition("://")
        rest = rest if separator else domain
        parts = rest.split("/", 2)
        if len(parts) != 3:
            parts = ["public", "default", rest]
        namespace = f"{parts[0]}/{parts[1]}"
        expression = re.compile("/".join(parts))
        await self._match(namespace, expression, mode, self.how.initial_position)
        self._later(self._follow_pattern(namespace, expression, mode, period_s), "look for topics")

    def _later(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self.context.tasks.spawn(work, f"{name} of {self.incoming.topic}")
        self.incoming.jobs.append(task)

    async def _parts(self, name: TopicName) -> list[TopicName]:
        if name.partition >= 0:
            return [name]
        count = await self.context.lookup.partitions(str(name))
        return [name.of_partition(number) for number in range(count)] if count else [name]

    async def _add(self, parts: list[TopicName], position: InitialPosition) -> None:
        incoming = self.incoming
        parts = [part for part in parts if str(part) not in incoming.receivers]
        size = self.receiving.queue_size
        count = len(parts) + len(incoming.receivers)
        if count > 1 and size > 0:
            size = max(1, min(size, self.total_queue_size // count))
        receiving = replace(self.receiving, queue_size=size)
        made = [
            Receiver(
                self.context,
                incoming,
                replace(self.how, topic=str(part), initial_position=position),
                receiving,
                self.schema,
                self.start,
                inclusive=self.inclusive,
            )
            for part in parts
        ]
        for receiver in made:
            incoming.receivers[receiver.topic] = receiver
        results = await asyncio.gather(*(r.start() for r in made), return_exceptions=True)
        failures = [error for error in results if isinstance(error, BaseException)]
        if failures:
            for receiver in made:
                del incoming.receivers[receiver.topic]
            await asyncio.gather(*(r.close() for r in made if r.connected), return_exceptions=True)
            raise failures[0]
        if incoming.queue_size == 0:
            for receiver in made:
                for _ in range(incoming.wants()):
                    receiver.ask_for(1)

    async def _follow_partitions(self, bases: list[TopicName]) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                for base in bases:
                    # A new partition has no earlier messages: all of it is received.
                    await self._add(await self._parts(base), InitialPosition.Earliest)
            except PulsarException as error:
                log.info("the partitions of %s are not known now: %s", self.incoming.topic, error)

    async def _follow_pattern(
        self, namespace: str, expression: re.Pattern[str], mode: RegexSubscriptionMode, period_s: float
    ) -> None:
        while True:
            await asyncio.sleep(period_s)
            try:
                # The same holds for a topic that was not there before.
                await self._match(namespace, expression, mode, InitialPosition.Earliest)
            except PulsarException as error:
                log.info("the topics of %s are not known now: %s", namespace, error)

    async def _match(
        self,
        namespace: str,
        expression: re.Pattern[str],
        mode: RegexSubscriptionMode,
        position: InitialPosition,
    ) -> None:
        found = await self.context.lookup.topics(namespace, mode)
        listed = [name for text in found if (name := TopicName.parse_known(text)) is not None]
        matching = {
            name.base
            for name in listed
            if expression.fullmatch(str(name.base).partition("://")[2]) is not None
        }
        parts: list[TopicName] = []
        for base in sorted(matching):
            try:
                parts += await self._parts(base)
            except TopicNotFound:  # deleted since
                continue
        await self._add(parts, position)
        for topic in set(self.incoming.receivers) - {str(part) for part in parts}:
            await self.incoming.receivers.pop(topic).close()
