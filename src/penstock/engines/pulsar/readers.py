"""The readers of one log: kept for a while, as the next read mostly continues an earlier one."""

import asyncio
import secrets
from collections import deque
from typing import Final

from penstock.client.aio.context import Context
from penstock.client.entries.arrived import Arrived
from penstock.client.entries.consumer import EntryConsumer
from penstock.client.enums import ConsumerType
from penstock.client.errors import AlreadyClosed, PulsarException
from penstock.client.session.commands import Subscription
from penstock.engines.attached.errors import own_error
from penstock.engines.attached.positions import entry_of
from penstock.model.entry import Entry
from penstock.model.message_id import LATEST, MessageId
from penstock.model.names import TopicName
from penstock.runtime.clock import Clock

from .cluster import PulsarCluster

# Messages are permitted, and their sizes are not known before: few at first, and then as many as fit.
FIRST_PERMITS: Final = 16
PERMITS_MAX: Final = 1000
AHEAD_BYTES: Final = 1 << 20  # what may be on its way or wait here, about
READERS_MAX: Final = 8  # that wait for the next read, of one log
IDLE_MS: Final = 10_000  # then a reader leaves
QUIET_S: Final = 10.0  # without an entry, though there should be one: then what came is all


class Reader:
    """Entries of one log from a position on; for one read at a time. It is the sink of its consumer."""

    def __init__(
        self,
        context: Context,
        name: TopicName,
        start: MessageId,
        *,
        inclusive: bool,
        numbered: bool,
        position: int = -1,
    ) -> None:
        """`position`: the position of `start`, if known."""
        self.idle_since_ms = 0
        self._position = position
        self.last: Entry | None = None  # that was taken last
        self.end_reached_once = False
        self._numbered = numbered
        self._entries: deque[Entry] = deque()
        self._bytes = 0
        self._messages = 0  # in these entries
        self._mean = 0.0  # bytes of a message
        self._permits = False
        self._arrived = asyncio.Event()
        self._error: PulsarException | None = None
        how = Subscription(
            topic=str(name),
            name=f"penstock-read-{secrets.token_hex(8)}",
            consumer_name="penstock",
            type=ConsumerType.Exclusive,
            durable=False,
            create_topic=False,
        )
        self._consumer = EntryConsumer(context, how, start, sink=self, inclusive=inclusive)

    async def open(self, *, permit: bool = True, one: bool = False) -> None:
        """Connect, and let entries come (`one`: the first only); raises the error that prevents it."""
        try:
            await self._consumer.start()
        except PulsarException as error:
            raise own_error(error) from None
        self._permits = permit and not one
        if one:
            self._consumer.flow(1)
        self._permit()

    async def last_message_id(self) -> MessageId:
        """The id of the topic's last message."""
        try:
            last, _ = await self._consumer.last_message_id()
        except PulsarException as error:
            raise own_error(error) from None
        return last

    async def close(self) -> None:
        """Leave the topic."""
        try:
            await self._consumer.close()
        except PulsarException:
            pass  # the broker notices

    @property
    def closed(self) -> bool:
        return self._error is not None

    @property
    def connected(self) -> bool:
        """Whether the broker can be asked now."""
        return self._error is None and self._consumer.connected

    def covers(self, position: int) -> bool:
        """Whether the next entry is the one that holds `position`, or follows it."""
        last = self.last
        if last is None:
            return position == self._position
        return last.offset <= position <= last.end

    def peek(self) -> Entry | None:
        """The next entry, if it is there."""
        return self._entries[0] if self._entries else None

    @property
    def next_data(self) -> bytes:
        """Of the next entry; empty without one."""
        return self._entries[0].data if self._entries else b""

    def take(self) -> Entry | None:
        """Take the next entry, if it is there; makes room for another."""
        if not self._entries:
            return None
        entry = self._entries.popleft()
        self._bytes -= len(entry.data)
        self._messages -= entry.count
        self.last = entry
        self._permit()
        return entry

    async def wait(self, timeout_s: float) -> bool:
        """Wait until there is an entry, or none can come any more; False after the timeout. Raises why it ended."""
        if self._entries:
            return True
        self._raise()
        self._arrived.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._arrived.wait()
        except TimeoutError:
            return False
        if not self._entries:
            self._raise()
        return bool(self._entries)

    def _raise(self) -> None:
        if self._error is not None:
            raise own_error(self._error)

    def _permit(self) -> None:
        """Let so much come that about AHEAD_BYTES are on their way or here."""
        if not self._permits:
            return
        room = AHEAD_BYTES - self._bytes
        most = FIRST_PERMITS if not self._mean else max(1, min(PERMITS_MAX, int(room / self._mean)))
        if self._bytes >= AHEAD_BYTES or self._messages >= PERMITS_MAX:
            return
        # Below zero if batches overdrew them: the broker sends nothing before that is paid back.
        missing = most - self._consumer.permits
        if missing > most // 2:
            self._consumer.flow(missing)

    # -- the consumer's side

    def arrived(self, entries: list[Arrived]) -> None:
        for one in entries:
            entry = entry_of(one, numbered=self._numbered)
            self._entries.append(entry)
            self._messages += entry.count
            size = len(entry.data)
            self._bytes += size
            mean = size / entry.count
            self._mean = mean if not self._mean else 0.75 * self._mean + 0.25 * mean
        self._arrived.set()

    def reset(self) -> None:
        pass  # one that is not durable goes on by itself

    def active(self, active: bool) -> None:
        pass  # it has the subscription alone

    def end_reached(self) -> None:
        self.end_reached_once = True
        self._arrived.set()

    def ended(self, error: PulsarException) -> None:
        if not isinstance(error, AlreadyClosed):
            self._error = error
        self._arrived.set()


class Readers:
    """Each reads for one caller at a time: it is taken, and kept again afterwards or closed."""

    def __init__(self, name: TopicName, cluster: PulsarCluster, clock: Clock) -> None:
        self._name = name
        self._cluster = cluster
        self._clock = clock
        self._idle: list[Reader] = []
        self._asking: Reader | None = None  # gets nothing: it asks for the last message

    def take(self, position: int) -> Reader | None:
        """A reader whose next entries hold `position`, or follow it; or None."""
        for reader in self._idle:
            if reader.covers(position):
                self._idle.remove(reader)
                return None if reader.closed else reader
        return None

    async def open(self, start: MessageId, *, inclusive: bool, position: int) -> Reader:
        """A new reader; raises the error that prevents it."""
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
        """The first entry from an id on; None if there is none."""
        reader = self._reader(start, inclusive=True)
        await reader.open(one=True)
        try:
            return reader.take() if await reader.wait(QUIET_S) else None
        finally:
            self._close(reader)

    async def last_message_id(self) -> MessageId:
        """The id of the log's last message; its entry is below 0 if there is none."""
        # a new one waits until the broker can be reached
        if self._asking is None or not self._asking.connected:
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
