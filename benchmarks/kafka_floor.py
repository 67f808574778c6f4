"""What a client of Kafka does without a gateway: `confluent-kafka` in one process, and Kafka's own performance tools.

    python -m benchmarks.kafka_floor publish|publish-hundreds|consume BOOTSTRAP TOPIC SECONDS [COUNT]

The first form is a program of its own, for its CPU time to be apart: it prints how many messages it did in how many seconds.
It publishes from 32 threads, each of which waits for the answer to its message (to its hundred) before the next one; it
consumes 1,000 at a time and commits before it goes on.
"""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, Message, Producer

from .generator import Result

THREADS: Final = 32
VALUE: Final = b"x" * 100
FETCH: Final = 1000
WARM_S: Final = 0.5
PRODUCER: Final = {"acks": "all", "enable.idempotence": True, "linger.ms": 0}
JAVA: Final = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-cp")


def _publish(bootstrap: str, topic: str, seconds: float, each: int) -> tuple[int, float]:
    producer = Producer({"bootstrap.servers": bootstrap, **PRODUCER})
    over = threading.Event()
    counts = [0] * THREADS

    def work(number: int) -> None:
        done = threading.Semaphore(0)

        def delivered(error: KafkaError | None, _: Message) -> None:
            assert error is None, error
            done.release()

        while not over.is_set():
            for _ in range(each):
                producer.produce(topic, VALUE, on_delivery=delivered)
            for _ in range(each):
                done.acquire()
            counts[number] += each

    def poll() -> None:
        while not over.is_set():
            producer.poll(0.1)
        producer.flush()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in (*threads, polling := threading.Thread(target=poll)):
        thread.start()
    time.sleep(WARM_S)
    before, began = sum(counts), time.monotonic()
    time.sleep(seconds)
    count, took = sum(counts) - before, time.monotonic() - began
    over.set()
    for thread in (*threads, polling):
        thread.join()
    return count, took


def _consume(bootstrap: str, topic: str, seconds: float, most: int) -> tuple[int, float]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"floor-{uuid4().hex}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    count, began, end = 0, 0.0, time.monotonic() + 60
    while count < most and time.monotonic() < end:
        messages = consumer.consume(FETCH, 0.1)
        if messages:
            if not began:  # joining the group took its time
                began = time.monotonic()
                end = began + seconds
            assert all(message.value() is not None for message in messages)
            consumer.commit(asynchronous=False)
            count += len(messages)
    took = time.monotonic() - began
    consumer.close()
    return count, took


def client(what: str, bootstrap: str, topic: str, seconds: float, most: int = 0) -> Result:
    """Run the program for so long, or until it consumed `most` messages."""
    arguments = [what, bootstrap, topic, str(seconds), str(most)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.kafka_floor", *arguments],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        timeout=seconds + 120,
    )
    count, took = done.stdout.split()
    return _result(int(count), float(took))


def perf_produce(home: Path, bootstrap: str, topic: str, count: int) -> Result:
    """Kafka's ProducerPerformance: so many messages of 100 bytes, as fast as it can."""
    arguments = ["--topic", topic, "--num-records", str(count), "--record-size", "100", "--throughput", "-1"]
    properties = ["--producer-props", f"bootstrap.servers={bootstrap}", "acks=all"]
    said = _tool(home, "org.apache.kafka.tools.ProducerPerformance", *arguments, *properties)
    rate = float(re.findall(r"records sent, ([\d.]+) records/sec", said)[-1])
    return _result(count, count / rate)


def perf_consume(home: Path, bootstrap: str, topic: str, count: int) -> Result:
    """Kafka's ConsumerPerformance, which commits now and then by itself; its rate is that of fetching alone."""
    name = "org.apache.kafka.tools.ConsumerPerformance"
    arguments = ["--topic", topic, "--messages", str(count), "--bootstrap-server", bootstrap]
    fields = _tool(home, name, *arguments, "--hide-header").strip().splitlines()[-1].split(",")
    return _result(int(fields[4]), int(fields[4]) / float(fields[9]))


def _tool(home: Path, name: str, *arguments: str) -> str:
    done = subprocess.run(
        [*JAVA, f"{home}/*", name, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _result(count: int, seconds: float) -> Result:
    return Result(count, seconds, 0, 0, 0, 0, 0, 0)


def main() -> None:
    what, bootstrap, topic, seconds, most = sys.argv[1:]
    work: dict[str, Callable[[], tuple[int, float]]] = {
        "publish": lambda: _publish(bootstrap, topic, float(seconds), 1),
        "publish-hundreds": lambda: _publish(bootstrap, topic, float(seconds), 100),
        "consume": lambda: _consume(bootstrap, topic, float(seconds), int(most)),
    }
    print(*work[what]())


if __name__ == "__main__":
    main()
