"""The logs that the endpoint shows: those of the persistent topics of public/default."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable
from functools import partial
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.capability import Capability, require
from penstock.broker.journal import JournalLostError, OpenJournal
from penstock.broker.topic import Topic
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, TopicName
from penstock.runtime.tasks import Tasks

from .blocks import Blocks
from .checkpoints import KIND
from .local_positions import LocalPositions
from .positions import LogPositions, TrimmedError
from .shared_positions import SharedPositions

log = logging.getLogger(__name__)

LOGS_MAX: Final = 256  # the least recently used is read again from its last checkpoint
KEEP_S: Final = 300.0  # clusters trim older entries
CLOSE_S: Final = 2.0


class SharedLogs:
    """The positions of each log that was asked for lately."""

    def __init__(self, open_journal: OpenJournal, tasks: Tasks, blocks: Blocks) -> None:
        self._open_journal = open_journal
        self._tasks = tasks
        self._blocks = blocks
        self._logs: OrderedDict[TopicName, SharedPositions] = OrderedDict()
        self._keeping: asyncio.Task[None] | None = None

    def of(self, topic: Topic) -> SharedPositions:
        """The positions of a log; they are new if the topic was opened again."""
        found = self._logs.pop(topic.name, None)
        if found is None or found.topic is not topic:
            open_journal = partial(self._open_journal, topic.name, KIND)
            found = SharedPositions(topic, self._blocks, open_journal)
        self._logs[topic.name] = found
        if len(self._logs) > LOGS_MAX:
            _, oldest = self._logs.popitem(last=False)
            self._tasks.spawn(self._keep([oldest]), f"keep the positions of {oldest.topic.name}")
        if self._keeping is None:
            self._keeping = self._tasks.spawn(self._keep_all(), "keep positions")
        return found

    async def _keep_all(self) -> None:
        while True:
            await asyncio.sleep(KEEP_S)
            await self._keep(list(self._logs.values()))

    async def _keep(self, logs: Iterable[SharedPositions]) -> None:
        for one in logs:
            try:
                await one.keep()
            except (
                PenstockError,
                TrimmedError,
                JournalLostError,
            ) as error:  # they are counted again by reading
                log.warning("positions not kept: %s", error, extra={"topic": str(one.topic.name)})

    async def close(self) -> None:
        """Store counted positions, as far as that is soon done."""
        if self._keeping is not None:
            self._keeping.cancel()
        if self._logs:
            # A started write cannot be undone: it is left running rather than cancelled.
            keeping = self._tasks.spawn(self._keep(list(self._logs.values())), "keep positions")
            await asyncio.wait((keeping,), timeout=CLOSE_S)


class Logs:
    """The positions of every log that is open. Their points are small; their blocks share one bound."""

    def __init__(self, broker: Broker, blocks: Blocks | None = None) -> None:
        self._broker = broker
        self._blocks = blocks or Blocks()
        self._logs: dict[int, LocalPositions] = {}
        self._shared: SharedLogs | None = None
        if broker.open_journal is not None:
            self._shared = SharedLogs(broker.open_journal, broker.tasks, self._blocks)
            return
        broker.topics.observers.append(self)
        for topic in broker.topics.open_topics:
            self.opened(topic)

    # -- notices of the broker about topics

    def opened(self, topic: Topic) -> None:
        """Logs that no client reads here are followed, too, as a trim would take their positions with it."""
        if topic.name.persistent and topic.name.namespace_name == DEFAULT_NAMESPACE:
            self._logs[topic.ledger] = LocalPositions(topic, self._blocks)

    async def trimming(self, topic: Topic, before_entry: int) -> None:
        found = self._logs.get(topic.ledger)
        if found is not None:
            await found.before_trim(before_entry)

    async def deleted(self, topic: Topic) -> None:
        found = self._logs.pop(topic.ledger, None)
        if found is not None:
            await found.forget()

    async def close(self) -> None:
        """Store unsaved positions."""
        if self._shared is not None:
            await self._shared.close()

    # -- which there are

    def names(self) -> list[TopicName]:
        """The topics, sorted."""
        return self._broker.topics.names(DEFAULT_NAMESPACE, "persistent")

    def partitions(self, name: TopicName) -> int:
        """The number of partitions of a topic, one if it is not partitioned; raises TOPIC_NOT_FOUND."""
        return self._broker.topics.partitions(name) or 1

    async def get(self, name: TopicName, partition: int, *, refresh: bool = True) -> LogPositions:
        """The log of a partition, whose end is asked of a cluster with `refresh`; raises TOPIC_NOT_FOUND,
        PARTITION_NOT_FOUND."""
        require(self._broker.capabilities, Capability.BYTE_POSITIONS)
        check_partition(name, partition, self.partitions(name))
        partitioned = self._broker.topics.partitions(name) > 0
        topic = await self._broker.topics.get(
            name.of_partition(partition) if partitioned else name, create=False
        )
        if self._shared is not None:
            if refresh:
                await topic.refresh()
            return self._shared.of(topic)
        found = self._logs.get(topic.ledger)
        if found is None:
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{name} was deleted")
        return found


def check_partition(name: TopicName, partition: int, count: int) -> None:
    """Raise PARTITION_NOT_FOUND unless there is such a partition."""
    if partition >= count:
        raise PenstockError(
            ErrorKind.PARTITION_NOT_FOUND, f"{name} has no partition {partition}: there are {count}"
        )
