"""Threads for calls of librdkafka's that wait. A call may wait for a broker for as long as its socket does, a minute: no such thread
holds up the end of the process, as those of `ThreadPoolExecutor` and `asyncio.to_thread` do."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from threading import Lock, Semaphore, Thread
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

ASIDE_MAX: Final = 64


class DaemonThreads(Executor):
    """At most so many, made as they are needed."""

    def __init__(self, threads_max: int, name: str) -> None:
        self._threads_max = threads_max
        self._name = name
        self._wanted: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._idle = Semaphore(0)
        self._starting = Lock()
        self._threads = 0
        self._ended = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As `Executor.submit`; raises RuntimeError after `shutdown`."""
        if self._ended:
            raise RuntimeError("no more calls: the threads are ending")
        future: Future[T] = Future()
        self._wanted.put((future, partial(fn, *args, **kwargs)))
        if not self._idle.acquire(blocking=False):
            with self._starting:
                if self._threads < self._threads_max:
                    self._threads += 1
                    Thread(target=self._run, name=f"{self._name}-{self._threads}", daemon=True).start()
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """End the threads after their work, without waiting for it."""
        self._ended = True
        while cancel_futures and not self._wanted.empty():
            wanted = self._wanted.get()
            if wanted is not None:
                wanted[0].cancel()
        self._wanted.put(None)

    def _run(self) -> None:
        while True:
            wanted = self._wanted.get()
            if wanted is None:
                self._wanted.put(None)  # for the next one
                return
            future, work = wanted
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)
            del wanted, future, work  # what they refer to may go
            self._idle.release()


_ASIDE: Final = DaemonThreads(ASIDE_MAX, "kafka-aside")


def aside(work: Callable[[], Any]) -> None:
    """Run something in a thread without waiting, such as closing a client, which joins librdkafka's threads."""
    _ASIDE.submit(work)


def in_thread(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[T]":
    """As `asyncio.to_thread`."""
    return asyncio.get_running_loop().run_in_executor(_ASIDE, partial(work, *args, **kwargs))
