"""Delayed messages in a server of its own process: what they take of its memory, and what comes after it was killed."""

import asyncio
import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.support.attacks import MIB, Memory
from tests.support.entry_consumers import Consumers
from tests.support.waiting import until_async
from websockets.sync.client import connect

from penstock.client.enums import ConsumerType
from penstock.client.errors import PulsarException
from penstock.model.entry import Entry
from penstock.testing.server import Launched, launch
from penstock.wire import entry as wire

MANY = 100_000
AT_ONCE = 10_000
MEMORY_MAX = 30 * MIB
LATER_MS = 3_600_000
TOPIC = "delays"
PATH = f"/topics/public/default/{TOPIC}/subscription/s"
STATS = f"/admin/v2/persistent/public/default/{TOPIC}/stats"

COUNT = 3_000  # of the test of a restart: a tenth of them delayed
ORDINARY = frozenset(number for number in range(COUNT) if number % 10)
ACKNOWLEDGED = frozenset(number for number in ORDINARY if number % 3)


def figures(server: Launched) -> dict[str, Any]:
    found: dict[str, Any] = server.call("GET", STATS)["subscriptions"]["s"]
    return found


def fetched(server: Launched) -> Iterator[tuple[int | str, str]]:
    """Values and ids of the messages that a consumer of REST is given; it goes on as long as some are asked for."""
    options = {"subscription_type": "Shared", "initial_position": "earliest", "receiver_queue_size": 5_000}
    consumer = urlsplit(str(server.call("POST", PATH, options)["base_uri"])).path
    while True:
        answer = server.call("GET", f"{consumer}/messages", query={"timeout": 60_000})
        assert answer["messages"], "no message within a minute"
        for message in answer["messages"]:
            yield message["value"], message["messageId"]


def test_delayed_messages_take_little_memory_and_hold_up_none_behind_them(tmp_path: Path) -> None:
    flags = (
        "--set",
        f"broker.tail_bytes={MIB}",
    )  # the newest entries, delayed or not, which every log has in memory
    with launch(tmp_path, *flags) as server:
        server.create_subscription(TOPIC, "s")
        for _ in range(3):
            server.publish("warm", *["x" * 20] * AT_ONCE, deliverAfterMs=1)
        memory = Memory(server.process.pid)
        for start in range(0, MANY, AT_ONCE):
            server.publish(TOPIC, *["x" * 20] * AT_ONCE, deliverAfterMs=LATER_MS + start)
        server.publish(TOPIC, "ordinary")
        assert next(fetched(server))[0] == "ordinary"
        assert figures(server)["msgDelayed"] == MANY
        print(f"\n{memory.now / MIB:.1f} MiB")
        assert memory.comes_back(MEMORY_MAX)
        server.kill()
    with launch(tmp_path, *flags) as server:
        server.publish("warm", *["x" * 20] * AT_ONCE, deliverAfterMs=1)
        memory = Memory(server.process.pid)
        assert next(fetched(server))[0] == "ordinary"
        assert figures(server)["msgDelayed"] == MANY
        print(f"{memory.now / MIB:.1f} MiB after a restart")
        assert memory.comes_back(MEMORY_MAX)


def by_rest(server: Launched) -> None:
    given = fetched(server)
    ids = [
        place for _, (value, place) in zip(range(len(ORDINARY)), given, strict=False) if value in ACKNOWLEDGED
    ]
    for start in range(0, len(ids), 100):
        answer = server.call("POST", f"{PATH}/cursor", {"messageIds": ids[start : start + 100]})
        assert not [one for one in answer["messageIds"] if one.get("error_code")]
    server.kill()


def by_websocket(server: Launched) -> None:
    """Each acknowledgement has a context, and so an answer."""
    url = f"{server.ws}/ws/v2/consumer/persistent/public/default/{TOPIC}/s?subscriptionType=Shared"
    with connect(f"{url}&receiverQueueSize={COUNT}") as socket:
        seen, waiting = 0, set()
        while seen < len(ORDINARY) or waiting:
            frame = json.loads(socket.recv(60))
            if "context" in frame and "payload" not in frame:
                assert frame["result"] == "ok"
                waiting.remove(frame["context"])
                continue
            seen += 1
            value = b64decode(frame["payload"]).decode()
            if int(value) in ACKNOWLEDGED:
                socket.send(json.dumps({"messageId": frame["messageId"], "context": value}))
                waiting.add(value)
        server.kill()


def by_binary(server: Launched) -> None:
    """With receipts, which are answered when the cursor is durable."""

    async def consume() -> None:
        consumers = Consumers(server.pulsar, "public/default")
        consumers.topic = f"persistent://public/default/{TOPIC}"
        consumer, taking = await consumers.consume(ConsumerType.Shared, COUNT)
        await until_async(lambda: sum(one.mask.bit_count() for one in taking.entries) >= len(ORDINARY))
        for one in taking.entries:
            entry = Entry(one.ledger, one.entry_id, 0, one.count, one.publish_time, 0, one.data)
            values = [int(message.payload) for message in wire.decode(entry)]
            open_bits = sum(1 << at for at, value in enumerate(values) if value not in ACKNOWLEDGED)
            if open_bits:
                consumer.acknowledge_part(one.place, open_bits)
            else:
                consumer.acknowledge([one.place])
        await consumer.flush()
        server.kill()
        with suppress(PulsarException):  # the server is gone
            await consumer.close()
        await consumers.close()

    asyncio.run(consume())


@pytest.mark.parametrize("acknowledge", [by_rest, by_websocket, by_binary])
def test_what_was_acknowledged_and_answered_stays_so_when_the_server_is_killed(
    acknowledge: Callable[[Launched], None], tmp_path: Path
) -> None:
    """Also what lies far beyond delayed messages, which are not acknowledged."""
    with launch(tmp_path) as server:
        server.create_subscription(TOPIC, "s")
        messages = [
            {"value": number} if number in ORDINARY else {"value": number, "deliverAfterMs": LATER_MS}
            for number in range(COUNT)
        ]
        server.call("POST", f"/topics/public/default/{TOPIC}", {"messages": messages})
        acknowledge(server)  # and kill it at once
    with launch(tmp_path) as server:
        assert figures(server)["msgBacklog"] == COUNT - len(ACKNOWLEDGED)
        left = ORDINARY - ACKNOWLEDGED
        assert {value for _, (value, _) in zip(range(len(left)), fetched(server), strict=False)} == left
        assert figures(server)["msgDelayed"] == COUNT - len(ORDINARY)
