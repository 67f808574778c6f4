"""What the client's consumer of entries does before any broker that speaks Pulsar's protocol."""

import pytest

from penstock.client import errors
from penstock.client.enums import ConsumerType
from penstock.model.message_id import EARLIEST, MessageId

from .entry_consumers import Consumers
from .waiting import until_async


class EntryConsumerStories:
    """The tests; the fixture `consumers` is the broker's."""

    async def test_entries_come_numbered_and_acknowledged_ones_do_not_come_again(
        self, consumers: Consumers
    ) -> None:
        await consumers.publish("a", "b", "c", batch=True)
        await consumers.publish("d", "e")
        consumer, taking = await consumers.consume()
        await taking.come(3)
        assert taking.payloads == ["a", "b", "c", "d", "e"]
        assert [(one.count, one.mask, one.index) for one in taking.entries] == [
            (3, 7, 2),
            (1, 1, 3),
            (1, 1, 4),
        ]
        assert all(one.publish_time > 0 and one.redeliveries == 0 for one in taking.entries)
        assert consumer.permits == 95
        consumer.acknowledge(taking.places[:1] + taking.places[2:])
        await consumer.flush()
        await consumer.close()
        _, again = await consumers.consume()
        await again.come(1)
        assert again.payloads == ["d"]

    async def test_permits_bound_what_comes(self, consumers: Consumers) -> None:
        await consumers.publish("a", "b", "c")
        consumer, taking = await consumers.consume(permits=1)
        await taking.come(1)
        await consumer.last_message_id()  # what was sent before its answer has come
        assert taking.payloads == ["a"]
        consumer.flow(1)
        await taking.come(2)
        await consumer.last_message_id()
        assert taking.payloads == ["a", "b"]
        assert consumer.permits == 0

    async def test_acknowledgements_given_without_a_connection_go_before_the_permits(
        self, consumers: Consumers
    ) -> None:
        await consumers.publish("a", "b", "c")
        consumer, taking = await consumers.consume(permits=10)
        await taking.come(3)
        link = consumer._link
        assert link is not None
        link.abort(errors.ReadError("cut by the test"))
        await until_async(lambda: taking.resets >= 1)
        consumer.acknowledge(taking.places[:2])
        taking.entries.clear()
        await consumer.flush()
        await taking.come(1)
        assert taking.payloads == ["c"]
        assert consumer.permits == 10 - 3 - 1

    @pytest.mark.parametrize("inclusive", [False, True])
    async def test_seek_goes_on_after_or_with_a_message(self, consumers: Consumers, inclusive: bool) -> None:
        await consumers.publish("a", "b", "c")
        consumer, taking = await consumers.consume()
        await taking.come(3)
        ledger, entry = taking.places[1]
        consumer.acknowledge(taking.places)
        taking.entries.clear()
        await consumer.seek(MessageId(ledger, entry), inclusive=inclusive)
        await until_async(lambda: taking.resets >= 1)
        wanted = ["b", "c"] if inclusive else ["c"]
        await taking.come(len(wanted))
        assert taking.payloads == wanted
        consumer.acknowledge(taking.places)
        await consumer.flush()
        await consumer.close()
        _, again = await consumers.consume()
        await consumers.publish("d")
        await again.come(1)
        assert again.payloads == ["d"]  # nor is the entry left in the backlog that was passed over

    async def test_seek_into_a_batch_and_by_time(self, consumers: Consumers) -> None:
        await consumers.publish("a", "b", "c", batch=True)
        consumer, taking = await consumers.consume()
        await taking.come(1)
        first = taking.entries[0]
        taking.entries.clear()
        await consumer.seek(MessageId(first.ledger, first.entry_id, -1, 0, 3))
        await taking.come(1)
        assert taking.payloads == ["b", "c"]
        taking.entries.clear()
        await consumer.seek(0)
        await taking.come(1)
        assert taking.payloads == ["a", "b", "c"]

    async def test_redelivery_of_single_entries_counts(self, consumers: Consumers) -> None:
        await consumers.publish("a", "b")
        consumer, taking = await consumers.consume(ConsumerType.Shared)
        await taking.come(2)
        consumer.redeliver(taking.places[1:])
        await taking.come(3)
        assert taking.payloads == ["a", "b", "b"]
        assert [one.redeliveries for one in taking.entries] == [0, 0, 1]

    async def test_redelivery_of_everything_keeps_the_order(self, consumers: Consumers) -> None:
        await consumers.publish(*"abc")
        consumer, taking = await consumers.consume(ConsumerType.Exclusive)
        await taking.come(3)
        consumer.acknowledge(taking.places[:1])
        taking.entries.clear()
        consumer.redeliver_all()
        await taking.come(2)
        assert taking.payloads == ["b", "c"]

    async def test_cumulative_acknowledgement(self, consumers: Consumers) -> None:
        await consumers.publish(*"abcd")
        consumer, taking = await consumers.consume(ConsumerType.Failover)
        await taking.come(4)
        consumer.acknowledge_up_to(taking.places[2])
        await consumer.flush()
        last, done = await consumer.last_message_id()
        assert (last.ledger, last.entry) == taking.places[3]
        assert done is not None
        assert (done.ledger, done.entry) == taking.places[2]

    async def test_the_active_one_of_a_failover_subscription_changes(self, consumers: Consumers) -> None:
        await consumers.publish("a")
        one, first = await consumers.consume(ConsumerType.Failover)
        await until_async(lambda: first.actives[-1:] == [True])
        other, second = await consumers.consume(ConsumerType.Failover)
        await one.close()
        await until_async(lambda: second.actives[-1:] == [True])
        await second.come(1)
        await other.close()

    @pytest.mark.parametrize("inclusive", [False, True])
    async def test_readers_begin_after_or_with_an_id(self, consumers: Consumers, inclusive: bool) -> None:
        await consumers.publish(*"abc")
        _, taking = await consumers.consume()
        await taking.come(3)
        ledger, entry = taking.places[0]
        _, read = await consumers.consume(
            name="reader", durable=False, start=MessageId(ledger, entry), inclusive=inclusive
        )
        wanted = ["a", "b", "c"] if inclusive else ["b", "c"]
        await read.come(len(wanted))
        assert read.payloads == wanted

    async def test_a_reader_begins_within_a_batch(self, consumers: Consumers) -> None:
        await consumers.publish("a", "b", "c", batch=True)
        _, taking = await consumers.consume(name="r1", durable=False, start=EARLIEST)
        await taking.come(1)
        first = taking.entries[0]
        reader, read = await consumers.consume(
            name="r2", durable=False, start=MessageId(first.ledger, first.entry_id, -1, 1, 3)
        )
        await read.come(1)
        assert read.payloads == ["c"]
        await until_async(lambda: reader.permits == 99)

    async def test_a_second_exclusive_consumer_is_refused(self, consumers: Consumers) -> None:
        await consumers.consume()
        with pytest.raises(errors.ConsumerBusy):
            await consumers.consume()
