"""The cluster as a whole: how it is reached, and whether it answers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NoReturn

from penstock.broker.acting import Acting
from penstock.broker.cluster import ClusterFigures, ClusterTraits, Elsewhere, Headers, Owner, Ownership, Query
from penstock.broker.settings import ClusterSettings
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import UNKNOWN_CLIENT, ClientInfo
from penstock.model.target import Target
from penstock.runtime.tasks import Tasks

from .driver.admin import KafkaAdmin
from .driver.clients import Clients
from .driver.groups import KafkaGroups
from .driver.threads import in_thread

log = logging.getLogger(__name__)

START_S: Final = 20.0  # a cluster that starts at the same time may take so long
GROUPS_S: Final = 10.0  # for an answer of a group's coordinator
REFUSED_S: Final = (
    5.0  # once credentials are refused for so long, the start stops waiting: the operator has to mend them
)
LOOK_S: Final = 5.0  # how often it is looked whether the cluster is there, and for its answer


class KafkaCluster:
    """`broker.Cluster`; raises BAD_PARAMETER for settings that cannot be used."""

    # Kafka is asked under the server's own credentials, and has no REST of its own.
    traits = ClusterTraits(kind="kafka", administered=False)

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self.clients = Clients(settings)
        self.timeout_s = settings.timeout_ms / 1000
        self.admin = KafkaAdmin(self.clients, self.timeout_s)
        asked_s = min(self.timeout_s, GROUPS_S)
        self._group_admin = KafkaAdmin(self.clients, asked_s, renewed=True)
        self.groups = KafkaGroups(self._group_admin, self.clients, asked_s)
        self.tasks = Tasks()
        self.problem: str | None = None
        # The engine says what it knows: documents are kept by way of the cluster.
        self.shown: Callable[[TopicName, str], Awaitable[Sequence[Mapping[str, str]]]] | None = None
        self.owned: Callable[[], Ownership | None] = lambda: None
        self.asked: Callable[[TopicName], Awaitable[Elsewhere]] | None = None
        self.sent: Callable[[TopicName, ClientInfo], Owner] | None = None
        self.own = Owner("")  # where clients reach this process alone

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

    def figures(self) -> ClusterFigures:
        return ClusterFigures(self.problem, self.clients.errors.counts(), self.owned())

    async def close(self) -> None:
        """End all that runs for the cluster."""
        await self.tasks.close()
        await self._group_admin.close()
        await self.admin.close()
        await in_thread(self.clients.close)

    # -- for endpoints

    async def request(
        self,
        method: str,
        target: Target,
        query: Query = (),
        headers: Headers = (),
        body: bytes = b"",
        *,
        caller: Acting | None = None,
    ) -> NoReturn:
        """Kafka has no REST of its own."""
        raise PenstockError(ErrorKind.NOT_SUPPORTED, "a Kafka cluster takes no requests of HTTP")

    async def consumers(self, log: TopicName, subscription: str) -> Sequence[Mapping[str, str]]:
        return [] if self.shown is None else await self.shown(log, subscription)

    async def elsewhere(self, topic: TopicName) -> Elsewhere:
        return Elsewhere() if self.asked is None else await self.asked(topic)

    def announce(self, own: Owner) -> None:
        self.own = own

    async def owner(self, topic: TopicName, client: ClientInfo = UNKNOWN_CLIENT) -> Owner:
        """Every process serves every topic, but not every partition of a subscription."""
        return Owner("") if self.sent is None else self.sent(topic, client)
