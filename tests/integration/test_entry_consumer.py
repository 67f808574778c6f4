"""The client's consumer of entries against the embedded engine's binary endpoint."""

from collections.abc import AsyncIterator

import pytest
from tests.support.entry_consumer_stories import EntryConsumerStories
from tests.support.entry_consumers import Consumers

from penstock.testing.server import running


@pytest.fixture
async def consumers() -> AsyncIterator[Consumers]:
    with running() as address:
        made = Consumers(address.pulsar, "public/default")
        yield made
        await made.close()


class TestStories(EntryConsumerStories):
    """Those that any broker passes."""


async def test_messages_of_an_entry_are_acknowledged_alone(consumers: Consumers) -> None:
    await consumers.publish("a", "b", "c", batch=True)
    consumer, taking = await consumers.consume()
    await taking.come(1)
    consumer.acknowledge_part(taking.places[0], 0b010)
    await consumer.flush()
    await consumer.close()
    _, again = await consumers.consume()
    await again.come(1)
    assert again.payloads == ["b"]
