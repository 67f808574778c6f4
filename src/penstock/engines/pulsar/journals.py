"""Journals of logs: topics of the cluster in their own namespace, whose messages never go.

The namespace `{tenant}/penstock` is made with the first record: it retains everything, and topics without clients stay. Where
it is there already, or the server may not make it, its policies are the operator's.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from penstock.broker.journal import JournalLostError
from penstock.broker.producer import Producer
from penstock.engines.shared.dead_letters import KeptProducers
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.names import TopicName
from penstock.model.policy import ProducerOptions
from penstock.model.target import Target
from penstock.wire import entry as wire

from .admin import EXISTS_OR_FORBIDDEN, ensure
from .cluster import PulsarCluster
from .topic import PulsarTopic
from .topics import PulsarTopics

NAMESPACE: Final = "penstock"
PRODUCERS_MAX: Final = 256  # that are kept; each leaves its topic by itself when it is not used
READ_ENTRIES: Final = 1000

KEEPING: Final[dict[str, Any]] = {
    "retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
    "inactive_topic_policies": {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 604_800,
        "deleteWhileInactive": False,
    },
    "message_ttl_in_seconds": 0,
}

Open = Callable[[TopicName, ProducerOptions], Awaitable[Producer]]


class PulsarJournals:
    """`broker.Journals`, under the server's own credentials."""

    def __init__(self, cluster: PulsarCluster, topics: PulsarTopics, open_producer: Open) -> None:
        self.topics = topics
        self._cluster = cluster
        self._open = open_producer
        self.producers = KeptProducers(self._open_made, PRODUCERS_MAX, stateless=True)

    def open(self, log: TopicName, kind: str) -> "PulsarJournal":
        # No namespace has a ~ in its name. A topic whose name ends like a partition's would be one.
        local = f"{log.namespace}~{log.local}.{kind}"
        return PulsarJournal(self, TopicName.of("persistent", log.tenant, NAMESPACE, local))

    async def _open_made(self, name: TopicName, options: ProducerOptions) -> Producer:
        """Open the producer of a journal, which is created if it is missing."""
        await self.topics.learn(name)
        if not self.topics.exists(name):
            namespace = Target.of_namespace(name.namespace_name)
            await ensure(self._cluster.admin, namespace, KEEPING, passed=EXISTS_OR_FORBIDDEN)
            await self.topics.create(name, 0)
        return await self._open(name, options)


class PulsarJournal:
    """`broker.Journal`."""

    def __init__(self, journals: PulsarJournals, name: TopicName) -> None:
        self._journals = journals
        self._name = name
        self._offset = 0  # of the next record

    async def read_on(self) -> Sequence[bytes]:
        try:
            return await self._read_on()
        except PenstockError as error:
            raise unusable(self._name, error) from None

    async def _read_on(self) -> Sequence[bytes]:
        topic = await self._topic()
        if topic is None:
            return ()
        await topic.refresh()
        if self._offset and not topic.first_offset <= self._offset <= topic.next_offset:
            raise JournalLostError
        at = max(self._offset, topic.first_offset)
        found: list[bytes] = []
        while entries := await topic.read_at(at, READ_ENTRIES):
            for entry in entries:
                found += [one.payload for one in wire.decode(entry)]
            at = entries[-1].end
        self._offset = at
        return found

    async def _topic(self) -> PulsarTopic | None:
        """The journal's topic; None before its first record. Raises JournalLostError."""
        try:
            return await self._journals.topics.get(self._name, create=False)
        except PenstockError as error:
            if error.kind is not ErrorKind.TOPIC_NOT_FOUND:
                raise
            if self._offset:
                raise JournalLostError from None
            return None

    async def append(self, record: bytes) -> None:
        try:
            async with self._journals.producers.lend(self._name) as producer:
                (result,) = await producer.publish([OutMessage(payload=record)])
        except PenstockError as error:
            raise unusable(self._name, error) from None
        if isinstance(result, PenstockError):
            raise unusable(self._name, result)


def unusable(journal: TopicName, error: PenstockError) -> PenstockError:
    """The error of a journal that the cluster does not let this server use: it is not the caller who is refused."""
    if error.kind is ErrorKind.UNAVAILABLE:
        return error
    return PenstockError(
        ErrorKind.UNAVAILABLE,
        f"a journal cannot be kept: the namespace {journal.namespace_name} has to be there, retain everything, and"
        f" allow this server to produce and consume. {error.message}",
    )
