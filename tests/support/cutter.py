"""A way between a client and a broker that a test cuts, or holds, in the middle of whatever is on it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.client.aio.link import Link, Pool
from penstock.client.session.connection import Address

from .waiting import until_async


class End(asyncio.Protocol):
    """One end of a connection; what it hears goes to the other."""

    def __init__(self, cutter: "Cutter", other: "End | None" = None) -> None:
        self.cutter = cutter
        self.other = other
        self.transport: asyncio.Transport | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.cutter.ends.add(self)
        if self.other is None:  # the client's end: go to the server
            loop = asyncio.get_running_loop()
            self.cutter.tasks.append(
                loop.create_task(loop.create_connection(self.twin, "127.0.0.1", self.cutter.target))
            )
        else:
            self.other.other = self
            for data in self.other._early:
                transport.write(data)

    def twin(self) -> "End":
        return End(self.cutter, self)

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self._early.append(data)
        elif self.is_server:
            if self.cutter.hold_answers:
                self.cutter.lost_answers += len(data)
            else:
                self.other.transport.write(data[: self.cutter.left(len(data))])
                if self.cutter.cut_after == 0:
                    self.cutter.cut_after = None
                    self.cutter.cut(at_once=False)
        elif self.cutter.hold_requests:
            self.cutter.held.append((self.other, data))
        else:
            self.other.transport.write(data)

    @property
    def is_server(self) -> bool:
        assert self.transport is not None
        return bool(self.transport.get_extra_info("peername")[1] == self.cutter.target)

    def connection_lost(self, error: Exception | None) -> None:
        self.cutter.ends.discard(self)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class Cutter:
    """A way to the server that can be cut. With `hold_answers` nothing comes back, with `hold_requests` nothing goes there
    until `release`. After `cut_after` further bytes of the answers it cuts itself."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.ends: set[End] = set()
        self.tasks: list[asyncio.Task[object]] = []
        self.hold_answers = False
        self.lost_answers = 0  # bytes
        self.cut_after: int | None = None
        self.hold_requests = False
        self.held: list[tuple[End, bytes]] = []

    def release(self) -> None:
        """Let the requests that were held go on."""
        self.hold_requests = False
        held, self.held = self.held, []
        for end, data in held:
            if end.transport is not None and not end.transport.is_closing():
                end.transport.write(data)

    def left(self, size: int) -> int:
        """How many of so many bytes of an answer go through."""
        if self.cut_after is None:
            return size
        passed = min(self.cut_after, size)
        self.cut_after -= passed
        return passed

    def cut(self, *, at_once: bool = True) -> None:
        """End every connection; what was written still goes through unless `at_once`."""
        for end in list(self.ends):
            assert end.transport is not None
            end.transport.abort() if at_once else end.transport.close()

    async def gone(self) -> None:
        self.cut()
        await asyncio.gather(*self.tasks, return_exceptions=True)

        def gone() -> bool:
            self.cut()  # the other ends of those that were cut, and new ones
            return not self.ends

        await until_async(gone)


@asynccontextmanager
async def cutter_before(target: int, pool: Pool) -> AsyncIterator[Cutter]:
    """Let the connections of a client's pool go through a cutter before the broker at the port `target`."""
    cutter = Cutter(target)
    there = await asyncio.get_running_loop().create_server(lambda: End(cutter), "127.0.0.1", 0)
    port = there.sockets[0].getsockname()[1]
    connect = pool.link

    async def through_here(address: Address, proxy_to: str | None = None) -> Link:
        return await connect(address._replace(port=port), proxy_to)

    pool.link = through_here  # type: ignore[method-assign]
    try:
        yield cutter
    finally:
        there.close()
        await there.wait_closed()
        await cutter.gone()
