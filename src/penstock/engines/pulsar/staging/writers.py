"""The writers of staged batches: whose they are, and the logs of those that this process has."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from random import Random
from typing import Final, TypeVar

from penstock.broker.staging import Caller
from penstock.client.entries.transactions import Transactions
from penstock.client.errors import ProducerFenced, PulsarException
from penstock.engines.attached.errors import engine_error
from penstock.engines.shared.writers import Claimed
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.stage import Writer
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Locks

from .log import WriterLog, read_log
from .records import Opened, WriterState
from .space import StagingSpace

T = TypeVar("T")

IDLE_MS: Final = 60_000  # then a log is left
TRUSTED_MS: Final = 60_000  # how long it is known whose a writer is
KNOWN_MAX: Final = 10_000
PAUSE_S: Final = 0.3
ATTEMPTS: Final = 3  # at what another process, or a lost connection, gets in the way of


class Writers:
    """A change to a writer holds its lock."""

    def __init__(self, space: StagingSpace, transactions: Transactions, clock: Clock) -> None:
        self._space = space
        self._transactions = transactions
        self._clock = clock
        self._random = Random()
        self._locks: Locks[str] = Locks()
        self._logs: dict[str, WriterLog] = {}
        self._busy: set[str] = set()
        self._known: OrderedDict[str, tuple[int, Writer]] = OrderedDict()

    def hold(self, writer: str) -> AbstractAsyncContextManager[None]:
        """Have a writer for a while; not to be asked for again meanwhile."""
        return self._locks.hold(writer)

    async def on_log(self, writer: str, work: Callable[[WriterLog], Awaitable[T]]) -> T:
        """Do something with the log of a writer, for one who holds the lock. Where a connection breaks, or another process
        takes the log, it is opened and done again."""
        self._busy.add(writer)
        try:
            for left in reversed(range(ATTEMPTS)):
                try:
                    return await work(await self._open(writer))
                except PulsarException as error:
                    await self.leave(writer)
                    if not left:
                        raise _refusal(writer, error) from None
                    # Lest two processes that want the same writer go on in step.
                    await asyncio.sleep(self._random.uniform(0, PAUSE_S))
            raise AssertionError("the last attempt returns or raises")
        finally:
            self._busy.discard(writer)

    async def _open(self, writer: str) -> WriterLog:
        log = self._logs.get(writer)
        if log is not None and not log.ended:
            # Nobody tells a process that it was fenced off. What is appended shows that it has the log still.
            await log.append(Opened())
        else:
            await self.leave(writer)
            log = WriterLog(self._space, writer, self._transactions, self._clock)
            try:
                await log.open()
            except BaseException:
                await log.close()
                raise
            self._logs[writer] = log
        log.used_ms = self._clock.monotonic_ms()
        return log

    async def leave(self, writer: str) -> None:
        """Let other processes have a writer."""
        log = self._logs.pop(writer, None)
        if log is not None:
            await log.close()

    def forgotten(self, writer: str) -> None:
        """A writer is there no more."""
        self._known.pop(writer, None)

    # -- whose it is

    async def state(self, writer: str) -> WriterState | None:
        """A writer as its log shows it, None where there is none."""
        return await read_log(self._space, writer)

    async def check(self, writer: str, caller: Caller) -> None:
        """Raise FORBIDDEN for another role's writer."""
        state = await self.state(writer)
        if state is not None:
            caller.check(state.writer)

    async def claim(self, writer: str, caller: Caller) -> None:
        """Make sure that a writer is the caller's, durably. Raises FORBIDDEN for another role's."""
        at, known = self._known.get(writer, (0, None))
        now = self._clock.monotonic_ms()
        if known is None or now - at >= TRUSTED_MS or _takes(known, caller):
            async with self.hold(writer):
                state = await self.state(writer)
                if state is None or state.claimed is None or _takes(state.writer, caller):
                    state = await self.on_log(writer, lambda log: self.claim_held(log, caller))
            known = state.writer
            self._known[writer] = now, known
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
        caller.check(known)

    async def claim_held(self, log: WriterLog, caller: Caller) -> WriterState:
        """The same on the writer's log."""
        caller.check(log.state.writer)
        if log.state.claimed is None or _takes(log.state.writer, caller):
            await log.append(Claimed(caller.role, caller.origin, self._clock.now_ms()))
        return log.state

    # -- the end

    async def sweep(self) -> None:
        """Leave logs that are not in use."""
        before = self._clock.monotonic_ms() - IDLE_MS
        for writer, log in list(self._logs.items()):
            if writer not in self._busy and (log.ended or log.used_ms < before):
                await self.leave(writer)

    async def close(self) -> None:
        """Leave all logs."""
        await asyncio.gather(*map(self.leave, list(self._logs)))


def _takes(writer: Writer, caller: Caller) -> bool:
    """Whether a writer that belongs to nobody becomes the caller's."""
    return bool(caller.role) and not writer.owner


def _refusal(writer: str, error: PulsarException) -> PenstockError:
    """Why nothing could be done with a log. To try again later is what helps where others are at it."""
    if isinstance(error, ProducerFenced):
        return PenstockError(
            ErrorKind.UNAVAILABLE, f"other processes work for writer {writer} at the same time"
        )
    refusal = engine_error(error)
    if refusal.kind is ErrorKind.INTERNAL:  # what coordinators say
        return PenstockError(ErrorKind.UNAVAILABLE, f"the transaction failed: {refusal.message}")
    return refusal
