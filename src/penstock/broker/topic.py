"""An open topic: its log and its users. A partition is a separate topic."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from penstock.broker.subscription import Subscription
from penstock.model.errors import PenstockError
from penstock.model.policy import InForce, ProducerOptions
from penstock.runtime.statistics import Histogram, Rate

from .log import Log


class ProducerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a producer did."""

    connected_ms: int  # since the epoch
    published: int  # messages
    last_sequence_id: int  # of these
    # The highest that its topic has of this name, if sequence ids of clients count; else, or without one, -1.
    stored_sequence_id: int


class Publisher(Protocol):
    """A producer as its topic sees it."""

    owner: str | None  # the role it publishes for; None: of several, or authentication is off
    proxy: str | None  # the role that made it for its owner

    @property
    def name(self) -> str: ...
    @property
    def options(self) -> ProducerOptions: ...
    def figures(self) -> ProducerFigures: ...
    def close(self, reason: PenstockError | None = None) -> None:
        """Leave the topic; `reason` says why if it is not the producer's own wish."""


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


class TopicFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a topic. Counters are since the server's start."""

    policies: InForce
    rate_in: Rate
    last_publish_ms: int
    write_latency: Histogram | None  # milliseconds until an append is durable; None before the first
    compaction: Compaction
    epoch: int  # how often a producer had the topic alone, less one (Pulsar's topic epoch)
    used: bool  # whether it has messages, or a client is connected


class MetaStore(Protocol):
    """Small durable documents by kind and key, stored with the logs."""

    def load_meta(self, kind: str) -> Awaitable[dict[str, bytes]]:
        """All documents of a kind."""

    def save_meta(self, documents: Sequence[tuple[str, str, bytes | None]]) -> Awaitable[None]:
        """Store `(kind, key, document)` each, in order, all or none; None deletes. Completes when durable."""


class Topic(Log, Protocol):
    """One log with its producers and subscriptions."""

    followers: set[Callable[[], None]]  # called when the log grows or ends

    @property
    def documents(self) -> MetaStore | None:
        """None if the broker has journals (`Broker.open_journal`) instead."""

    def check_open(self) -> None:
        """Raise unless the topic takes messages: TOPIC_TERMINATED, TOPIC_NOT_FOUND."""

    def check_shared(self) -> None:
        """Raise EXCLUSIVE_PRODUCER while a producer has the topic alone, or waits to."""

    def figures(self) -> TopicFigures: ...
    @property
    def producers(self) -> Mapping[str, Publisher]: ...
    @property
    def subscriptions(self) -> Mapping[str, Subscription]: ...
    @property
    def counted(self) -> Sequence[Subscription]:
        """The subscriptions whose figures are this process's: of several processes one counts each subscription."""

    async def measure_backlog(self) -> BacklogFigures:
        """The backlog of the slowest durable subscription, as it is now."""
