"""The thread in which a blocking client's loop runs.

The selector and the event loop are subclasses of asyncio's because a `send` by way of plain asyncio takes up to 1.6
times as long, and a `send_async` 2 times (docs/decisions/0045-blocking-client-event-loop.md).
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from penstock.client.aio.tasks import log
from penstock.client.errors import AlreadyClosed, OperationNotSupported

T = TypeVar("T")

ENTER_S: Final = 0.0005  # a busy loop is better left to itself


class LoopThread:
    """A loop that other threads give work to.

    `call` runs a coroutine and waits for it. `post` leaves work behind and goes on: however much is posted, the
    loop is woken once for all of it. `enter` stops the loop while it has nothing to do, so that a caller may do
    in its own thread what else the loop would do; that saves two changes of threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # its holder may use what belongs to the loop
        self._selector = _Selector(self._lock)
        self._loop = _Loop(self._selector)
        self._posted: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._awake = False
        self._closed = False
        self._entered = 0  # the thread that has entered, 0: none
        self._thread = threading.Thread(target=self._run, name="penstock-client", daemon=True)
        self._thread.start()

    def enter(self) -> bool:
        """Stop the loop, unless it is busy; to be ended soon by `leave`."""
        if self._posted or self._closed or self._selector.waiting or not self._lock.acquire(timeout=ENTER_S):
            return False
        self._entered = threading.get_ident()
        self._loop.touched = False
        return True

    def leave(self) -> None:
        """Let the loop go on."""
        touched = self._loop.touched
        self._entered = 0
        self._lock.release()
        if touched:
            self._loop.call_soon_threadsafe(_nothing)  # to see what it has to do now

    @property
    def posted(self) -> int:
        """How much was posted and not done yet."""
        return len(self._posted)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine; returns what it returns and raises what it raises."""
        if self._closed:
            work.close()
            raise AlreadyClosed("the client is closed")
        try:
            self.check()
        except OperationNotSupported:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # only if the wait itself was interrupted
            raise

    def check(self) -> None:
        """Raise OperationNotSupported if a wait would never end."""
        if threading.get_ident() in (self._thread.ident, self._entered):
            raise OperationNotSupported("a callback of the client must not wait for the client")

    def post(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Call a function on the loop, after those posted before."""
        self._posted.append((work, arguments))
        if not self._awake:
            self._awake = True
            try:
                self._loop.call_soon_threadsafe(self._run_posted)
            except RuntimeError:
                raise AlreadyClosed("the client is closed") from None

    def stop(self) -> None:
        """End the thread."""
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run_posted(self) -> None:
        self._awake = False  # first: later posts wake the loop again
        posted = self._posted
        while posted:
            work, arguments = posted.popleft()
            try:
                work(*arguments)
            except Exception:
                log.exception("%s failed", work)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        with self._lock:
            try:
                self._loop.run_forever()
            finally:
                self._loop.close()


class _Selector(selectors.DefaultSelector):
    """Releases the lock while the loop waits."""

    def __init__(self, lock: threading.Lock) -> None:
        super().__init__()
        self._lock = lock
        self.waiting = False  # locks are not fair: `enter` looks at this first

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._lock.release()
        try:
            events = super().select(timeout)
        finally:
            self.waiting = True
            self._lock.acquire()
            self.waiting = False
        # A thread that entered may have changed the awaited events; those still due are reported again.
        return [(key, mask) for key, mask in events if self._is_current(key)]

    def _is_current(self, key: selectors.SelectorKey) -> bool:
        found = self.get_map().get(key.fileobj)
        return found is not None and found.data is key.data


class _Loop(asyncio.SelectorEventLoop):
    """Notices when it is given something to do."""

    touched = False

    def call_soon(self, *arguments: Any, **options: Any) -> asyncio.Handle:  # type: ignore[override]
        self.touched = True
        return super().call_soon(*arguments, **options)

    def call_at(self, *arguments: Any, **options: Any) -> asyncio.TimerHandle:  # type: ignore[override]
        self.touched = True
        return super().call_at(*arguments, **options)


def _nothing() -> None:
    pass
