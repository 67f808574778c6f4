"""Where staged publishing keeps what it needs: topics in its own namespace, a log for each writer and a topic for each
batch that is staged."""

from collections.abc import AsyncGenerator
from typing import Final
from urllib.parse import quote, unquote

from penstock.client.enums import RegexSubscriptionMode
from penstock.client.errors import PulsarException
from penstock.engines.attached.errors import engine_error
from penstock.engines.attached.positions import BEFORE_ALL
from penstock.engines.pulsar.admin import ensure
from penstock.engines.pulsar.cluster import PulsarCluster
from penstock.engines.pulsar.readers import Reader
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST
from penstock.model.names import NamespaceName, TopicName
from penstock.model.target import Target

READ_S: Final = 30.0  # without a message that is there: then the read fails
MISSING: Final = (ErrorKind.TOPIC_NOT_FOUND, ErrorKind.NAMESPACE_NOT_FOUND)
_KEPT: Final = "penstock"  # the subscription that keeps a log
_LOG: Final = "log"
# What names of writers may have as they are; a slash would be another form of topic names, and a dot ends the name.
_SAFE: Final = "-_:="


class StagingSpace:
    """The namespace `name`, which is made when it is needed. What no subscription keeps goes `timeout_ms` after its last use,
    as the namespace's policies have the cluster delete inactive topics."""

    def __init__(self, cluster: PulsarCluster, name: NamespaceName, timeout_ms: int) -> None:
        self.cluster = cluster
        self.name = name
        self._timeout_s = max(1, timeout_ms // 1000)

    def log_of(self, writer: str) -> TopicName:
        """The identity of a writer, and its commits."""
        return self._topic(writer, _LOG)

    def batch_of(self, writer: str, batch: int) -> TopicName:
        """The stages of a batch."""
        return self._topic(writer, str(batch))

    def _topic(self, writer: str, what: str) -> TopicName:
        local = f"{quote(writer, safe=_SAFE)}.{what}"
        return TopicName("persistent", self.name.tenant, self.name.namespace, local)

    # -- which there are

    async def writers(self) -> list[str]:
        """The names of all writers, in their order."""
        return sorted(writer for writer, what in await self._names() if what == _LOG)

    async def batches(self, writer: str) -> list[int]:
        """The batches that something is staged for, in their order."""
        return sorted(int(what) for name, what in await self._names() if name == writer and what.isdigit())

    async def _names(self) -> list[tuple[str, str]]:
        try:
            found = await self.cluster.context.lookup.topics(str(self.name), RegexSubscriptionMode.AllTopics)
        except PulsarException as error:
            refusal = engine_error(error)
            if refusal.kind in MISSING:
                return []
            raise refusal from None
        split = [TopicName.parse(text).local.rpartition(".") for text in found]
        return [(unquote(writer), what) for writer, _, what in split if writer]

    def reader(self, topic: TopicName) -> Reader:
        """Reads a topic from its beginning; not opened."""
        return Reader(self.cluster.context, topic, EARLIEST, inclusive=True, numbered=False)

    async def entries_of(self, topic: TopicName) -> AsyncGenerator[Entry]:
        """The entries of a topic up to the one that is the last now; none of a topic that does not exist. Raises UNAVAILABLE."""
        reader = self.reader(topic)
        try:
            await reader.open()
        except PenstockError as error:
            if error.kind in MISSING:
                return
            raise
        try:
            last = await reader.last_message_id()
            place = BEFORE_ALL
            while last.entry >= 0 and place < (last.ledger, last.entry):
                if not await reader.wait(READ_S):
                    raise PenstockError(ErrorKind.UNAVAILABLE, f"the cluster did not deliver {topic} in time")
                if (entry := reader.take()) is not None:
                    place = entry.ledger, entry.entry_id
                    yield entry
        finally:
            await reader.close()

    async def size_of(self, topic: TopicName) -> int:
        """About how many bytes a topic has."""
        try:
            stats = await self.cluster.admin.get(
                Target.of_topic(topic, "stats"), missing=ErrorKind.TOPIC_NOT_FOUND
            )
        except PenstockError as error:
            if error.kind is not ErrorKind.TOPIC_NOT_FOUND:
                raise
            return 0
        return int(stats.get("storageSize", 0))

    # -- making and deleting

    async def create(self, topic: TopicName) -> None:
        """Create a topic, and the namespace, if missing."""
        try:
            await self._put(topic)
        except PenstockError as error:
            if error.kind is not ErrorKind.NAMESPACE_NOT_FOUND:
                raise
            await self._create_namespace()
            await self._put(topic)

    async def _put(self, topic: TopicName) -> None:
        try:
            await ensure(self.cluster.admin, Target.of_topic(topic), missing=ErrorKind.NAMESPACE_NOT_FOUND)
        except PenstockError as error:
            raise self._refused(error) from None

    async def _create_namespace(self) -> None:
        policies = {
            # Topics without a subscription keep everything until they go; a log with one, what the subscription has before it.
            "retention_policies": {
                "retentionTimeInMinutes": max(1, 2 * self._timeout_s // 60), "retentionSizeInMB": -1
            },
            "inactive_topic_policies": {
                "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
                "maxInactiveDurationSeconds": self._timeout_s,
                "deleteWhileInactive": True,
            },
            "message_ttl_in_seconds": 0,
            "autoTopicCreationOverride": {"allowAutoTopicCreation": False},
        }  # fmt: skip
        try:
            await ensure(self.cluster.admin, Target.of_namespace(self.name), policies)
        except PenstockError as error:
            raise self._refused(error) from None

    def _refused(self, error: PenstockError) -> PenstockError:
        if error.kind in (ErrorKind.FORBIDDEN, ErrorKind.NOT_FOUND):
            return PenstockError(
                ErrorKind.UNAVAILABLE,
                f"this server needs the namespace {self.name} (engine.staging_namespace) for what is staged: {error.message}",
            )
        return error

    async def keep(self, log: TopicName) -> None:
        """Have the cluster keep a log, whatever its age; harmless when repeated."""
        first = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
        await ensure(self.cluster.admin, Target.of_subscription(log, _KEPT), first)

    async def trim(self, log: TopicName, ledger: int, entry: int) -> None:
        """Let a kept log begin at an entry: the cluster may delete what comes before it."""
        place = {"ledgerId": ledger, "entryId": entry, "partitionIndex": -1}
        await self.cluster.admin.call("POST", Target.of_subscription(log, _KEPT, "resetcursor"), body=place)

    async def delete(self, topic: TopicName, *, force: bool = False) -> bool:
        """Delete a topic; False: it is in use, which `force` does not mind. One that is not there is deleted."""
        try:
            await self.cluster.admin.call("DELETE", Target.of_topic(topic), force=str(force).lower())
        except PenstockError as error:
            if error.kind is ErrorKind.BAD_PARAMETER and not force:  # 412
                return False
            if error.kind is not ErrorKind.NOT_FOUND:
                raise
        return True
