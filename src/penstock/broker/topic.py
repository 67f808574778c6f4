"""A topic that is open: its log with who uses it. A partition is a topic of its own."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from penstock.broker.subscription import Subscription
from penstock.model.errors import PenstockError
from penstock.model.policy import InForce, ProducerOptions
from penstock.runtime.statistics import Histogram, Rate

from .log import Log


class Publisher(Protocol):
    """A producer as its topic sees it."""

    owner: str | None  # the role it publishes for; None: of several, or authentication is off
    proxy: str | None  # the role that made it for its owner

    @property
    def name(self) -> str: ...
    @property
    def options(self) -> ProducerOptions: ...
    @property
    def connected_ms(self) -> int: ...
    @property
    def published(self) -> int: ...
    @property
    def last_sequence_id(self) -> int: ...
    def close(self, reason: PenstockError | None = None) -> None:
        """Leave the topic; `reason` says why where it is not the producer's own wish."""


def producer_key(producer: Publisher) -> str:
    """The key of a producer among those of its topic: its name, or a key that differs from every name if others may share the name."""
    return f"{producer.name}\0{id(producer):x}" if producer.options.shared_name else producer.name


class BacklogFigures(msgspec.Struct, frozen=True):
    """The backlog of the slowest durable subscription: bytes, and when its oldest message was published."""

    bytes: int = 0
    oldest_ms: int = 0
    empty: bool = True


class Compaction(msgspec.Struct):
    """How the last compaction went: NOT_RUN, RUNNING, SUCCESS or ERROR."""

    status: str = "NOT_RUN"
    last_error: str = ""


class MetaStore(Protocol):
    """Small durable documents by kind and key: what is remembered beside the logs."""

    def load_meta(self, kind: str) -> Awaitable[dict[str, bytes]]:
        """All documents of a kind."""

    def save_meta(self, documents: Sequence[tuple[str, str, bytes | None]]) -> Awaitable[None]:
        """Store `(kind, key, document)` each, in order, all or none; None deletes. Completes when durable."""


class Topic(Log, Protocol):
    """One log with its producers and subscriptions. Counters are since the server's start."""

    followers: set[Callable[[], None]]  # called when the log grows or ends

    @property
    def documents(self) -> MetaStore: ...

    @property
    def epoch(self) -> int:
        """How often a producer had the topic alone, less one (Pulsar's topic epoch)."""

    def check_open(self) -> None:
        """Raise unless the topic takes messages: TOPIC_TERMINATED, TOPIC_NOT_FOUND."""

    def check_shared(self) -> None:
        """Raise EXCLUSIVE_PRODUCER while a producer has the topic alone, or waits to."""

    def last_sequence_id(self, producer: str) -> int:
        """The highest sequence id stored under a producer's name, -1 without one."""

    @property
    def compaction(self) -> Compaction: ...
    @property
    def last_publish_ms(self) -> int: ...
    @property
    def policies(self) -> InForce: ...
    @property
    def producers(self) -> Mapping[str, Publisher]: ...
    @property
    def rate_in(self) -> Rate: ...
    @property
    def subscriptions(self) -> Mapping[str, Subscription]: ...
    @property
    def counted(self) -> Sequence[Subscription]:
        """The subscriptions whose figures are this process's: of several processes one counts each subscription."""

    @property
    def used(self) -> bool:
        """Whether it has messages, or a client is connected."""

    @property
    def write_latency(self) -> Histogram | None:
        """Milliseconds until an append is durable; None before the first."""

    async def measure_backlog(self) -> BacklogFigures:
        """The backlog of the slowest durable subscription, as it is now."""
