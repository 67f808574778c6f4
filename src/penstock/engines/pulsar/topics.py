"""The topics of a Pulsar cluster: those that it has, as far as this process learned of them, and those that it uses."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from penstock.client.enums import RegexSubscriptionMode
from penstock.client.errors import PulsarException, TopicNotFound
from penstock.engines.attached.errors import own_error
from penstock.engines.shared.catalog import NO_TOPICS, Catalog, Described
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import PARTITION_SUFFIX, NamespaceName, TopicName, partition_of
from penstock.model.policy import AutoTopics, InForce
from penstock.model.target import Target
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Slices

from .cluster import PulsarCluster
from .namespaces import PulsarNamespaces
from .topic import PulsarTopic


class PulsarTopics(Catalog[PulsarTopic]):
    """`broker.Topics`. `learn_schema` is called with each topic that is learned. `recheck_missing`: a topic that was missing is
    looked up each time, as another process may just have created it."""

    tail_bytes = 0
    unpartitioned = 0
    lists_all = False

    def __init__(
        self,
        cluster: PulsarCluster,
        namespaces: PulsarNamespaces,
        clock: Clock,
        policies: Callable[[TopicName], InForce],
        learned_ms: int,
        *,
        learn_schema: Callable[[TopicName], Awaitable[None]],
        recheck_missing: bool = False,
    ) -> None:
        super().__init__(namespaces, clock, learned_ms)
        self._learn_schema = learn_schema
        self._recheck_missing = recheck_missing
        self._cluster = cluster
        self._spaces = namespaces
        self._policies = policies

    def fresh(self, name: TopicName) -> bool:
        return super().fresh(name) and (not self._recheck_missing or self.document(name) is not None)

    def appeared(self, name: TopicName, partitions: int) -> None:
        """The cluster has just created a topic, as it was used."""
        self.put(name, Described("", partitions))

    def auto(self, name: TopicName) -> AutoTopics:
        if name.partition >= 0 or not self._spaces.exists(name.namespace_name):
            return NO_TOPICS
        return self._spaces.auto(name.namespace_name)

    # -- asking the cluster

    async def _describe(self, name: TopicName) -> Described | None:
        await self._spaces.learn(name.namespace_name)
        partitions = await self._partitions_now(name)
        return None if partitions is None else Described("", partitions)

    async def _partitions_now(self, name: TopicName) -> int | None:
        """How many partitions the cluster says that a topic has; None if there is no topic."""
        try:
            return await self._cluster.context.lookup.partitions(str(name), create=False)
        except TopicNotFound:
            return None
        except PulsarException as error:
            raise own_error(error) from None

    async def _list(self, namespace: NamespaceName | None) -> Mapping[str, int]:
        assert namespace is not None
        await self._spaces.learn(namespace)
        try:
            found = await self._cluster.context.lookup.topics(str(namespace), RegexSubscriptionMode.AllTopics)
        except PulsarException as error:
            raise own_error(error) from None
        listed: dict[str, int] = {}
        slices = Slices()
        for text in found:
            await slices.step()
            base, count = _counted(text)
            listed[base] = max(count, listed.get(base, 0))
        return listed

    def _name_of(self, text: str) -> TopicName | None:
        return TopicName.parse_known(text)

    async def _learn_more(self, name: TopicName) -> None:
        await self._learn_schema(name)

    async def _new(self, name: TopicName) -> PulsarTopic:
        return PulsarTopic(name, self._cluster, self._clock, self._policies(name))

    # -- changing which there are

    async def create(
        self, name: TopicName, partitions: int, properties: dict[str, str] | None = None
    ) -> None:
        admin, shared = self._cluster.admin, self._recheck_missing
        try:
            if partitions:
                await admin.call("PUT", Target.of_topic(name, "partitions"), body=partitions)
            elif name.persistent:
                await admin.call("PUT", Target.of_topic(name), body=properties)
        except PenstockError as error:
            # Another server, or a client of the cluster, was quicker; or only brokers may: then they do, as it is used.
            if error.kind not in (ErrorKind.ALREADY_EXISTS, ErrorKind.FORBIDDEN):
                raise
            shared = True
        if shared and (found := await self._partitions_now(name)) is not None:
            partitions = found  # another process decided the number
        self.appeared(name, partitions)

    async def set_properties(
        self, name: TopicName, change: Callable[[dict[str, str]], dict[str, str]]
    ) -> None:
        raise PenstockError(
            ErrorKind.NOT_SUPPORTED, "properties of topics are changed by the cluster's own admin REST"
        )

    async def terminate(self, name: TopicName) -> Sequence[PulsarTopic]:
        logs = await self.all_of(name, create=False)
        parts = ("partitions",) if self.partitions(name) else ()
        target = Target.of_topic(name, "terminate", *parts)
        await self._cluster.admin.call("POST", target, missing=ErrorKind.TOPIC_NOT_FOUND)
        for log in logs:
            log.terminated = True
        return logs


def _counted(text: str) -> tuple[str, int]:
    """The topic of a listed name, and how many partitions the name shows: 0 unless it is a partition's."""
    number = partition_of(text.split("/", 4)[-1])
    return (text[: text.rindex(PARTITION_SUFFIX)], number + 1) if number >= 0 else (text, 0)
