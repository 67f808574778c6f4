"""The cluster behind an engine, as far as endpoints show it, or pass clients and requests on to it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from penstock.model.names import TopicName
from penstock.model.policy import UNKNOWN_CLIENT, ClientInfo
from penstock.model.target import Target
from penstock.runtime.statistics import Histogram

from .acting import Acting

Headers = Sequence[tuple[bytes, bytes]]
Query = Iterable[tuple[str, str]]


class ClusterAnswer(msgspec.Struct, frozen=True):
    """What the cluster answered to a request that was passed on."""

    status: int
    headers: Headers
    body: bytes


class Owner(msgspec.Struct, frozen=True):
    """The addresses of the broker that has a topic, "" if it has none: `pulsar://` and `pulsar+ssl://`."""

    url: str
    tls_url: str = ""


class Elsewhere(msgspec.Struct, frozen=True):
    """A topic at the other processes of a service: their answers to `GET …/stats`, each with what its process counts, and why
    some did not answer."""

    stats: Sequence[Mapping[str, Any]] = ()
    unanswered: Sequence[str] = ()


class Ownership(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions that this process owns, and its cursors. Counters are since the server's start."""

    slots: int  # groups of partitions that this process serves
    doubts: int  # times that the process was stopped for so long that others may have them
    saves: Histogram  # seconds until changes of cursors were durable
    misfits: Mapping[str, int]  # cursors that did not fit their logs, by reason
    removed: int  # cursors of topics that no longer exist
    refusal: str = ""  # why this process can own nothing


class ClusterTraits(msgspec.Struct, frozen=True, kw_only=True):
    """How a cluster is used, the same for ever.

    `administered`: it has its own administration and brokers of Pulsar's protocol, to which clients are sent and
    requests passed on; else they are served here. `acts_for_callers`: producers and consumers reach it for the caller that they
    are made for (`acting.ACTING`), and with `wants_tokens` by the caller's own token rather than its role.
    """

    kind: Literal["pulsar", "kafka"]
    administered: bool
    acts_for_callers: bool = False
    wants_tokens: bool = False


class ClusterFigures(msgspec.Struct, frozen=True):
    """How it is with a cluster."""

    problem: str | None = None  # why it cannot be reached now, as a sentence
    # Errors that its clients reported, by kind of client and code; empty if they are not counted.
    client_errors: Mapping[tuple[str, str], int] = {}
    ownership: Ownership | None = None  # None if the cluster itself serves the subscriptions


class Cluster(Protocol):
    """An Apache Pulsar or Apache Kafka cluster."""

    @property
    def traits(self) -> ClusterTraits: ...
    def figures(self) -> ClusterFigures: ...

    async def request(
        self,
        method: str,
        target: Target,
        query: Query = (),
        headers: Headers = (),
        body: bytes = b"",
        *,
        caller: Acting | None = None,
    ) -> ClusterAnswer:
        """Forward an HTTP request. If the cluster is reached for callers (`acts_for_callers`), it carries the caller's token,
        or the engine's credentials and the caller's name; else the engine's credentials alone. Raises UNAVAILABLE,
        UNAUTHENTICATED.

        Only headers about the body and the answer are forwarded, none that identifies the caller."""

    async def consumers(self, log: TopicName, subscription: str) -> Sequence[Mapping[str, str]]:
        """The properties of the consumers of a subscription, of every process; empty if it does not exist. Raises
        UNAVAILABLE."""

    async def elsewhere(self, topic: TopicName) -> Elsewhere:
        """A topic at the other processes of this service; empty if the cluster itself knows all of it, and for a request of
        another process."""

    async def owner(self, topic: TopicName, client: ClientInfo = UNKNOWN_CLIENT) -> Owner:
        """The broker at which a client of Pulsar's protocol finds a topic or partition, without an address if it is this one; raises
        TOPIC_NOT_FOUND, UNAVAILABLE."""

    def announce(self, own: Owner) -> None:
        """Clients of Pulsar's protocol reach this process alone there."""
