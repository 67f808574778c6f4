"""Namespaces that would share topics in Kafka."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence

import pytest

from penstock.engines.kafka.naming import Naming
from penstock.engines.kafka.policies import KafkaNamespaces
from penstock.engines.registry.namespaces import KIND
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName

pytestmark = pytest.mark.anyio
ONE, OTHER = NamespaceName("a", "b.c"), NamespaceName("a.b", "c")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class SharedDocuments:
    """The topic of documents: every process reads every row, in one order, before its writer goes on."""

    def __init__(self) -> None:
        self.rows: defaultdict[str, dict[str, bytes]] = defaultdict(dict)
        self.processes: list[KafkaNamespaces] = []

    async def load_meta(self, kind: str) -> dict[str, bytes]:
        return dict(self.rows[kind])

    async def save_meta(self, documents: Sequence[tuple[str, str, bytes | None]]) -> None:
        await asyncio.sleep(0)  # both processes have decided to write
        for kind, key, value in documents:
            if value is None:
                self.rows[kind].pop(key, None)
            else:
                self.rows[kind][key] = value
            for process in self.processes if kind == KIND else ():
                process.learned(key, value)
        await asyncio.sleep(0)

    async def process(self, *, auto_create: bool = True) -> KafkaNamespaces:
        made = KafkaNamespaces(self, Naming({}), auto_create=auto_create)
        await made.load()
        self.processes.append(made)
        return made


async def _refused(call: object) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        await call  # type: ignore[misc]
    return caught.value


async def test_a_namespace_that_would_share_topics_is_not_created() -> None:
    process = await SharedDocuments().process()
    await process.create(ONE)
    for attempt in (process.create(OTHER), process.ensure(OTHER), process.create(NamespaceName("a", "b"))):
        error = await _refused(attempt)
        assert error.kind is ErrorKind.BAD_PARAMETER
        assert "would share topics with a/b.c" in error.message
    await process.delete(ONE)
    await process.create(OTHER)


async def test_of_two_processes_that_create_at_once_one_wins() -> None:
    documents = SharedDocuments()
    first, second = await documents.process(), await documents.process()
    results = await asyncio.gather(first.create(ONE), second.create(OTHER), return_exceptions=True)
    assert results[0] is None
    assert isinstance(results[1], PenstockError)
    assert results[1].kind is ErrorKind.BAD_PARAMETER
    for process in (first, second, await documents.process()):
        assert process.exists(ONE)
        assert not process.exists(OTHER)


async def test_namespaces_that_share_topics_already_are_served_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    documents = SharedDocuments()
    await documents.save_meta([(KIND, str(ONE), b"{}"), (KIND, str(OTHER), b"{}")])
    with caplog.at_level(logging.WARNING):
        process = await documents.process()
    assert [record.message for record in caplog.records] == [
        "namespaces share topics: their prefixes in Kafka overlap"
    ]
    assert process.exists(ONE)
    assert process.exists(OTHER)
    await process.change(ONE, lambda policies: policies)
    assert (await _refused(process.create(NamespaceName("a", "b")))).kind is ErrorKind.BAD_PARAMETER
