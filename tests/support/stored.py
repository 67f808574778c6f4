"""What a log holds, read through the contract of engines."""

from penstock.broker.broker import Broker
from penstock.model.message import Message
from penstock.model.names import TopicName
from penstock.wire import entry as wire


async def stored(broker: Broker, name: TopicName) -> list[Message]:
    """Every message of a topic, as endpoints see it."""
    log = await broker.topics.get(name)
    await log.refresh()
    found: list[Message] = []
    at = 0
    while entries := await log.read(at, 1000):
        found += [message for entry in entries for message in wire.decode(entry)]
        at = entries[-1].end
    return found
