"""Messages that came and were not taken yet, and who waits for them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque

from penstock.client.errors import Timeout
from penstock.client.message import Message


class Arrivals:
    """A queue. A wake-up carries no message, so that no caller's end can lose one.

    The blocking driver takes messages in other threads; all else happens in the loop's.
    """

    def __init__(self) -> None:
        self._queue: deque[Message] = deque()
        self._lock = threading.Lock()
        self._wakers: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(not waker.done() for waker in self._wakers)

    def put(self, messages: list[Message]) -> None:
        """Messages came."""
        self._queue += messages
        self.wake(len(messages))

    def take(self) -> Message | None:
        """The first message, None where there is none."""
        with self._lock:
            return self._queue.popleft() if self._queue else None

    def drop(self, topic: str) -> int:
        """Forget a topic's messages; returns how many they were."""
        with self._lock:
            kept = [message for message in self._queue if message._topic != topic]
            dropped = len(self._queue) - len(kept)
            self._queue.clear()
            self._queue += kept
        return dropped

    def clear(self) -> None:
        """Forget all."""
        self._queue.clear()

    async def wait(self, timeout_s: float | None) -> None:
        """Until there may be a message, or none will come. Raises Timeout."""
        waker = asyncio.get_running_loop().create_future()
        self._wakers.append(waker)
        try:
            async with asyncio.timeout(timeout_s):
                await waker
        except TimeoutError:
            raise Timeout("no message in time") from None
        finally:
            if waker in self._wakers:
                self._wakers.remove(waker)
            elif self._queue:
                self.wake(1)  # the one that was woken may have given up: another looks

    def wake(self, count: int | None = None) -> None:
        """Let so many look, None: all of them."""
        while self._wakers and (count is None or count > 0):
            waker = self._wakers.popleft()
            if not waker.done():
                waker.set_result(None)
                count = None if count is None else count - 1
