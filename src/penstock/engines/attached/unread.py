"""Entries that wait until their schemas are known, so that delivered entries can be decoded at once.

A schema that cannot be fetched holds up its topic for a bounded time. Then its entries are delivered without it: endpoints
that decode return an error in the slots of its messages, all others return the bytes. Fetching is retried until it succeeds.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from penstock.client.entries.arrived import Arrived
from penstock.model.errors import PenstockError
from penstock.model.names import TopicName
from penstock.runtime.clock import Clock, Timer
from penstock.runtime.failures import FailureKind, Failures
from penstock.runtime.tasks import Tasks

LEARN_AGAIN_MS: Final = 500  # after a schema could not be fetched
WAIT_MS: Final = 30_000  # for a schema; then its entries are delivered without it
SKIPPED_RETRY_MS: Final = 30_000  # between attempts to fetch such a schema
SKIPPED_MAX: Final = 100  # such schemas of one topic; beyond it entries wait for the oldest again


class ArrivingSchemas(Protocol):
    """The schemas that entries name, as far as they are known."""

    def knows(self, topic: TopicName, version: int) -> bool:
        """Whether a version was fetched, or is known not to be there."""

    async def fetch(self, topic: TopicName, version: int) -> None:
        """Fetch a version from the cluster; raises while it cannot be asked."""


class Unread:
    """The entries of one topic or partition, in order. `arrived` gets those that can be delivered."""

    def __init__(
        self,
        name: TopicName,
        schemas: ArrivingSchemas,
        clock: Clock,
        tasks: Tasks,
        failures: Failures,
        arrived: Callable[[list[Arrived]], None],
    ) -> None:
        self._name = name.base
        self._schemas = schemas
        self._clock = clock
        self._tasks = tasks
        self._failures = failures
        self._arrived = arrived
        self._entries: deque[Arrived] = deque()
        self._learning = False
        self._since_ms: dict[int, int] = {}  # when the first attempt failed, by version
        self._skipped: dict[int, None] = {}  # versions that entries no longer wait for
        self._timer: Timer | None = None
        self._closed = False

    @property
    def messages(self) -> int:
        """How many messages wait."""
        return sum(one.mask.bit_count() for one in self._entries) if self._entries else 0

    def sift(self, entries: list[Arrived]) -> list[Arrived]:
        """The entries that can be delivered now. The first that cannot waits, with all after it."""
        if self._entries:
            self._entries += entries
            return []
        name, schemas = self._name, self._schemas
        for at, one in enumerate(entries):
            version = one.schema_version
            if version is not None and version not in self._skipped and not schemas.knows(name, version):
                self._entries += entries[at:]
                self._learn(version)
                return entries[:at]
        return entries

    def clear(self) -> None:
        """Drop all of them."""
        self._entries.clear()

    def close(self) -> None:
        """Stop: the consumer is closing."""
        self.clear()
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for version in self._since_ms:
            self._failures.dropped(FailureKind.SCHEMA, self._subject(version))

    def _subject(self, version: int) -> str:
        return f"{self._name} schema version {version}"

    def _learn(self, version: int) -> None:
        if not self._learning:
            self._learning = True
            self._tasks.spawn(self._fetch(version), f"fetch a schema of {self._name}")

    async def _fetch(self, version: int) -> None:
        if not await self._ask(version) and not self._closed:
            if self._clock.monotonic_ms() - self._since_ms[version] < WAIT_MS:
                self._clock.call_later(LEARN_AGAIN_MS, self._learned)
                return
            self._skip(version)
        self._learned()

    async def _ask(self, version: int) -> bool:
        """Fetch a schema; returns whether it is now known, or known not to exist."""
        try:
            await self._schemas.fetch(self._name, version)
        except Exception as error:  # any error: waiting entries must not wait for ever
            if not self._closed:
                self._since_ms.setdefault(version, self._clock.monotonic_ms())
                message = error.message if isinstance(error, PenstockError) else repr(error)
                self._failures.failed(FailureKind.SCHEMA, self._subject(version), message)
            return False
        if self._since_ms.pop(version, None) is not None:
            self._failures.recovered(FailureKind.SCHEMA, self._subject(version))
        return True

    def _skip(self, version: int) -> None:
        """Deliver entries of a version without it, and retry fetching it from time to time."""
        if len(self._skipped) >= SKIPPED_MAX:
            del self._skipped[next(iter(self._skipped))]
        self._skipped[version] = None
        if self._timer is None:
            self._timer = self._clock.call_later(SKIPPED_RETRY_MS, self._retry_skipped)

    def _retry_skipped(self) -> None:
        self._tasks.spawn(self._fetch_skipped(), f"fetch schemas of {self._name} again")

    async def _fetch_skipped(self) -> None:
        for version in list(self._skipped):
            if await self._ask(version):
                self._skipped.pop(version, None)
        again = bool(self._skipped) and not self._closed
        self._timer = self._clock.call_later(SKIPPED_RETRY_MS, self._retry_skipped) if again else None

    def _learned(self) -> None:
        self._learning = False
        waiting, self._entries = list(self._entries), deque()
        if waiting:
            self._arrived(waiting)
