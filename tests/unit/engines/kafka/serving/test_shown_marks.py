"""Groups in which Kafka's tools see where subscriptions stand."""

import logging
from collections.abc import AsyncIterator

import pytest
from tests.support.cursor_journal import Log
from tests.support.kafka_serving import TOPIC, Groups, Server, id_of, offsets
from tests.support.skipping_log import SkippingLog

from penstock.engines.kafka.serving.shown_marks import PAUSE_MAX_S, PAUSE_S, REFUSED_S, SHOW_S
from penstock.model.errors import ErrorKind, PenstockError
from penstock.testing.clock import ManualClock

GROUP = f"penstock:{TOPIC}:s"
PLACE = (TOPIC, 0)


@pytest.fixture
async def servers() -> AsyncIterator[tuple[Server, Server]]:
    log, journal, groups = SkippingLog(ManualClock()), Log(), Groups()
    log.grow(0, 10)
    made = Server(journal, "a", log, groups), Server(journal, "b", log, groups)
    yield made
    for one in made:
        await one.close()


async def acknowledge(server: Server, *which: int) -> None:
    (consumer,) = next(iter(server.topic.served.values())).consumers
    for offset in which:
        await consumer.acknowledge(id_of(offset))
    await consumer.flush()


async def show(server: Server) -> None:
    """Have everything shown that is due now."""
    while (wait_s := await server.marks.show_next()) is not None and wait_s < 1:
        pass


async def test_a_mark_is_shown_when_it_has_changed_and_not_too_often(servers: tuple[Server, Server]) -> None:
    a, _ = servers
    await a.gain()
    consumer = await a.subscribe()
    await offsets(consumer)
    await show(a)
    assert a.groups.commits == {GROUP: {PLACE: 0}}
    await acknowledge(a, 0, 1, 4)
    await show(a)
    assert a.groups.commits[GROUP] == {PLACE: 0}, "it was committed again too soon"
    a.now_s += SHOW_S
    await show(a)
    assert a.groups.commits[GROUP] == {PLACE: 2}
    calls = a.groups.calls
    a.now_s += SHOW_S
    await acknowledge(a, 6)  # the mark stays
    await show(a)
    assert await a.marks.show_next() is None
    assert a.groups.calls == calls


@pytest.mark.parametrize(("took_s", "pause_s"), [(0.0, PAUSE_S), (0.05, 0.45), (3.0, PAUSE_MAX_S)])
async def test_the_slower_a_commit_the_longer_the_pause_after_it(
    servers: tuple[Server, Server], took_s: float, pause_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = servers
    await a.gain()
    await a.served.create(a.topic, "s", 3)

    async def commit(group: str, changes: object) -> None:
        a.now_s += took_s

    monkeypatch.setattr(a.groups, "commit", commit)
    assert await a.marks.show_next() == pytest.approx(pause_s)


async def test_the_next_owner_shows_what_the_last_one_did_not(servers: tuple[Server, Server]) -> None:
    a, b = servers
    await a.gain()
    await offsets(await a.subscribe())
    await acknowledge(a, 0)
    await a.release()
    await b.gain()
    await show(a)
    assert a.groups.commits == {}, "a process shows marks of a slot that it does not own"
    await show(b)
    assert b.groups.commits == {GROUP: {PLACE: 1}}


async def test_a_group_ends_with_the_last_partition_of_its_subscription(
    servers: tuple[Server, Server],
) -> None:
    a, _ = servers
    await a.gain()
    for name in ("s", "other"):
        await a.served.create(a.topic, name, 3)
    await show(a)
    assert set(a.groups.commits) == {GROUP, f"penstock:{TOPIC}:other"}
    await a.topic.served["s"].delete()
    a.now_s += SHOW_S
    await show(a)
    assert set(a.groups.commits) == {f"penstock:{TOPIC}:other"}


async def test_a_group_of_another_program_is_left_alone(servers: tuple[Server, Server]) -> None:
    a, _ = servers
    a.groups.errors[GROUP] = PenstockError(ErrorKind.SUBSCRIPTION_BUSY, "it has consumers")
    await a.gain()
    await a.served.create(a.topic, "s", 3)
    await show(a)
    assert a.groups.calls == 1
    await a.served.create(a.topic, "other", 4)
    await show(a)
    assert a.groups.commits == {f"penstock:{TOPIC}:other": {PLACE: 4}}
    del a.groups.errors[GROUP]
    a.now_s += REFUSED_S
    await show(a)
    assert a.groups.commits[GROUP] == {PLACE: 3}


async def test_missing_rights_are_logged_once(
    servers: tuple[Server, Server], caplog: pytest.LogCaptureFixture
) -> None:
    a, _ = servers
    for name in ("s", "other"):
        a.groups.errors[f"penstock:{TOPIC}:{name}"] = PenstockError(ErrorKind.FORBIDDEN, "not authorized")
    await a.gain()
    caplog.set_level(logging.WARNING)
    for name in ("s", "other"):
        await a.served.create(a.topic, name, 3)
    for _ in range(3):
        await show(a)
        a.now_s += REFUSED_S
    assert 1 <= a.groups.calls <= 3
    assert len([one for one in caplog.records if "not shown" in one.message]) == 1
    a.groups.errors.clear()
    await show(a)
    assert len(a.groups.commits) == 2
