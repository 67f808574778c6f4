"""The properties of topics, kept as documents."""

from typing import Final

import msgspec

from penstock.broker.topic import MetaStore
from penstock.engines.shared.documents import DocumentReader
from penstock.model.names import TopicName

KIND: Final = "topic-properties"


class TopicProperties:
    """By the names of topics."""

    def __init__(self, documents: MetaStore, reader: DocumentReader) -> None:
        self._documents = documents
        self._reader = reader
        self._by_topic: dict[TopicName, dict[str, str]] = {}

    async def load(self) -> None:
        """Read what is stored."""
        self._reader.read_all(KIND, await self._documents.load_meta(KIND), self.learned)

    def learned(self, key: str, document: bytes | None) -> None:
        """The properties of a topic are stored, or removed (None)."""
        name = TopicName.parse_known(key)
        if name is None:
            return
        if document is None:
            self._by_topic.pop(name, None)
        else:
            self._by_topic[name] = msgspec.json.decode(document, type=dict[str, str])

    def of(self, name: TopicName) -> dict[str, str]:
        """A topic's; none where nothing is stored."""
        return self._by_topic.get(name, {})

    async def save(self, name: TopicName, properties: dict[str, str]) -> None:
        """Store a topic's, durably before they count; none removes them."""
        if properties or name in self._by_topic:
            document = msgspec.json.encode(properties) if properties else None
            await self._documents.save_meta([(KIND, str(name), document)])
            self.learned(str(name), document)
