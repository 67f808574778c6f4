"""The readers of one log: kept for a while, as the next read mostly goes on where one ended."""

from typing import Final

from penstock.model.entry import Entry
from penstock.model.message_id import LATEST, MessageId
from penstock.model.names import TopicName
from penstock.runtime.clock import Clock

from .cluster import PulsarCluster
from .reader import Reader

READERS_MAX: Final = 8  # that wait for the next read, of one log
IDLE_MS: Final = 10_000  # then a reader leaves
QUIET_S: Final = 10.0  # without an entry, though there should be one: then what came is all


class Readers:
    """Each reads for one caller at a time: it is taken, and kept again afterwards or closed."""

    def __init__(self, name: TopicName, cluster: PulsarCluster, clock: Clock) -> None:
        self._name = name
        self._cluster = cluster
        self._clock = clock
        self._idle: list[Reader] = []
        self._asking: Reader | None = None  # gets nothing: it asks for the last message

    def take(self, position: int) -> Reader | None:
        """A reader whose next entries hold `position`, or follow it; None: there is none."""
        for reader in self._idle:
            if reader.covers(position):
                self._idle.remove(reader)
                return None if reader.closed else reader
        return None

    async def open(self, start: MessageId, *, inclusive: bool, position: int) -> Reader:
        """A new reader; raises what stands in the way."""
        reader = self._reader(start, inclusive=inclusive, position=position)
        await reader.open()
        return reader

    def keep(self, reader: Reader) -> None:
        """A read is done with its reader."""
        reader.idle_since_ms = self._clock.monotonic_ms()
        self._idle.append(reader)
        if len(self._idle) > READERS_MAX:
            self._close(self._idle.pop(0))

    async def first_from(self, start: MessageId) -> Entry | None:
        """The first entry from an id on; None where there is none."""
        reader = self._reader(start, inclusive=True)
        await reader.open(one=True)
        try:
            return reader.take() if await reader.wait(QUIET_S) else None
        finally:
            self._close(reader)

    async def last_message_id(self) -> MessageId:
        """The id of the log's last message; its entry is below 0 where there is none."""
        if (
            self._asking is None or not self._asking.connected
        ):  # a new one waits until the broker can be reached
            asking = self._reader(LATEST, inclusive=False)
            await asking.open(permit=False)
            if self._asking is not None:
                self._close(self._asking)
            self._asking = asking
        self._asking.idle_since_ms = self._clock.monotonic_ms()
        return await self._asking.last_message_id()

    def sweep(self) -> None:
        """Let those leave that were not used for some time."""
        before = self._clock.monotonic_ms() - IDLE_MS
        for reader in [one for one in self._idle if one.idle_since_ms < before or one.closed]:
            self._idle.remove(reader)
            self._close(reader)
        asking = self._asking
        if asking is not None and asking.idle_since_ms < before:
            self._asking = None
            self._close(asking)

    def end(self) -> None:
        """Let all leave."""
        readers, self._idle = self._idle, []
        if self._asking is not None:
            readers.append(self._asking)
            self._asking = None
        for reader in readers:
            self._close(reader)

    def _reader(self, start: MessageId, *, inclusive: bool, position: int = -1) -> Reader:
        return Reader(
            self._cluster.context,
            self._name,
            start,
            inclusive=inclusive,
            numbered=self._cluster.numbered,
            position=position,
        )

    def _close(self, reader: Reader) -> None:
        self._cluster.context.tasks.spawn(reader.close(), f"close a reader of {self._name}")
