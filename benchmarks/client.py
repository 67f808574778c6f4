"""The Python client against the official one, on a durable server: `python -m benchmarks.client [MESSAGES]`.

Each round runs both, in turn, on the same machine and on fresh topics; the ratio of each pair is what counts.
Messages are of 100 bytes.
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import pulsar

import penstock

from . import servers

ROUNDS = {
    "single": 25,
    "batches": 5,
    "consume": 5,
}  # of single sends short ones: they hang on the store's mood
PAYLOAD = b"x" * 100


def single(module: Any, client: Any, topic: str, messages: int) -> tuple[float, float]:
    """Send and wait, one message after the other."""
    producer = client.create_producer(topic)
    for _ in range(50):
        producer.send(PAYLOAD)
    result = timed(lambda: [producer.send(PAYLOAD) for _ in range(messages // 250)], messages // 250)
    producer.close()
    return result


def batches(module: Any, client: Any, topic: str, messages: int) -> tuple[float, float]:
    """Send in batches of 1000, with a callback for each message."""
    producer = client.create_producer(
        topic, batching_enabled=True, block_if_queue_full=True, max_pending_messages=20_000
    )
    told = [0]

    def callback(result: Any, message_id: Any) -> None:
        told[0] += 1

    def work() -> None:
        for _ in range(messages):
            producer.send_async(PAYLOAD, callback)
        producer.flush()

    result = timed(work, messages)
    assert told[0] == messages
    producer.close()
    return result


def consume(module: Any, client: Any, topic: str, messages: int) -> tuple[float, float]:
    """Receive and acknowledge what was sent in batches, one message after the other."""
    batches(module, client, topic, messages)
    consumer = client.subscribe(topic, "bench", initial_position=module.InitialPosition.Earliest)

    def work() -> None:
        for _ in range(messages):
            consumer.acknowledge(consumer.receive(timeout_millis=10_000))

    result = timed(work, messages)
    consumer.close()
    return result


def timed(work: Callable[[], Any], messages: int) -> tuple[float, float]:
    """Messages per second, and per second of this process's CPU."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return messages / (time.perf_counter() - wall), messages / (time.process_time() - cpu)


def main() -> None:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    print(
        f"{'':>10} {'official/s':>11} {'penstock/s':>11} {'ratio':>6} {'min':>6} {'max':>6} {'per core':>10}"
    )
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with servers.penstock_urls() as urls, penstock.Client(urls[1]) as ours:
        theirs = pulsar.Client(urls[1], logger=quiet)
        for measure in (single, batches, consume):
            pairs: list[tuple[float, float]] = []
            per_core: list[float] = []
            for number in range(ROUNDS[measure.__name__]):
                topic = f"{measure.__name__}-{number}"
                low, _ = measure(pulsar, theirs, topic + "-theirs", messages)
                high, core = measure(penstock, ours, topic + "-ours", messages)
                pairs.append((low, high))
                per_core.append(core)
            ratios = [high / low for low, high in pairs]
            print(
                f"{measure.__name__:>10} {statistics.median(low for low, _ in pairs):11.0f} "
                f"{statistics.median(high for _, high in pairs):11.0f} {statistics.median(ratios):6.2f} "
                f"{min(ratios):6.2f} {max(ratios):6.2f} {statistics.median(per_core):10.0f}"
            )
        theirs.close()


if __name__ == "__main__":
    main()
