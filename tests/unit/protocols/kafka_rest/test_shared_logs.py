"""The logs of a cluster whose positions are in use: what is counted is kept when it is let go."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.support.cluster_log import NAME, ClusterLog, JournalOfProcess, TopicOfProcess

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.protocols.kafka_rest import logs as module
from penstock.protocols.kafka_rest.blocks import Blocks
from penstock.protocols.kafka_rest.checkpoints import Checkpoint
from penstock.protocols.kafka_rest.logs import SharedLogs
from penstock.runtime.tasks import Tasks
from penstock.testing.clock import ManualClock

FRAME = 14


class AllJournals:
    """`broker.Journals` in memory."""

    def __init__(self) -> None:
        self.records: dict[TopicName, list[bytes]] = {}

    def open(self, log: TopicName, kind: str) -> JournalOfProcess:
        assert kind == "positions"
        return JournalOfProcess(self.records.setdefault(log, []))

    def kept(self, log: TopicName = NAME) -> tuple[int, int]:
        """The last point of the checkpoints."""
        return msgspec.json.decode(self.records[log][-1], type=Checkpoint).points[-1]


def topic(number: int = 0) -> Any:
    log = ClusterLog()
    for n in range(3):
        log.append(b"%04d" % n)
    found = TopicOfProcess(log, ManualClock())
    if number:
        found.name = NAME.sibling(f"t{number}")
    return found


async def test_what_was_counted_is_kept_at_the_end() -> None:
    journals, tasks = AllJournals(), Tasks()
    logs = SharedLogs(journals.open, tasks, Blocks())
    one = topic()
    assert await logs.of(one).extend() == 3 * FRAME
    assert logs.of(one) is logs.of(one)
    assert journals.kept() == (0, 0)
    await logs.close()
    assert journals.kept() == (3, 3 * FRAME)
    await logs.close()
    assert len(journals.records[NAME]) == 2
    await tasks.close()


async def test_a_topic_that_was_opened_again_is_looked_at_again() -> None:
    tasks = Tasks()
    logs = SharedLogs(AllJournals().open, tasks, Blocks())
    assert logs.of(topic()) is not logs.of(topic())
    await tasks.close()


async def test_the_least_recently_used_is_kept_and_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOGS_MAX", 2)
    journals, tasks = AllJournals(), Tasks()
    logs = SharedLogs(journals.open, tasks, Blocks())
    topics = [topic(number) for number in (1, 2, 3)]
    found = [logs.of(one) for one in topics[:2]]
    await found[0].extend()
    await found[1].extend()
    logs.of(topics[0])
    logs.of(topics[2])  # in place of the second
    while len(journals.records[topics[1].name]) == 1:
        await asyncio.sleep(0)
    assert journals.kept(topics[1].name) == (3, 3 * FRAME)
    assert logs.of(topics[0]) is found[0]
    assert logs.of(topics[1]) is not found[1]
    await tasks.close()


async def test_a_log_that_cannot_be_kept_does_not_hinder_others(caplog: pytest.LogCaptureFixture) -> None:
    journals, tasks = AllJournals(), Tasks()
    logs = SharedLogs(journals.open, tasks, Blocks())
    topics = [topic(1), topic(2)]
    for one in topics:
        await logs.of(one).extend()

    async def refused(record: bytes) -> None:
        raise PenstockError(ErrorKind.UNAVAILABLE, "the cluster is away")

    logs.of(topics[0])._checkpoints._journal.append = refused  # type: ignore[method-assign]
    await logs.close()
    assert "positions not kept: the cluster is away" in caplog.text
    assert journals.kept(topics[0].name) == (0, 0)
    assert journals.kept(topics[1].name) == (3, 3 * FRAME)
    await tasks.close()
