"""A log that is truncated while its subscriptions are served."""

from collections.abc import AsyncIterator

import pytest
from tests.support.cursor_journal import Log
from tests.support.kafka_serving import Server, offsets
from tests.support.skipping_log import SkippingLog

from penstock.engines.kafka.serving.stored import Misfit
from penstock.testing.clock import ManualClock


@pytest.fixture
def log() -> SkippingLog:
    made = SkippingLog(ManualClock())
    made.grow(0, 6)
    return made


@pytest.fixture
async def server(log: SkippingLog) -> AsyncIterator[Server]:
    made = Server(Log(), "p", log)
    await made.gain()
    yield made
    await made.close()


async def test_cursors_beyond_the_end_begin_where_no_message_is_missed(
    server: Server, log: SkippingLog
) -> None:
    topic, served = server.topic, server.served
    consumer = await server.subscribe()
    assert await offsets(consumer) == set(range(6))
    subscription = await served.find(topic, "s")
    assert subscription is not None
    subscription.skip(6)
    await served.create(topic, "unused", 6)
    await served.create(topic, "behind", 2)
    served.transient(topic, "reader", 6)

    log.entries = {offset: log.entries[offset] for offset in range(4)}
    log.next_entry = log.next_offset = 4
    log.grow(0, 4)  # before this process looks: the cursors seem to fit
    await topic.refresh()
    topic.cut_at = 4
    await served.refit(topic)

    assert consumer.closed
    assert topic.cut_at is None
    marks = {name: one.cursor.mark for name, one in topic.served.items()}
    assert marks == {"s": 0, "unused": 0, "behind": 2, "reader": 4}
    assert served.stored.misfits == {Misfit.BEYOND_END: 2}
    again = await server.subscribe()
    assert await offsets(again) == set(range(8))


async def test_consumers_of_this_process_start_over_at_any_owner(server: Server) -> None:
    """They may have got messages whose offsets others have now."""

    class Attached:
        durable = True

        def __init__(self) -> None:
            self.consumers = [self]
            self.started_over: list[object] = []

        def start_over(self, source: object) -> None:
            self.started_over.append(source)

    attached = Attached()
    server.topic.subscriptions["s"] = attached
    await server.release()
    server.topic.cut_at = 4
    await server.served.refit(server.topic)
    assert attached.started_over == [attached]


async def test_another_process_fits_the_cursors_of_its_partitions(server: Server) -> None:
    topic, served = server.topic, server.served
    await served.create(topic, "s", 6)
    await server.release()
    topic.cut_at = 4
    await served.refit(topic)
    assert topic.cut_at is None
    assert not topic.served
    assert not served.stored.misfits
