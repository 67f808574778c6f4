"""Journals of the Pulsar engine: what is read once is not lost, and what the cluster refuses is said."""

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.broker.journal import JournalLostError
from penstock.engines.pulsar.journals import PulsarJournal, PulsarJournals
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.model.policy import ProducerOptions
from penstock.model.target import Target
from penstock.wire import entry as wire

LOG = TopicName.parse("public/default/foo-partition-3")


class Cluster:
    """A cluster with the topic of one journal, as far as journals ask it."""

    def __init__(self) -> None:
        self.admin = self
        self.there = False
        self.made: list[object] = []
        self.entries: list[Entry] = []
        self.first_offset = self.next_offset = 0
        self.fails_at = -1  # reads of this offset
        self.refusal: PenstockError | None = None
        self.options = ProducerOptions()
        self.closed = False

    # -- its administration, topics and log

    async def call(self, method: str, target: Target, *, body: object, **more: object) -> None:
        self.made.append((method, target.path, body))
        raise PenstockError(ErrorKind.ALREADY_EXISTS, "it is there")

    async def learn(self, name: TopicName) -> None: ...

    def exists(self, name: TopicName) -> bool:
        return self.there

    async def create(self, name: TopicName, partitions: int) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.made.append((name, partitions))
        self.there = True

    async def get(self, name: TopicName, *, create: bool) -> "Cluster":
        if not self.there:
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, "it is not there")
        return self

    async def refresh(self) -> None: ...

    async def read_at(self, offset: int, entries_max: int) -> list[Entry]:
        if offset == self.fails_at:
            self.fails_at = -1
            raise PenstockError(ErrorKind.UNAVAILABLE, "the cluster is away")
        return [one for one in self.entries if one.offset == offset]

    # -- its producer

    async def open(self, name: TopicName, options: ProducerOptions) -> "Cluster":
        self.options = options
        return self

    async def publish(self, messages: Sequence[OutMessage]) -> list[MessageId | PenstockError]:
        if self.refusal is not None:
            return [self.refusal]
        entry = wire.encode(messages, producer="p", sequence_id=0, publish_time=1, schema_version=None)
        self.entries.append(Entry(1, self.next_offset, self.next_offset, 1, 1, 0, entry.data))
        self.next_offset += 1
        return [MessageId(1, self.next_offset - 1)]

    def journal(self) -> PulsarJournal:
        given: Any = self
        return PulsarJournals(given, given, given.open).open(LOG, "test")


async def test_a_journal_is_a_topic_of_its_own_in_a_namespace_that_keeps_everything() -> None:
    cluster = Cluster()
    journal = cluster.journal()
    assert list(await journal.read_on()) == []
    await journal.append(b"a")
    await journal.append(b"b")
    (method, path, body), (name, partitions) = cluster.made  # type: ignore[misc]
    assert (method, path) == ("PUT", "/admin/v2/namespaces/public/penstock")
    assert body["retention_policies"] == {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    assert str(name) == "persistent://public/penstock/default~foo-partition-3.test"
    assert (name.partition, partitions) == (-1, 0)
    assert cluster.options.stateless
    assert list(await journal.read_on()) == [b"a", b"b"]
    assert list(await journal.read_on()) == []


async def test_a_read_that_fails_half_way_loses_nothing() -> None:
    cluster = Cluster()
    journal = cluster.journal()
    for record in (b"a", b"b", b"c"):
        await journal.append(record)
    cluster.fails_at = 2
    with pytest.raises(PenstockError, match="the cluster is away"):
        await journal.read_on()
    assert list(await journal.read_on()) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("how", ["deleted", "made anew", "trimmed"])
async def test_a_journal_that_is_gone_is_lost(how: str) -> None:
    cluster = Cluster()
    journal = cluster.journal()
    await journal.append(b"a")
    assert list(await journal.read_on()) == [b"a"]
    if how == "deleted":
        cluster.there = False
    elif how == "made anew":
        cluster.next_offset = 0
    else:
        cluster.first_offset = cluster.next_offset = 5
    with pytest.raises(JournalLostError):
        await journal.read_on()


async def test_a_journal_whose_beginning_is_gone_is_read_from_what_is_there() -> None:
    cluster = Cluster()
    for record in (b"a", b"b"):
        await cluster.journal().append(record)
    del cluster.entries[0]
    cluster.first_offset = 1
    assert list(await cluster.journal().read_on()) == [b"b"]


@pytest.mark.parametrize("there", [False, True])
async def test_what_the_cluster_refuses_is_no_refusal_of_the_caller(there: bool) -> None:
    cluster = Cluster()
    cluster.there = there
    cluster.refusal = PenstockError(ErrorKind.FORBIDDEN, "not you")
    with pytest.raises(PenstockError, match=r"namespace public/penstock has to be there.* not you") as caught:
        await cluster.journal().append(b"a")
    assert caught.value.kind is ErrorKind.UNAVAILABLE
