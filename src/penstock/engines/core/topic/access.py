"""Producer access to a topic: shared, or one producer alone (Pulsar's access modes).

Every exclusive producer begins an epoch of its topic, stored durably: one that comes back after another had the topic
is refused.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from penstock.broker.topic import Publisher, producer_key
from penstock.engines.core.ports import MetaStore
from penstock.engines.shared.documents import DocumentReader
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import AccessMode

_KIND: Final = "epoch"


class Epochs:
    """The epochs of all topics; those of non-persistent topics are in memory only."""

    def __init__(self, store: MetaStore, reader: DocumentReader) -> None:
        self._store = store
        self._reader = reader
        self._epochs: dict[str, int] = {}

    async def load(self) -> None:
        """Read the stored state."""
        self._reader.read_all(_KIND, await self._store.load_meta(_KIND), self._learn)

    def _learn(self, key: str, document: bytes | None) -> None:
        self._epochs[key] = int(document or b"")

    def of(self, topic: TopicName) -> int:
        """A topic's epoch, -1 before any producer had it alone."""
        return self._epochs.get(str(topic), -1)

    async def set(self, topic: TopicName, epoch: int) -> None:
        """Begin an epoch, durably before it counts."""
        key = str(topic)
        if topic.persistent:
            await self._store.save_meta([(_KIND, key, b"%d" % epoch)])
        self._epochs[key] = epoch

    async def forget(self, topic: TopicName) -> None:
        """The topic is deleted."""
        if self._epochs.pop(str(topic), None) is not None and topic.persistent:
            await self._store.save_meta([(_KIND, str(topic), None)])


class Access:
    """The producers of one topic, and those that wait to have it alone."""

    def __init__(self, topic: TopicName, epochs: Epochs) -> None:
        self.producers: dict[str, Publisher] = {}  # by `producer_key`
        self._topic = topic
        self._epochs = epochs
        self.alone: Publisher | None = None
        self.waiting: deque[tuple[Publisher, asyncio.Future[None]]] = deque()

    @property
    def epoch(self) -> int:
        return self._epochs.of(self._topic)

    async def enter(self, producer: Publisher, queued: Callable[[], None] | None = None) -> None:
        """Let a producer in as its options say, waiting if they say so (`queued` is then called).

        Raises PRODUCER_BUSY, PRODUCER_FENCED, EXCLUSIVE_PRODUCER.
        """
        options = producer.options
        if options.stateless:
            self.check_shared()
            return
        self._check_name(producer)
        if options.access_mode is AccessMode.SHARED:
            self.check_shared()
            self.producers[producer_key(producer)] = producer
            return
        busy = bool(self.alone or self.producers)
        match options.access_mode:
            case AccessMode.EXCLUSIVE if busy or self.waiting:
                raise self._fenced("has an existing producer")
            case AccessMode.WAIT_FOR_EXCLUSIVE if busy or self.waiting:
                await self._wait(producer, queued)
                return
            case AccessMode.EXCLUSIVE_WITH_FENCING if busy or self.waiting:
                self._oust()
        await self._take(producer)

    def check_shared(self) -> None:
        """Raise EXCLUSIVE_PRODUCER while a producer has the topic alone, or waits to."""
        if self.alone is not None or self.waiting:
            raise PenstockError(
                ErrorKind.EXCLUSIVE_PRODUCER, f"Topic {self._topic} has an existing exclusive producer"
            )

    def _check_name(self, producer: Publisher) -> None:
        held = self.producers.get(producer_key(producer))
        if held is None:
            return
        if producer.options.returning:
            held.close(PenstockError(ErrorKind.PRODUCER_BUSY, "the producer came back on another connection"))
        elif producer.options.access_mode is AccessMode.SHARED:
            raise PenstockError(
                ErrorKind.PRODUCER_BUSY,
                f"Producer with name '{producer.name}' is already connected to topic {self._topic}",
            )

    async def _take(self, producer: Publisher) -> None:
        """Have the topic alone from now on, in a new epoch; or go on with the one it had."""
        had = producer.options.topic_epoch
        if had is not None and had < self.epoch:
            raise self._fenced(f"has moved on to epoch {self.epoch}")
        self.alone = producer
        self.producers[producer_key(producer)] = producer
        try:
            await self._epochs.set(self._topic, self.epoch + 1 if had is None else had)
        except BaseException:
            self.leave(producer)
            raise

    async def _wait(self, producer: Publisher, queued: Callable[[], None] | None) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((producer, turn))
        if queued is not None:
            queued()
        try:
            await turn
            await self._take(producer)
        except BaseException:
            self.leave(producer)
            raise

    def _oust(self) -> None:
        fenced = self._fenced("was taken by another producer")
        waiting, self.waiting = self.waiting, deque()
        for _, turn in waiting:
            if not turn.done():
                turn.set_exception(fenced)
        for producer in list(self.producers.values()):
            producer.close(fenced)

    def leave(self, producer: Publisher) -> None:
        """Let a producer go; the next that waits has its turn."""
        key = producer_key(producer)
        if self.producers.get(key) is producer:
            del self.producers[key]
        self.waiting = deque(pair for pair in self.waiting if pair[0] is not producer)
        if self.alone is producer:
            self.alone = None
        if self.alone is None and not self.producers and self.waiting:
            waiter, turn = self.waiting.popleft()
            self.alone = waiter  # no other producer comes between
            if not turn.done():
                turn.set_result(None)

    def _fenced(self, why: str) -> PenstockError:
        return PenstockError(ErrorKind.PRODUCER_FENCED, f"Topic {self._topic} {why}")
