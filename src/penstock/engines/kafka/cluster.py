"""The cluster as a whole: how it is reached, and whether it answers."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from penstock.broker.settings import ClusterSettings
from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.tasks import Tasks

from .driver.admin import Described, KafkaAdmin
from .driver.clients import Clients
from .driver.groups import KafkaGroups
from .driver.threads import in_thread

log = logging.getLogger(__name__)

START_S: Final = 20.0  # a cluster that starts at the same time may take so long
GROUPS_S: Final = 10.0  # for an answer of a group's coordinator
REFUSED_S: Final = (
    5.0  # how long credentials are refused before the start gives up: the operator has to correct them
)
LOOK_S: Final = 5.0  # poll interval for the cluster, and timeout of its answer


class KafkaCluster:
    """The clients of this process; raises BAD_PARAMETER for settings that cannot be used."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self.clients = Clients(settings)
        self.timeout_s = settings.timeout_ms / 1000
        self.admin = KafkaAdmin(self.clients, self.timeout_s)
        self._group_admin = KafkaAdmin(self.clients, min(self.timeout_s, GROUPS_S), renewed=True)
        self.groups = KafkaGroups(self._group_admin)
        self.tasks = Tasks()
        self.problem: str | None = None

    async def start(self) -> None:
        """Reach the cluster; raises UNAVAILABLE."""
        until = asyncio.get_running_loop().time() + START_S
        self.tasks.spawn(self.clients.watch(), "watch Kafka's clients")
        while True:
            await self.look()
            if self.problem is None:
                break
            refused = self.clients.errors.refusal(REFUSED_S) is not None
            if refused or asyncio.get_running_loop().time() >= until:
                raise PenstockError(ErrorKind.UNAVAILABLE, self.problem)
            await asyncio.sleep(0.5)
        self.tasks.spawn(self._watch(), "watch the cluster")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            before = self.problem
            await self.look()
            if before != self.problem and (before is None or self.problem is None):
                log.warning("the cluster is back" if self.problem is None else self.problem)

    async def look(self) -> None:
        """Find out whether the cluster answers, and set `problem`.

        After a refusal a new connection is made: brokers do not authenticate existing ones again.
        """
        refused = self.clients.errors.refusal() is not None
        try:
            await (self._ask_on_new_connection() if refused else self.admin.check_reachable(LOOK_S))
            self.clients.errors.recovered(authenticated=refused)
            self.problem = None
        except PenstockError as error:
            self.problem = f"the cluster at {self.settings.url} cannot be reached: {error.message}"

    async def _ask_on_new_connection(self) -> None:
        admin = KafkaAdmin(self.clients, self.timeout_s)
        try:
            await admin.check_reachable(LOOK_S)
        finally:
            await admin.close()

    async def close(self) -> None:
        """End all that runs for the cluster."""
        await self.tasks.close()
        await self._group_admin.close()
        await self.admin.close()
        await in_thread(self.clients.close)

    async def have(self, topic: str, partitions: int, config: Mapping[str, str]) -> Described:
        """An internal topic, which is created if it is missing. Raises FORBIDDEN, UNAVAILABLE."""
        found = await self.admin.describe(topic)
        if found is not None:
            return found
        try:
            await self.admin.create(topic, partitions, self.settings.replication_factor, config)
        except PenstockError as error:
            if error.kind is not ErrorKind.ALREADY_EXISTS:  # another process was quicker
                raise
        return await self.admin.created(topic, self.timeout_s)
