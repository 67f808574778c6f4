"""Requests and replies (PIP-371) with the client; the examples are run as they stand."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.support.waiting import until

import penstock
from penstock.testing.server import Address

EXAMPLES = Path(__file__).parents[2] / "examples"


async def test_requests_are_answered(server: Address, topic: str) -> None:
    async def listener(consumer: penstock.aio.Consumer, message: penstock.Message) -> None:
        assert message.is_request
        assert not message.request_expired
        failed = message.data() == b"bad"
        await consumer.acknowledge(message, reply=b"re: " + message.data(), is_error=failed)

    async with penstock.aio.Client(server.pulsar) as client:
        await client.subscribe(topic, "servers", penstock.ConsumerType.Shared, message_listener=listener)
        producer = await client.create_producer(topic)
        good = await producer.request(b"good", timeout_ms=30_000)
        bad = await producer.new_message(b"bad").property("a", "b").request(30_000)
        many = await asyncio.gather(*(producer.request(b"%d" % n, timeout_ms=30_000) for n in range(50)))

    assert (good.reply_content, good.is_error_result) == (b"re: good", False)
    assert (bad.reply_content, bad.is_error_result) == (b"re: bad", True)
    assert bad.request_message_id > good.request_message_id
    assert [result.reply_content for result in many] == [b"re: %d" % n for n in range(50)]


def test_requests_time_out_and_stay_messages(server: Address, topic: str) -> None:
    with penstock.Client(server.pulsar) as client:
        producer = client.create_producer(topic)
        consumer = client.subscribe(topic, "servers")
        with pytest.raises(penstock.TimeoutError):
            producer.request(b"anybody?", timeout_ms=50)

        message = consumer.receive(30_000)
        assert message.is_request
        until(lambda: message.request_expired)
        consumer.acknowledge(message, reply=b"too late")
        producer.send(b"and on we go")
        assert consumer.receive(30_000).data() == b"and on we go"


def test_a_thread_asks_another(server: Address, topic: str) -> None:
    with penstock.Client(server.pulsar) as client:
        consumer = client.subscribe(topic, "servers", penstock.ConsumerType.Shared)

        def serve() -> None:
            for message in consumer:
                consumer.acknowledge(message, reply=message.data()[::-1])

        thread = threading.Thread(target=serve)
        thread.start()
        producer = client.create_producer(topic)
        assert producer.request(b"abc", timeout_ms=30_000).reply_content == b"cba"
        assert producer.new_message(b"xyz").request(timeout_ms=30_000).reply_content == b"zyx"
        consumer.close()
        thread.join(30)


def test_the_examples(server: Address) -> None:
    serving = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "rpc_server.py"), server.pulsar], stdout=subprocess.PIPE, text=True
    )
    try:
        assert serving.stdout is not None
        assert serving.stdout.readline() == "serving\n"
        asked = subprocess.run(
            [sys.executable, str(EXAMPLES / "rpc_client.py"), server.pulsar],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        serving.terminate()
        serving.communicate()

    assert asked.stdout.splitlines() == ["2 + 3 = 5", "divide(1, 0): ZeroDivisionError: division by zero"], (
        asked.stderr
    )
