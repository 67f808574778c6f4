"""The documents by which processes before a Kafka cluster know one another, kept with its other documents."""

from penstock.broker.fleet import Learned
from penstock.engines.fleet.membership import KIND
from penstock.engines.shared.versions import UnknownVersion

from .documents import Documents


class KafkaProcessDocuments:
    """`ProcessDocuments`."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    async def start(self, learned: Learned) -> None:
        def read(id: str, document: bytes | None) -> None:
            learned(id, None if isinstance(document, UnknownVersion) else document)
            if isinstance(document, UnknownVersion):
                raise document.new_error()

        self._documents.reader.read_all(KIND, await self._documents.load_meta(KIND), read)
        self._documents.listeners[KIND].append(read)

    async def write(self, id: str, document: bytes) -> None:
        await self._documents.save_meta([(KIND, id, document)])

    async def remove(self, id: str, last: bytes = b"") -> None:
        await self._documents.save_meta([*([(KIND, id, last)] if last else []), (KIND, id, None)])

    async def catch_up(self) -> None:
        await self._documents.catch_up()
