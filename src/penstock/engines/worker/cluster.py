"""The connection of a worker to the process that owns the log."""

from typing import Final

from penstock.broker.acting import Acting
from penstock.broker.settings import ClusterSettings
from penstock.client.authentication import Authentication
from penstock.engines.pulsar.cluster import PulsarCluster
from penstock.model.worker import WorkerAccess

from .credentials import WorkerAuthentication

LEARNED_MS: Final = 1000  # the owner is asked again for policies, schemas and partitions of a topic in use


def settings_of(access: WorkerAccess) -> ClusterSettings:
    """How the owner is reached."""
    url, admin_url = f"pulsar://{access.pulsar}", f"http://{access.http}"
    return ClusterSettings(url=url, admin_url=admin_url, learned_ms=LEARNED_MS)


class OwnerCluster(PulsarCluster):
    """`broker.Cluster` of one process."""

    def __init__(self, access: WorkerAccess) -> None:
        super().__init__(settings_of(access), WorkerAuthentication(access.secret))
        self._access = access

    def authentication_for(self, caller: Acting) -> Authentication:
        """The worker, for a caller."""
        return WorkerAuthentication(self._access.secret, caller.role, caller.proxy)
