"""The readers of a process: few, kept for a while, as the next read mostly goes on where one ended."""

import asyncio
from concurrent.futures import Executor
from time import monotonic
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError

from .clients import Clients
from .reader import QUIET_S, Found, Reader
from .record import At

READERS_MAX: Final = 16  # each has connections and a thread or two of librdkafka's, which sleep
BUSY: Final = 4  # reads at the same time: each costs the brokers several requests
IDLE_S: Final = 10.0  # then a reader leaves
AT_END_S: Final = 0.25  # a reader at the end of a log asks the broker again and again: then it rests


class Readers:
    """Each reads for one caller at a time: it is taken, and kept again afterwards or closed."""

    def __init__(self, clients: Clients, executor: Executor) -> None:
        self._clients = clients
        clients.on_renewal.append(self._renew)
        self._executor = executor
        self._turns = asyncio.Semaphore(READERS_MAX)
        self._idle: list[Reader] = []  # that was used last is last
        self._count = 0
        self._sweeping: asyncio.TimerHandle | None = None
        self._sweeps_s = 0.0
        self._closed = False

    @property
    def busy(self) -> bool:
        """Whether BUSY reads or more are under way."""
        return self._count - len(self._idle) >= BUSY

    async def read(self, place: At, offset: int, entries_max: int, bytes_max: int, until: int) -> Found:
        """As `Reader.read`, from `offset` on."""
        try:
            async with asyncio.timeout(QUIET_S):
                await self._turns.acquire()
        except TimeoutError:
            raise PenstockError(ErrorKind.UNAVAILABLE, "too many reads wait for the cluster") from None
        try:
            reader = self._take(place, offset)
            try:
                if not reader.covers(place, offset):
                    await reader.move(place, offset)
                found = await reader.read(entries_max, bytes_max, until)
            except BaseException:
                self._close(reader)
                raise
            at_end = not found.records or found.records[-1].offset() + 1 >= until
            self._keep(reader, rests=at_end)
            return found
        finally:
            self._turns.release()

    def _take(self, place: At, offset: int) -> Reader:
        """The reader that goes on there, else one that rests, else a new one, else the one that was not used for longest."""
        if self._closed:
            raise PenstockError(ErrorKind.UNAVAILABLE, "the server is shutting down")
        resting: int | None = None
        for at, reader in enumerate(self._idle):
            if reader.covers(place, offset):
                return self._idle.pop(at)
            if reader.place is None:
                resting = at
        if resting is not None:
            return self._idle.pop(resting)
        if self._count < READERS_MAX:
            self._count += 1
            return Reader(self._clients, self._executor)
        return self._idle.pop(0)

    def _keep(self, reader: Reader, *, rests: bool) -> None:
        if self._closed or reader.credentials.outdated:
            self._close(reader)
            return
        reader.rests_s = monotonic() + (AT_END_S if rests else IDLE_S)
        reader.leaves_s = monotonic() + IDLE_S
        self._idle.append(reader)
        self._sweep_at(reader.rests_s)

    def _sweep_at(self, due_s: float) -> None:
        if self._sweeping is None or due_s < self._sweeps_s:
            if self._sweeping is not None:
                self._sweeping.cancel()
            self._sweeps_s = due_s
            delay = max(0.0, due_s - monotonic())
            self._sweeping = asyncio.get_running_loop().call_later(delay, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        now = monotonic()
        for reader in [one for one in self._idle if one.leaves_s <= now]:
            self._idle.remove(reader)
            self._close(reader)
        for reader in self._idle:
            if reader.place is not None and reader.rests_s <= now:
                reader.rest()
        if self._idle:
            self._sweep_at(min(one.leaves_s if one.place is None else one.rests_s for one in self._idle))

    def _renew(self) -> None:
        """Close idle readers, whose credentials are old; those in use are closed after their read."""
        while self._idle:
            self._close(self._idle.pop())

    def _close(self, reader: Reader) -> None:
        self._count -= 1
        reader.close()

    def close(self) -> None:
        """Let all leave."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        while self._idle:
            self._close(self._idle.pop())
