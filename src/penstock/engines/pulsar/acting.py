"""Connections to the cluster for callers: as the server with a caller as original principal, or with the caller's token."""

import asyncio
from typing import Final

from penstock.broker.acting import Acting
from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.clock import Clock

from .cluster import PulsarCluster

CALLERS_MAX: Final = 10_000
IDLE_MS: Final = 60_000  # then the connections of a caller without producers and consumers are closed


class ActingCluster(PulsarCluster):
    """The cluster as one caller reaches it; what is administered and configured is the server's."""

    def __init__(self, cluster: PulsarCluster, caller: Acting) -> None:
        self.used_ms = 0
        self.runtime = cluster.runtime
        self.admin = cluster.admin
        self.timeout_s = cluster.timeout_s
        self.context = cluster.context_of(cluster.authentication_for(caller))


class ActingClusters:
    """One for each role with clients here, or one for each token if callers' tokens are used: two tokens of one role may be
    two principals in the cluster, and a connection has one token all its life."""

    def __init__(self, cluster: PulsarCluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._of: dict[str, ActingCluster] = {}

    def of(self, caller: Acting | None) -> PulsarCluster:
        """The cluster as reached for a caller. Raises TOO_MANY_REQUESTS, and UNAUTHENTICATED if callers' tokens are used and
        this caller has none."""
        if caller is None or not self._cluster.traits.acts_for_callers:
            return self._cluster
        found = self._of.get(caller.key)
        if found is None:
            if len(self._of) >= CALLERS_MAX:
                raise PenstockError(
                    ErrorKind.TOO_MANY_REQUESTS,
                    f"{CALLERS_MAX} roles or tokens have clients here, which is the limit",
                )
            found = self._of[caller.key] = ActingCluster(self._cluster, caller)
        found.used_ms = self._clock.monotonic_ms()
        return found

    async def sweep(self) -> None:
        """Close the connections of callers without producers and consumers."""
        before = self._clock.monotonic_ms() - IDLE_MS
        for key, one in list(self._of.items()):
            if one.used_ms < before and one.context.idle:
                del self._of[key]
                await one.context.close()

    async def close(self) -> None:
        """Close all."""
        clusters = list(self._of.values())
        self._of.clear()
        await asyncio.gather(*(one.context.close() for one in clusters))
