"""All reading of a process: one reader of the ends of logs that are followed, and a few readers for other positions."""

from typing import Final

from penstock.engines.shared.tail import TailCache
from penstock.runtime.tasks import Tasks

from .admin import KafkaAdmin
from .clients import Clients
from .positions import EndLookup, Ends
from .reader import READERS_MAX, Found, Readers
from .record import At
from .tail import Follower, TailReader
from .threads import DaemonThreads

THREADS_MAX: Final = READERS_MAX + 4  # for what waits; made as they are needed


class Fetcher:
    """Made on the loop; `tails` holds the newest entries of all logs that are followed."""

    def __init__(self, clients: Clients, admin: KafkaAdmin, tasks: Tasks, tail_bytes: int) -> None:
        self.tails = TailCache(tail_bytes)
        self.tasks = tasks
        self._admin = admin
        self._ends = EndLookup(admin, tasks)
        self._executor = DaemonThreads(THREADS_MAX, "kafka-read")
        self._tail = TailReader(clients)
        self._readers = Readers(clients, self._executor)

    # -- positions

    async def ends(self, place: At) -> Ends:
        """The present bounds of a log. Raises TOPIC_NOT_FOUND, UNAVAILABLE."""
        return await self._ends.ends(place)

    async def last_end(self, place: At) -> int:
        """The offset after the last record of a log, whether it is committed or not. Raises as `ends`."""
        return (await self._admin.last_ends((place,)))[place]

    async def at_time(self, place: At, time_ms: int) -> int:
        """The offset of the first record of a time (ms) or after it; -1 if there is none."""
        return (await self._admin.at_time((place,), time_ms))[place]

    async def topic_id(self, topic: str) -> str | None:
        """The id of a topic; None for an unknown name."""
        found = await self._admin.describe(topic)
        return None if found is None else found.id

    # -- records

    @property
    def busy(self) -> bool:
        """Whether a read may have to wait for others."""
        return self._readers.busy

    async def follow(self, place: At, offset: int, follower: Follower) -> None:
        """Deliver what comes to a log from an offset on, until `leave`."""
        await self._tail.follow(place, offset, follower)

    async def leave(self, place: At) -> None:
        """Follow a log no more; harmless when repeated."""
        await self._tail.leave(place)

    async def read(self, place: At, offset: int, entries_max: int, bytes_max: int, until: int) -> Found:
        """Records from `offset` on, at least one, within both bounds, up to the first gap; empty at the end of the log, which is at
        `until` or later. Raises OutOfRange, UNAVAILABLE, TOPIC_NOT_FOUND and what the cluster refuses."""
        return await self._readers.read(place, offset, entries_max, bytes_max, until)

    async def close(self) -> None:
        """End every thread."""
        self._readers.close()
        await self._tail.close()
        self._executor.shutdown(wait=False)
