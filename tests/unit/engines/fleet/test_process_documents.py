"""What the engines write and read when the document of a process is removed."""

from typing import Any

import pytest

from penstock.engines.fleet.membership import FORMAT, KIND
from penstock.engines.kafka.documents import KafkaProcessDocuments
from penstock.engines.pulsar.processes import PulsarProcessDocuments
from penstock.model.message import Message
from penstock.model.names import NamespaceName
from penstock.runtime.tasks import Tasks
from penstock.testing.clock import ManualClock


async def test_messages_of_pulsar_carry_the_proof_of_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[bytes, dict[str, str]]] = []
    learned: list[tuple[str, bytes | None]] = []

    async def send(documents: PulsarProcessDocuments, payload: bytes, properties: dict[str, str]) -> None:
        sent.append((payload, properties))

    monkeypatch.setattr(PulsarProcessDocuments, "_send", send)
    space: Any = NamespaceName.parse("public/penstock")
    documents = PulsarProcessDocuments(None, space, "p", ManualClock(), Tasks())  # type: ignore[arg-type]
    await documents.start(lambda key, document: learned.append((key, document)))
    await documents.write("a", b"own")
    await documents.remove("b", b"")  # nothing is kept of another process
    await documents.remove("a", b"last")
    await documents.remove("a", b"last")
    assert [payload for payload, _ in sent] == [b"", b"own", b"last"]
    ended = sent[-1][1]
    assert len(ended) == 2
    for payload, properties in (*sent[1:], (b"", ended)):  # the last as earlier servers wrote it
        documents._arrived(arriving(payload, {**properties, **FORMAT.properties()}))
    assert learned == [("a", b"own"), ("a", b"last"), ("a", None)]


def arriving(payload: bytes, properties: dict[str, str]) -> Message:
    class Arriving:
        def __init__(self) -> None:
            self.payload, self.properties = payload, properties

    return Arriving()  # type: ignore[return-value]


async def test_documents_of_kafka_are_removed_after_the_last_one() -> None:
    class Documents:
        def __init__(self) -> None:
            self.saved: list[tuple[str, str, bytes | None]] = []

        async def save_meta(self, documents: list[tuple[str, str, bytes | None]]) -> None:
            self.saved += documents

    kept: Any = Documents()
    documents = KafkaProcessDocuments(kept)
    await documents.remove("a", b"last")
    await documents.remove("b")
    assert kept.saved == [(KIND, "a", b"last"), (KIND, "a", None), (KIND, "b", None)]
