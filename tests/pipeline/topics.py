"""A server whose topics a test fills with entries of its own making, and trims."""

from tests.support.server import ThreadedServer

from penstock.client.http import HttpClient, RemoteError
from penstock.client.paths import admin_path, subscription_path
from penstock.model.names import TopicName
from penstock.wire.entry import admit


class TopicServer(ThreadedServer):
    """Topics of `public/default`, by their local names."""

    def create(self, topic: str, partitions: int = 0) -> None:
        with HttpClient(self.url) as client:
            client.create_topic(TopicName.parse(topic), partitions)

    def grow(self, topic: str, partitions: int) -> None:
        with HttpClient(self.url) as client:
            client.call("POST", f"{admin_path(TopicName.parse(topic))}/partitions", body=partitions)

    def delete(self, topic: str) -> None:
        with HttpClient(self.url) as client:
            client.call("DELETE", admin_path(TopicName.parse(topic)), params={"force": True})

    def append(self, topic: str, *entries: bytes, partition: int = 0) -> None:
        """Store entries as they are; nothing of them is checked."""

        async def append() -> None:
            log = (await self.broker.topics.all_of(TopicName.parse(topic), create=False))[partition]
            await log.append([admit(entry) for entry in entries])

        self.run(append())

    def trim(self, topic: str, offset: int, partition: int = 0) -> None:
        """Remove what is below `offset`, as retention does: in whole entries."""

        async def trim() -> None:
            log = (await self.broker.topics.all_of(TopicName.parse(topic), create=False))[partition]
            await log.trim(await log.entry_at(offset))

        self.run(trim())

    def ledger(self, topic: str, partition: int = 0) -> int:
        with HttpClient(self.url) as client:
            return client.offsets(TopicName.parse(topic), partition).ledger

    def latest(self, topic: str, partition: int = 0) -> int:
        with HttpClient(self.url) as client:
            return client.offsets(TopicName.parse(topic), partition).latest

    def cursor(self, subscription: str, topic: str) -> list[int]:
        """How far a subscription has come in each partition of a topic; nothing where it does not exist."""
        with HttpClient(self.url) as client:
            try:
                path = subscription_path(TopicName.parse(topic), subscription)
                cursor = client.call("GET", f"{path}/cursor")["cursor"]
            except RemoteError:
                return []
        marks = [one["mark_delete_offset"] for one in cursor["partitions"] or [cursor]]
        return [0 if mark is None else mark + 1 for mark in marks]
