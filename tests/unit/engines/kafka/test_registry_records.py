"""The records of the schema registry before Kafka: what is written first."""

from collections import defaultdict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.broker.registry import RegistryRecord
from penstock.engines.kafka.schema_registry.records import KafkaRegistryRecords
from penstock.runtime.tasks import Tasks

IDS = '{"keytype":"PENSTOCK_IDS","subject":":.:","magic":0}'
VERSION = '{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}'


async def test_documents_are_written_before_the_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the document of the greatest id, an id would be given again."""
    written: list[str] = []

    async def save_meta(rows: Sequence[tuple[str, str, Any]]) -> None:
        written.extend(key for _, key, _ in rows)

    async def write(records: Sequence[RegistryRecord], process: str) -> None:
        written.extend(one.key for one in records)

    documents = SimpleNamespace(listeners=defaultdict(list), save_meta=save_meta)
    settings = SimpleNamespace(schemas_topic="_schemas")
    clients = SimpleNamespace(generation=0)
    cluster = SimpleNamespace(settings=settings, clients=clients, timeout_s=1.0)
    records = KafkaRegistryRecords(cast(Any, cluster), cast(Any, documents), Tasks(), cast(Any, None))
    monkeypatch.setattr(records, "_write", write)
    await records.write([RegistryRecord(VERSION, None), RegistryRecord(IDS, b'{"id":1}')], "p")
    assert written == [IDS, VERSION]
