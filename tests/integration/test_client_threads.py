"""The blocking client among threads: callers may do the loop's work themselves, and nothing may get lost by it."""

import threading
import time
from pathlib import Path

from tests.support.ports import kept_port
from tests.support.waiting import until

import penstock
from penstock.testing.server import Address, running

EARLIEST = penstock.InitialPosition.Earliest


def test_many_threads_send_and_one_listens(server: Address, topic: str) -> None:
    heard: list[bytes] = []
    all_heard = threading.Event()

    def listener(consumer: penstock.Consumer, message: penstock.Message) -> None:
        heard.append(message.data())
        consumer.acknowledge(message)
        if len(heard) == 1000:
            all_heard.set()

    with penstock.Client(server.pulsar) as client:
        client.subscribe(topic, "sub", message_listener=listener)
        shared = client.create_producer(topic)

        def work(name: int) -> None:
            own = client.create_producer(topic)
            for number in range(100):
                own.send(b"%d-%d" % (name, 2 * number))
                shared.send(b"%d-%d" % (name, 2 * number + 1))

        threads = [threading.Thread(target=work, args=(name,)) for name in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert all_heard.wait(30)

    for name in range(5):
        of_thread = [data for data in heard if data.startswith(b"%d-" % name)]
        assert of_thread == [b"%d-%d" % (name, number) for number in range(200)]


def test_waiting_and_not_waiting_take_turns(server: Address, topic: str) -> None:
    with penstock.Client(server.pulsar) as client:
        producer = client.create_producer(topic, batching_enabled=True)
        acknowledgements: list[penstock.MessageId | None] = []
        for number in range(200):
            producer.send_async(b"a%d" % number, lambda _, message_id: acknowledgements.append(message_id))
            if number % 3 == 0:
                producer.send(b"s%d" % number)
        producer.flush()
        reader = client.create_reader(topic, penstock.MessageId.earliest)
        seen = [reader.read_next(30_000).data() for _ in range(267)]

    expected = []
    for number in range(200):
        expected.append(b"a%d" % number)
        if number % 3 == 0:
            expected.append(b"s%d" % number)
    assert seen == expected
    assert len(acknowledgements) == 200


def test_other_connections_are_not_forgotten(server: Address, topic: str) -> None:
    """A connection that was lent to a caller is read again, also when the caller has no more to send."""
    with penstock.Client(server.pulsar) as client, penstock.Client(server.pulsar) as other:
        producer = client.create_producer(topic)
        consumer = other.subscribe(topic, "sub", penstock.ConsumerType.Shared)
        for number in range(20):
            producer.send(b"%d" % number)
        started = time.monotonic()

        def serve() -> None:
            for message in consumer:
                if message.is_request:
                    consumer.acknowledge(message, reply=b"yes")

        thread = threading.Thread(target=serve)
        thread.start()
        assert producer.request(b"?", timeout_ms=30_000).reply_content == b"yes"
        assert time.monotonic() - started < 25  # it is not the keep-alive that reads it
        consumer.close()
        thread.join(30)


def test_a_restart_in_the_middle(tmp_path: Path, topic: str) -> None:
    with kept_port() as port:
        _restart_in_the_middle(tmp_path, topic, f"127.0.0.1:{port}")


def _restart_in_the_middle(tmp_path: Path, topic: str, listen: str) -> None:
    with running(tmp_path, pulsar=listen) as first:
        client = penstock.Client(first.pulsar, operation_timeout_seconds=30)
        producer = client.create_producer(topic)
        sent: list[int] = []
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                producer.send(b"%d" % len(sent))
                sent.append(len(sent))

        thread = threading.Thread(target=work)
        thread.start()
        until(lambda: len(sent) > 20)
    with running(tmp_path, pulsar=listen):
        before = len(sent)
        until(lambda: len(sent) >= before + 50)
        stop.set()
        thread.join(30)
        reader = client.create_reader(topic, penstock.MessageId.earliest)
        seen = []
        while reader.has_message_available():
            seen.append(int(reader.read_next(30_000).data()))
        client.close()

    assert len(sent) >= before + 50
    assert sorted(set(seen)) == sent, "all that was acknowledged is there, in order"
    assert [number for index, number in enumerate(seen) if number not in seen[:index]] == sent
