"""The client's consumer of entries against the embedded engine's binary endpoint."""

from collections.abc import AsyncIterator

import pytest
from tests.support.entry_consumers import Consumers
from tests.support.waiting import until_async

from penstock.client.enums import ConsumerType
from penstock.client.errors import ReadError
from penstock.model.message_id import MessageId
from penstock.testing.server import running


@pytest.fixture
async def server() -> AsyncIterator[Consumers]:
    with running() as address:
        made = Consumers(address.pulsar, "public/default")
        yield made
        await made.close()


async def test_entries_come_numbered_and_acknowledged_ones_do_not_come_again(server: Consumers) -> None:
    await server.publish("a", "b", "c", batch=True)
    await server.publish("d", "e")
    consumer, taking = await server.consume()
    await taking.come(3)
    assert taking.payloads == ["a", "b", "c", "d", "e"]
    assert [(one.count, one.mask, one.index) for one in taking.entries] == [(3, 7, 2), (1, 1, 3), (1, 1, 4)]
    consumer.acknowledge(taking.places[1:])
    consumer.acknowledge_part(taking.places[0], 0b010)
    await consumer.flush()
    await consumer.close()
    _, again = await server.consume()
    await again.come(1)
    assert again.payloads == ["b"]


async def test_a_cut_connection_gives_permits_again_and_loses_no_acknowledgement(server: Consumers) -> None:
    await server.publish(*"abc")
    consumer, taking = await server.consume(ConsumerType.Shared, permits=10)
    await taking.come(3)
    assert consumer._link is not None
    consumer._link.abort(ReadError("cut by the test"))
    await until_async(lambda: taking.resets >= 1)
    consumer.acknowledge(taking.places[:2])
    taking.entries.clear()
    await consumer.flush()
    await taking.come(1)
    assert taking.payloads == ["c"]
    assert consumer.permits == 10 - 3 - 1


async def test_seek_redelivery_and_what_is_done(server: Consumers) -> None:
    await server.publish(*"abcd")
    consumer, taking = await server.consume(ConsumerType.Failover)
    await taking.come(4)
    consumer.acknowledge_up_to(taking.places[1])
    await consumer.flush()
    last, done = await consumer.last_message_id()
    assert (last.ledger, last.entry) == taking.places[3]
    assert done is not None
    assert (done.ledger, done.entry) == taking.places[1]
    consumer.redeliver_all()
    await taking.come(6)
    assert taking.payloads[4:] == ["c", "d"]
    ledger, entry = taking.places[0]
    taking.entries.clear()
    await consumer.seek(MessageId(ledger, entry))
    await taking.come(3)
    assert taking.payloads == ["b", "c", "d"]
    await until_async(lambda: taking.actives[-1:] == [True])


@pytest.mark.parametrize("inclusive", [False, True])
async def test_readers_begin_after_or_with_an_id(server: Consumers, inclusive: bool) -> None:
    await server.publish(*"abc")
    _, taking = await server.consume()
    await taking.come(3)
    ledger, entry = taking.places[1]
    _, read = await server.consume(
        name="reader", durable=False, start=MessageId(ledger, entry), inclusive=inclusive
    )
    wanted = ["b", "c"] if inclusive else ["c"]
    await read.come(len(wanted))
    assert read.payloads == wanted
