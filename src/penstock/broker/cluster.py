"""The cluster that an engine stands before, as far as endpoints send their clients, or pass requests, on to it."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from penstock.model.names import TopicName

Headers = Sequence[tuple[bytes, bytes]]


class ClusterAnswer(msgspec.Struct, frozen=True):
    """What the cluster answered to a request that was passed on."""

    status: int
    headers: Headers
    body: bytes


class Owner(msgspec.Struct, frozen=True):
    """The addresses of the broker that has a topic, "" where it has none: `pulsar://` and `pulsar+ssl://`."""

    url: str
    tls_url: str = ""


class Cluster(Protocol):
    """An Apache Pulsar cluster."""

    @property
    def problem(self) -> str | None:
        """Why the cluster cannot be reached now, as a sentence; None while it can."""

    @property
    def acts_for_callers(self) -> bool:
        """Whether producers and consumers reach it for the caller that they are made for (`acting.ACTING`)."""

    async def request(
        self, method: str, path: str, query: bytes, headers: Headers, body: bytes
    ) -> ClusterAnswer:
        """Pass a request of HTTP on, under the engine's own credentials; raises UNAVAILABLE, REQUEST_TIMEOUT."""

    async def owner(self, topic: TopicName) -> Owner:
        """Where the clients of Pulsar's protocol find a topic or partition; raises TOPIC_NOT_FOUND, UNAVAILABLE."""
