"""The topics of the owner, as far as a worker learned of them."""

from penstock.client.errors import PulsarException, TopicNotFound
from penstock.engines.pulsar.errors import own_error
from penstock.engines.pulsar.topics import PulsarTopics
from penstock.model.names import TopicName


class WorkerTopics(PulsarTopics):
    """`broker.Topics`. Another worker may just have created a topic: a topic that was missing is looked up each time."""

    def fresh(self, name: TopicName) -> bool:
        return super().fresh(name) and self.document(name) is not None

    async def create(
        self, name: TopicName, partitions: int, properties: dict[str, str] | None = None
    ) -> None:
        """Have the owner create a topic. If another process was quicker, it decided the number of partitions."""
        await super().create(name, partitions, properties)
        try:
            self.appeared(name, await self._cluster.context.lookup.partitions(str(name), create=False))
        except TopicNotFound:
            pass  # a non-persistent topic is created by the first that uses it; or this one was deleted
        except PulsarException as error:
            raise own_error(error) from None
