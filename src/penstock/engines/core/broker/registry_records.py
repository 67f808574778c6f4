"""The records of the schema registry as documents of the log's own store, which one process has."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from penstock.broker.registry import RegistryRecord
from penstock.broker.topic import MetaStore

KIND: Final = "registry"


class _Document(msgspec.Struct):
    value: msgspec.Raw
    own: msgspec.Raw = msgspec.Raw()


_document: Final = msgspec.json.Decoder(_Document)


class StoredRegistryRecords:
    """`broker.RegistryRecords`."""

    writer = ""

    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self._learn: Callable[[RegistryRecord], None] = lambda record: None
        self.number_schemas: Callable[[], Awaitable[None]] | None = None

    async def open(self, learn: Callable[[RegistryRecord], None]) -> None:
        self._learn = learn
        for key, document in sorted((await self._store.load_meta(KIND)).items()):
            found = _document.decode(document)
            learn(RegistryRecord(key, bytes(found.value), bytes(found.own)))

    async def catch_up(self) -> None:
        """No other process writes."""

    async def take(self) -> None:
        """No other process writes."""

    async def write(self, records: Sequence[RegistryRecord], process: str) -> None:
        rows = [(KIND, one.key, None if one.value is None else _packed(one)) for one in records]
        await self._store.save_meta(rows)
        for one in records:
            self._learn(one)


def _packed(record: RegistryRecord) -> bytes:
    document: dict[str, msgspec.Raw] = {"value": msgspec.Raw(record.value or b"null")}
    if record.own:
        document["own"] = msgspec.Raw(record.own)
    return msgspec.json.encode(document)
