"""Many consumers over WebSocket at the processes of one service, and the threads and connections that the processes have."""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, WebSocketException

from penstock.runtime.tasks import Tasks

NAMESPACE: Final = "persistent/public/default"
OPENED_AT_ONCE: Final = 32  # consumers
AGAIN_S: Final = 0.2  # until a consumer whose socket was closed connects to the next process

Seen = Callable[[int, str, str], None]


class SocketConsumers:
    """Consumers over WebSocket. One whose socket is closed connects to the next process."""

    def __init__(self, authorities: Callable[[], Sequence[str]], seen: Seen) -> None:
        """`authorities` are the processes (host:port) now. `seen` is called with the number of the consumer, the topic and the
        payload (base64) of each message."""
        self.connected = 0
        self.errors: list[str] = []
        self._authorities = authorities
        self._seen = seen
        self._tasks = Tasks()
        self._opening = asyncio.Semaphore(OPENED_AT_ONCE)

    async def open(self, topic: str, subscription: str, number: int) -> None:
        """Add a consumer; returns once it is subscribed."""
        opened = asyncio.Event()
        self._tasks.spawn(self._consume(topic, subscription, number, opened), "consume")
        await opened.wait()

    async def _consume(self, topic: str, subscription: str, number: int, opened: asyncio.Event) -> None:
        path = (
            f"/ws/v2/consumer/{NAMESPACE}/{topic}/{subscription}?subscriptionType=Shared&receiverQueueSize=10"
        )
        turn = number
        while True:
            authorities = self._authorities()
            authority = authorities[turn % len(authorities)]
            turn += 1
            try:
                async with self._opening:
                    socket = await connect(f"ws://{authority}{path}", compression=None, ping_interval=None)
            except (InvalidHandshake, OSError, TimeoutError) as error:
                self.errors.append(f"{type(error).__name__}: {error}")
                await asyncio.sleep(AGAIN_S)
                continue
            self.connected += 1
            opened.set()
            try:
                await self._read(socket, number, topic)
            finally:
                self.connected -= 1
            await asyncio.sleep(AGAIN_S)

    async def _read(self, socket: ClientConnection, number: int, topic: str) -> None:
        with suppress(WebSocketException):
            async for frame in socket:
                message = json.loads(frame)
                self._seen(number, topic, message["payload"])
                await socket.send(json.dumps({"messageId": message["messageId"]}))

    async def close(self) -> None:
        await self._tasks.close()


def threads(pids: Sequence[int]) -> int:
    """How many threads processes have."""
    return sum(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in pids)


def connections(pids: Sequence[int], port: int) -> int:
    """How many sockets of processes are connected to a port."""
    return sum(_connections(pid, port) for pid in pids)


def _connections(pid: int, port: int) -> int:
    """How many sockets of a process are connected to a port."""
    own = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            own.add(str(each.readlink()))
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(
        1
        for fields in lines
        if int(fields[2].rsplit(":", 1)[1], 16) == port and f"socket:[{fields[9]}]" in own
    )
