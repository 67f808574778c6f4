"""What is kept in Kafka: records of every version are read, those of a newer one are neither understood nor written over."""

import logging
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.support.cluster_vectors import VERSIONS, StoredRecord, records

from penstock.broker.namespaces import TenantInfo
from penstock.broker.producer import Reply
from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.broker.staging import Caller
from penstock.engines.kafka import headers
from penstock.engines.kafka.documents import Documents, TopicProperties, _format_of
from penstock.engines.kafka.driver.record import Header
from penstock.engines.kafka.driver.shared_log import CompactedTopic, Row, row_of
from penstock.engines.kafka.naming import Naming
from penstock.engines.kafka.policies import KafkaNamespaces, KafkaPolicies
from penstock.engines.kafka.records import entries_of
from penstock.engines.kafka.replies import ReplyPartitions
from penstock.engines.kafka.staging.parts import KafkaParts, Staged
from penstock.engines.kafka.staging.writers import KafkaWriters
from penstock.engines.registry import namespaces, policies, schemas
from penstock.engines.registry.schemas import Schemas
from penstock.engines.shared.requests import Requests
from penstock.engines.staging.staging import Staging
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.formats import COMMITS, DOCUMENTS, PARTS, VERSION, Format, version_of
from penstock.model.message import OutMessage
from penstock.model.message_id import MessageId
from penstock.model.names import NamespaceName, TopicName
from penstock.model.policy import NamespacePolicies, Retention, TopicPolicies
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.model.stage import StageKey
from penstock.runtime.clock import LoopClock
from penstock.runtime.failures import FailureKind, Failures
from penstock.runtime.tasks import Tasks
from penstock.testing.clock import ManualClock
from penstock.wire import entry as wire
from penstock.wire.payloads import LazyEntry

SALES = NamespaceName("acme", "sales")
PLAIN, ORDERS = TopicName.parse("plain"), TopicName.parse("orders")


class Table:
    """A compacted topic that this process alone writes to."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self.written: list[Row] = []

    async def append(self, rows: Sequence[Row]) -> None:
        self.written += rows
        self._documents._changed(list(rows))


def rows_of(stored: Sequence[StoredRecord], format_of: Callable[[str], Format]) -> list[Row]:
    """The rows as a process reads them."""
    return [row for one in stored if (row := row_of(one, format_of)) is not None]


class Process:
    """What a process before Kafka makes of the documents that it reads as it starts."""

    def __init__(self, stored: Sequence[StoredRecord]) -> None:
        self.failures = Failures(LoopClock())
        nobody: Any = None
        self.documents = Documents(
            nobody,
            "__penstock",
            once=(schemas.KIND,),
            failures=self.failures,
            fields={
                namespaces.KIND: NamespacePolicies.__struct_fields__,
                namespaces.TENANT: TenantInfo.__struct_fields__,
                policies.KIND: TopicPolicies.__struct_fields__,
            },
        )
        self.documents._changed(rows_of(stored, _format_of))
        self.table = Table(self.documents)
        self.documents._table = self.table  # type: ignore[assignment]
        reader = self.documents.reader
        self.namespaces = KafkaNamespaces(self.documents, Naming({}), auto_create=True, reader=reader)
        self.policies = KafkaPolicies(self.documents, self.namespaces, BrokerSettings(), reader=reader)
        self.schemas = Schemas(self.documents, self.namespaces, LoopClock(), 1 << 20, reader=reader)
        self.properties = TopicProperties(self.documents, reader)

    async def load(self) -> "Process":
        await self.namespaces.load()
        await self.policies.load()
        await self.schemas.load()
        await self.properties.load()
        return self

    @property
    def failing(self) -> dict[str, str]:
        """The documents that cannot be read, and why."""
        return {one.subject: one.message for one in self.failures.ongoing if one.kind is FailureKind.DOCUMENT}


def kind_of(record: StoredRecord) -> str:
    return (record.key() or b"").partition(b"\0")[0].decode()


# -- documents


@pytest.mark.parametrize("version", VERSIONS)
async def test_documents_of_every_version_are_read(version: int) -> None:
    stored = records(version, "documents")
    found = await Process(stored).load()
    assert found.failing == {}
    sales = found.namespaces.policies(SALES)
    assert (sales.retention, sales.permissions) == (Retention(60, 10), {"clerk": ("produce",)})
    assert found.namespaces.tenants["acme"].admin_roles == ("boss",)
    assert found.policies.of_topic(PLAIN).retention == Retention()
    assert found.properties.of(PLAIN) == {"team": "a"}
    assert found.schemas.get(ORDERS).schema.type is SchemaType.AVRO
    # Kinds that are not known are those of earlier releases: nothing reads them.
    read = {kind_of(one) for one in stored}
    later = {"fleet"} if version == 0 else set()
    assert read >= set(DOCUMENTS) - later, "there is a record of each kind"


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_written_from_version_1_on_names_it(version: int) -> None:
    for place in ("documents", "parts", "commits"):
        named = {version_of(one.headers()) for one in records(version, place) if one.value() is not None}
        assert named == ({None} if version == 0 else {b"%d" % version}), place


def newest_of(stored: Sequence[StoredRecord], kind: str) -> StoredRecord:
    return [one for one in stored if kind_of(one) == kind and one.value() is not None][-1]


async def test_a_namespace_of_a_newer_version_grants_nothing_and_stays() -> None:
    stored = records(1, "documents")
    granting = (
        b'{"permissions":{"clerk":["produce"]}}'  # as it could be read, if one did not look at the version
    )
    found = await Process([*stored, newest_of(stored, "namespace").newer(granting)]).load()
    assert found.namespaces.exists(SALES), "else its topics would be another namespace's"
    assert found.namespaces.policies(SALES).permissions == {}
    ((subject, why),) = found.failing.items()
    assert subject == "namespace acme/sales"
    assert "document namespace 'namespace acme/sales' has version 2" in why
    for change in (
        found.namespaces.update(SALES, NamespacePolicies()),
        found.namespaces.delete(SALES),
        found.documents.save_meta([("tenant", "other", b"{}"), ("namespace", str(SALES), b"{}")]),
    ):
        with pytest.raises(PenstockError, match="has version 2") as caught:
            await change
        assert caught.value.kind is ErrorKind.NEWER_FORMAT
    assert found.table.written == []
    await found.namespaces.update(NamespaceName("acme", "other"), NamespacePolicies())
    assert len(found.table.written) == 1, "all others are written"


async def test_a_document_that_becomes_newer_while_the_process_runs() -> None:
    stored = records(1, "documents")
    found = await Process(stored).load()
    found.documents.listeners["namespace"].append(found.namespaces.learned)
    found.documents.listeners["tenant"].append(found.namespaces.learned_tenant)
    newer = [newest_of(stored, kind).newer() for kind in ("namespace", "tenant")]
    found.documents._changed(rows_of(newer, _format_of))
    assert set(found.failing) == {"namespace acme/sales", "tenant acme"}
    assert found.namespaces.policies(SALES).permissions == {}
    assert "boss" not in found.namespaces.tenants["acme"].admin_roles
    again = [newest_of(stored, kind) for kind in ("namespace", "tenant")]
    found.documents._changed(rows_of(again, _format_of))
    assert found.failing == {}
    assert found.namespaces.policies(SALES).permissions == {"clerk": ("produce",)}
    assert "boss" in found.namespaces.tenants["acme"].admin_roles


async def test_a_schema_of_a_newer_version_keeps_its_number() -> None:
    stored = records(1, "documents")
    (schema,) = [one for one in stored if (one.key() or b"").startswith(b"schema\0public/default/orders")]
    stored.remove(schema)
    found = await Process([*stored, schema.newer()]).load()
    with pytest.raises(PenstockError, match="has no schema version 0"):
        found.schemas.version(ORDERS, 0)
    taken = found.schemas._row("public/default/orders", 0)
    with pytest.raises(PenstockError, match="has version 2"):
        await found.documents.save_meta([("schema", taken, b"{}")])
    found.documents.listeners["schema"].append(found.schemas.learned)
    number = await found.schemas.get_or_create(ORDERS, SchemaInfo(SchemaType.STRING))
    assert number == 1


async def test_fields_that_a_newer_process_wrote_stay() -> None:
    stored = records(1, "documents")
    namespace = newest_of(stored, "namespace")
    fields = msgspec.json.decode(namespace.value() or b"")
    added = msgspec.json.encode({**fields, "later": {"a": [1, 2]}})
    found = await Process([*stored, msgspec.structs.replace(namespace, the_value=added)]).load()
    assert found.failing == {}
    assert found.namespaces.policies(SALES).retention == Retention(60, 10)

    async def told(name: NamespaceName) -> None: ...

    found.namespaces.apply = told
    await found.namespaces.change(
        SALES, lambda policies: msgspec.structs.replace(policies, retention=None, permissions={})
    )
    ((_, document),) = found.table.written
    assert msgspec.json.decode(document or b"") == {"later": {"a": [1, 2]}}
    # Of what is a map of the users' own, each key is theirs.
    await found.properties.save(PLAIN, {"other": "b"})
    assert found.table.written[-1][1] == b'{"other":"b"}'


def test_rows_name_their_version_as_they_are_written() -> None:
    produced: list[tuple[bytes, list[Header] | None]] = []

    class Producer:
        def produce(self, topic: str, value: bytes | None, key: bytes, **more: Any) -> None:
            produced.append((key, more["headers"]))
            more["on_delivery"](None, records(1, "documents")[0])

    admin: Any = SimpleNamespace(clients=SimpleNamespace(generation=0), timeout_s=1.0)
    table = CompactedTopic(admin, "t", lambda rows: None, lambda row: Format("x", 3, 3))
    table._producer = Producer()
    table._write(table._encoded([("a", b"{}"), ("b", None)]))
    assert produced == [(b"a", [(VERSION, b"3")]), (b"b", None)]


# -- staging


class Space:
    """The topics of staging; nothing is asked of them."""

    entries, parts, commits, transactional_prefix = "staging", "parts", "commits", "p-"


def parts_of(stored: Sequence[StoredRecord]) -> KafkaParts:
    nobody: Any = None
    space: Any = Space()
    made = KafkaParts(space, nobody, nobody, LoopClock())
    made._changed(rows_of(stored, lambda row: PARTS))
    return made


def writers_of(stored: Sequence[StoredRecord]) -> KafkaWriters:
    nobody: Any = None
    space: Any = Space()
    made = KafkaWriters(space, nobody, nobody, nobody, nobody, LoopClock(), 0)
    made._changed(rows_of(stored, lambda row: COMMITS))
    return made


@pytest.mark.parametrize("version", VERSIONS)
def test_staged_parts_and_commits_of_every_version_are_read(version: int) -> None:
    parts = parts_of(records(version, "parts"))
    assert list(parts.known("job")) == [4], "the other one is committed"
    expected = parts.held("job", 4).expected("s")
    assert (expected.parts, expected.messages) == (1, 3)
    ((attempt, part),) = parts.held("job", 4).parts_of("s")
    keys = [one.key() for one in records(version, "staging") if one.the_partition == part.partition]
    assert attempt.encode() in keys
    known = writers_of(records(version, "commits"))._known.get("job")
    assert known is not None
    assert [(commit.batch, commit.messages) for commit in known.commits.values()] == [(3, 3)]
    assert known.claimed is not None


async def test_a_part_of_a_newer_version_is_not_committed_and_not_trimmed() -> None:
    stored = records(1, "parts")
    row = [one for one in stored if one.value() is not None][-1]
    other = msgspec.structs.replace(row, the_key=(row.key() or b"").replace(b'"job"', b'"other"'))
    parts = parts_of([*stored, other, row.newer()])

    async def catch_up() -> None: ...

    parts._catch_up = catch_up  # type: ignore[method-assign]
    for call in (lambda: parts.batch("job", 4), lambda: parts.batches("job")):
        with pytest.raises(PenstockError, match=r"staged part .* has version 2") as caught:
            await call()  # type: ignore[no-untyped-call]
        assert caught.value.kind is ErrorKind.NEWER_FORMAT
    assert list((await parts.batch("other", 4)).stages) == ["s"]
    assert [held.writer for held in parts.expired(2**62)] == ["other"]
    await parts.sweep()  # which would ask the cluster, else
    gone = msgspec.structs.replace(row, the_value=None, the_headers=[])
    parts._changed(rows_of([gone], lambda row: PARTS))
    await parts.batches("job")


async def test_a_writer_of_a_newer_version_is_not_touched() -> None:
    stored = records(1, "commits")
    row = [one for one in stored if one.value() is not None][-1]
    writers = writers_of([*stored, row.newer()])
    parts = parts_of([])
    staging = Staging[Staged](parts, writers, LoopClock(), Tasks(), timeout_ms=1, sweep_ms=1)

    async def nothing() -> None: ...

    writers._catch_up = parts._catch_up = nothing  # type: ignore[method-assign]
    staging._started = True
    log: Any = SimpleNamespace(name=PLAIN, check_open=lambda: None)
    entry: Any = object()
    for work in (
        staging.commit("job", 9, [], Caller()),
        staging.stage(StageKey("job", 9, "s"), 0, 0, [(log, [entry])], Caller()),
        staging.forget("job", Caller()),
        staging.abort("job", 9, Caller()),
        staging.writers(Caller(), "", 9),
    ):
        with pytest.raises(PenstockError, match=r"staged commit .* has version 2"):
            await work  # no transaction is begun: there is no cluster
    assert await writers.idle() == []
    gone = msgspec.structs.replace(row, the_value=None, the_headers=[])
    writers._changed(rows_of([gone], lambda row: COMMITS))
    writers.check("job")


# -- messages and replies


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_of_every_version_are_read(version: int) -> None:
    stored: Any = records(version, "messages")
    one, sealed = entries_of(stored, 0, 1)
    (message,) = wire.decode(one)
    assert (message.payload, message.key, message.key_is_base64) == (b"text", "aw==", True)
    assert message.properties["penstock-b"] == "2"
    assert (message.event_time, message.sequence_id) == (1_700_000_000_000, 7)
    assert (one.deliver_at, message.schema_version) == (1_700_000_000_001, 3)
    assert message.ordering_key == b"o"
    assert LazyEntry(sealed.data).payloads() == [b"sealed"]


def test_a_message_of_a_newer_version_is_delivered_as_a_plain_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    headers._reported.clear()
    stored: Any = [one.newer() for one in records(1, "messages")]
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            entries = entries_of(stored, 0, 1)
    assert [one.message for one in caplog.records] == ["messages are delivered as plain records"]
    one, sealed = (wire.decode(entry)[0] for entry in entries)
    assert (one.payload, one.key, one.sequence_id, one.schema_version) == (b"text", "k", 0, None)
    assert (entries[0].deliver_at, one.event_time) == (0, 0)
    assert one.properties[VERSION] == "2"
    assert one.properties["penstock-property-penstock-b"] == "2"
    assert (sealed.payload, sealed.properties[VERSION]) == (b"sealed", "2")


@pytest.mark.parametrize("version", [*VERSIONS, 2])
def test_replies(version: int) -> None:
    requests = Requests(ManualClock(), 1000, correlated=True)
    nobody: Any = None
    cluster: Any = SimpleNamespace(settings=ClusterSettings(url="kafka://h"))
    partitions = ReplyPartitions(cluster, nobody, nobody, requests, nobody)
    ended: list[object] = []
    (request,) = requests.ask([OutMessage(payload=b"?")], [1000])
    assert request is not None
    request._leave()
    request.enter("0123456789abcdef-1")
    request.placed(MessageId(1, 1))
    request.call_when_ended(lambda _, end: ended.append(end))
    requests.process = "0123456789abcdef"
    (stored,) = records(min(version, 1), "replies")
    given: Any = [stored.newer() if version == 2 else stored]
    partitions.arrived(given)
    (end,) = ended
    if version == 2:
        assert isinstance(end, PenstockError)
        assert end.kind is ErrorKind.NEWER_FORMAT
    else:
        assert isinstance(end, Reply)
        assert (end.content, end.is_error, end.schema_version) == (b"done", True, 2)
