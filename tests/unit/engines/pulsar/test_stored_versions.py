"""What is staged in Pulsar: messages of every version are read, and one of a newer version is an error."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from tests.support.cluster_vectors import VERSIONS, entry_of, messages

from penstock.broker.producer import Reply
from penstock.engines.pulsar.staging.log import Opened, WriterState, packed, record_of
from penstock.engines.pulsar.staging.parts import read_batch
from penstock.engines.pulsar.staging.space import StagingSpace
from penstock.engines.shared.replies import CORRELATION_ID, REPLY_TO, TopicPerProcess, address_of, receive
from penstock.engines.shared.requests import Requests
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.formats import VERSION
from penstock.model.message import REQUEST_TIMEOUT_PROPERTY, Message, OutMessage
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.testing.clock import ManualClock
from penstock.wire import entry as wire


class Reader:
    """What a batch's topic has."""

    def __init__(self, stored: Sequence[OutMessage]) -> None:
        self._entries = [entry_of(one, number) for number, one in enumerate(stored)]
        self._end = len(stored) - 1

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def last_message_id(self) -> MessageId:
        return MessageId(1, self._end)

    async def wait(self, timeout_s: float) -> bool:
        return True

    def take(self) -> Entry:
        return self._entries.pop(0)


class Space(StagingSpace):
    """Where batches are."""

    def __init__(self, stored: Sequence[OutMessage]) -> None:
        self._stored: Any = Reader(stored)

    def reader(self, topic: TopicName) -> Any:
        return self._stored

    def batch_of(self, writer: str, batch: int) -> TopicName:
        return TopicName.parse(f"public/staged/{writer}.{batch}")


def newer(message: OutMessage) -> OutMessage:
    return msgspec.structs.replace(message, properties={**(message.properties or {}), VERSION: "2"})


@pytest.mark.parametrize("version", VERSIONS)
async def test_staged_parts_of_every_version_are_read(version: int) -> None:
    stored = messages(version, "batch")
    assert {(one.properties or {}).get(VERSION) for one in stored} == {None if version == 0 else f"{version}"}
    expected = (await read_batch(Space(stored), "job", 4)).expected("s")
    assert (expected.parts, expected.messages) == (1, 3)
    with pytest.raises(PenstockError, match=r"staged part 'job.4' has version 2") as caught:
        await read_batch(Space([*stored, newer(stored[-1])]), "job", 4)
    assert caught.value.kind is ErrorKind.NEWER_FORMAT


@pytest.mark.parametrize("version", VERSIONS)
def test_logs_of_writers_of_every_version_are_read(version: int) -> None:
    stored = messages(version, "writer")
    assert {(one.properties or {}).get(VERSION) for one in stored} == {None if version == 0 else f"{version}"}
    state = WriterState("job")
    for number, one in enumerate(stored):
        state.apply(record_of(entry_of(one, number), "job"))
    assert state.claimed is not None
    assert [(commit.batch, commit.messages) for commit in state.commits.values()] == [(3, 3)]
    assert state.open is None
    with pytest.raises(PenstockError, match="writer's log 'job' has version 2") as caught:
        record_of(entry_of(newer(stored[-1])), "job")
    assert caught.value.kind is ErrorKind.NEWER_FORMAT


def test_records_of_a_writer_name_their_version() -> None:
    data = packed(Opened(), producer="p", sequence_id=1, at=1)
    (message,) = wire.decode(Entry(1, 0, 0, 1, 1, 0, data))
    assert message.properties == {VERSION: "1"}


@pytest.mark.parametrize("version", [*VERSIONS, 2])
def test_replies_by_messages(version: int) -> None:
    requests = Requests(ManualClock(), 1000, correlated=True)
    ended: list[object] = []
    (request,) = requests.ask([OutMessage(payload=b"?")], [1000])
    assert request is not None
    request._leave()
    request.enter("0123456789abcdef-1")
    request.placed(MessageId(1, 1))
    request.call_when_ended(lambda _, end: ended.append(end))
    (stored,) = messages(min(version, 1), "replies")
    if version == 2:
        stored = newer(stored)
    receive(requests, stored.properties or {}, stored.payload)
    (end,) = ended
    if version == 2:
        assert isinstance(end, PenstockError)
        assert end.kind is ErrorKind.NEWER_FORMAT
    else:
        assert isinstance(end, Reply)
        assert (end.content, end.is_error, end.schema_version) == (b"done", True, 2)


def test_a_request_of_a_newer_version_is_not_replied_to() -> None:
    topic, addresses = TopicName.parse("orders"), TopicPerProcess()
    given = {
        REPLY_TO: "non-persistent://public/default/penstock-replies-1",
        CORRELATION_ID: "1-1",
        REQUEST_TIMEOUT_PROPERTY: "1000",
    }
    assert address_of(Message(payload=b"", properties=given), topic, addresses) is not None
    with pytest.raises(PenstockError, match="message 'request 1-1' has version 2"):
        address_of(Message(payload=b"", properties={**given, VERSION: "2"}), topic, addresses)
