"""Keeps a query running within this process: started again where a new plan, or patience, is all that it needs."""

import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from . import progress
from .backoff import Backoff
from .causes import Cause, ErrorClass, cause_of
from .folder import Owner
from .runner import Failed

# Not what is unknown: nothing here could start Spark again, and the user of a notebook wants to see it.
_AGAIN: Final = (ErrorClass.NEW_SCHEMA, ErrorClass.BROKER)


class Attempt(Protocol):
    """What a Runner is to its keeper."""

    def start(self, owner: Owner | None, *, once: bool) -> str: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...

    def wait(self, timeout_s: float | None = None) -> bool: ...


class Restarts:
    """One attempt after the other. `attempt` makes one; `owner` tells whose the checkpoint is."""

    def __init__(
        self,
        attempt: Callable[[], Attempt],
        owner: Callable[[], Owner | None],
        report: Callable[[dict[str, Any]], None],
        backoff: Backoff,
        *,
        once: bool,
    ) -> None:
        self._attempt = attempt
        self._owner = owner
        self._report = report
        self._backoff = backoff
        self._once = once
        self._stopping = threading.Event()
        self._now: Attempt | None = None
        self._began = 0.0

    def start(self) -> str:
        """Plan and start; returns the query's id. Raises whatever is wrong."""
        self._began = time.monotonic()
        attempt = self._attempt()
        query = attempt.start(self._owner(), once=self._once)
        self._now = attempt
        if self._stopping.is_set():
            attempt.stop()
        return query

    def keep(self) -> Cause | None:
        """Until the end: why it failed, or None where it was stopped or is through."""
        while True:
            cause = self._waited()
            while cause is not None:
                if cause.kind not in _AGAIN:
                    return cause
                if self._paused(cause):
                    return None
                cause = self._started()
            if self._now is None:
                return None

    def stop(self) -> None:
        """After the batch that runs now; at once where none does."""
        self._stopping.set()
        if self._now is not None:
            self._now.stop()

    def kill(self) -> None:
        """Now."""
        self._stopping.set()
        if self._now is not None:
            self._now.kill()

    def _waited(self) -> Cause | None:
        attempt, failed = self._now, None
        assert attempt is not None
        try:
            attempt.wait()
        except Failed as error:
            failed = error.cause
        self._now = None
        return failed

    def _started(self) -> Cause | None:
        try:
            query = self.start()
        except Exception as error:
            return cause_of(error)
        self._report(progress.state_event(progress.RUNNING, query=query))
        return None

    def _paused(self, cause: Cause) -> bool:
        """Say why, and wait; True where an order to stop came."""
        told = {"error": cause.sentence, "error_class": cause.kind.value}
        self._report(progress.state_event(progress.RESTARTING) | told)
        if cause.kind is ErrorClass.NEW_SCHEMA:
            return self._stopping.is_set()
        return self._stopping.wait(self._backoff.next_s(time.monotonic() - self._began))
