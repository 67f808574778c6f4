"""Penstock before a Kafka broker, beside what clients of Kafka do without a gateway before the same broker.

    python -m benchmarks.kafka_gateway [--seconds 3] [--rounds 5] [--workers 2] [--only WORD] [--folder DIR]

Kafka is that of the tests (`scripts/kafka.sh fetch`), started for this with its data in a fresh folder; answers mean
`acks=all` of its one node. What ratios are of is `confluent-kafka` in Python (`kafka_floor`); below it are Penstock with one
process and with several, and Kafka's own performance tools, whose CPU includes the start of Java. Other gateways are not to
be had from package registries: their lines are rates that were once measured on a machine of this kind.
Topics have 4 partitions. Only one process has a consumer that came over REST: it is measured with one.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

import httpx
from tests.support import kafka_broker

from . import kafka_floor
from .gateways import CONNECTIONS, Gateway, Work, compare, deliver, exchange, fill, penstock, produce
from .generator import Result, fetch, get, run
from .rest import body
from .rest_consume import FETCH
from .websocket import IN_FLIGHT, SOCKETS

NAMESPACE: Final = "public/default"
TOPIC: Final = f"persistent/{NAMESPACE}"
PARTITIONS: Final = 4
TOPICS: Final = ("one", "hundreds", "published", "filled", "floor", "perf")
FILL: Final = 60_000  # messages for each second: the end of the topic ends a run
PERF: Final = 200_000  # messages of a run of Kafka's own tools
STRIMZI: Final = "Strimzi's bridge 0.33.1"
KARAPACE: Final = "Karapace"
RECORDED: Final = {
    "single": ((STRIMZI, 630.0), (KARAPACE, 1140.0)),
    "hundreds": ((STRIMZI, 22_000.0), (KARAPACE, 6500.0)),
    "consume": ((STRIMZI, 67_000.0), (KARAPACE, 17_000.0)),
}
NUMBERS: Final = count()


def subscription() -> str:
    """A new one."""
    return f"s{next(NUMBERS)}"


def rest_consume(seconds: float, filled: int, gateway: Gateway) -> Result:
    """REST fetches of 1,000 and their acknowledgement, id by id, by one consumer of a new subscription."""
    base = f"/topics/{NAMESPACE}/filled/subscription/{subscription()}"
    chosen = {"subscription_type": "Shared", "initial_position": "earliest"}
    url = f"http://127.0.0.1:{gateway.port}"
    instance = httpx.post(url + base, json=chosen, timeout=60).raise_for_status().json()["base_uri"]
    messages = get(f"{instance.removeprefix(url)}/messages?timeout=1000&max_messages={FETCH}")
    peer = fetch(messages, cursor=f"{base}/cursor", connections=1)
    result = run(gateway.server, [peer], seconds, warm_s=0.5, count=filled)
    httpx.delete(instance, timeout=60)
    return result


Contenders = Sequence[tuple[Gateway, Work]]


class Cases:
    """What is measured, by a name. Gateways are one process and several; the floors are programs."""

    def __init__(self, seconds: float, bootstrap: str, gateways: Sequence[Gateway]) -> None:
        self._seconds = seconds
        self._bootstrap = bootstrap
        self._gateways = gateways
        self._filled = int(FILL * seconds)

    def prepare(self) -> None:
        """Make the topics, and fill the one that is consumed."""
        one = self._gateways[0]
        for name in TOPICS:
            url = f"http://127.0.0.1:{one.port}/admin/v2/{TOPIC}/{name}/partitions"
            httpx.put(url, json=PARTITIONS, timeout=60).raise_for_status()
        fill(one, f"{TOPIC}/filled", self._filled)

    def single(self, messages: int = 1) -> Contenders:
        """REST publish."""
        name = "one" if messages == 1 else "hundreds"
        work = partial(produce, f"/topics/{NAMESPACE}/{name}", body(messages), self._seconds)
        return [self._client("publish" if messages == 1 else "publish-hundreds"), *self._ours(work)]

    def hundreds(self) -> Contenders:
        """REST publish, a hundred a request."""
        return self.single(100)

    def publish(self) -> Contenders:
        """WebSocket."""
        ours = self._ours(partial(exchange, f"{TOPIC}/published", self._seconds))
        return [self._client("publish"), *ours, self._tool(kafka_floor.perf_produce, "perf")]

    def consume(self) -> Contenders:
        """REST, by one process."""
        ours = self._ours(partial(rest_consume, self._seconds, self._filled))[:1]
        return [self._client("consume"), *ours, self._tool(kafka_floor.perf_consume, "perf")]

    def sockets(self, connections: int) -> Contenders:
        """WebSocket consume."""
        work = partial(deliver, f"{TOPIC}/filled", subscription, self._seconds, connections, self._filled)
        return [self._client("consume"), *self._ours(work)]

    def _ours(self, work: Work) -> list[tuple[Gateway, Work]]:
        return [(gateway, work) for gateway in self._gateways]

    def _client(self, what: str) -> tuple[Gateway, Work]:
        topic = "filled" if what == "consume" else "floor"

        def work(_: Gateway) -> Result:
            result = kafka_floor.client(what, self._bootstrap, topic, self._seconds, self._filled)
            result.count //= 100 if what == "publish-hundreds" else 1
            return result

        return Gateway("confluent-kafka, no gateway", 0, ()), work

    def _tool(self, tool: Callable[[Path, str, str, int], Result], topic: str) -> tuple[Gateway, Work]:
        home = kafka_broker.HOME / "home"

        def work(_: Gateway) -> Result:
            return tool(home, self._bootstrap, topic, PERF)

        return Gateway("Kafka's own tool, no gateway", 0, ()), work


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="cases whose name has this word")
    parser.add_argument("--folder", type=Path, help="where data goes (default: the temporary folder)")
    given = parser.parse_args()
    if not (kafka_broker.HOME / "home").exists():
        print("skipped: there is no Kafka to stand before: scripts/kafka.sh fetch has not run")
        return
    with (
        tempfile.TemporaryDirectory(prefix="kafka-bench-", dir=given.folder) as folder,
        kafka_broker.standalone(Path(folder)) as cluster,
        penstock(1, "--engine", cluster.service_url) as one,
        penstock(given.workers, "--engine", cluster.service_url) as several,
    ):
        cases = Cases(given.seconds, cluster.bootstrap, (one, several))
        cases.prepare()
        flight = f"{SOCKETS} x {IN_FLIGHT} in flight"
        for name, made, messages, recorded in (
            (f"REST publish, {CONNECTIONS} connections", cases.single, 1, "single"),
            (f"REST publish, 100 a request, {CONNECTIONS} connections", cases.hundreds, 100, "hundreds"),
            (f"WebSocket publish, {flight}", cases.publish, 1, "single"),
            (f"REST consume and acknowledge, {FETCH} a fetch", cases.consume, 1, "consume"),
            ("WebSocket consume and acknowledge, 1 socket", partial(cases.sockets, 1), 1, "consume"),
            (
                f"WebSocket consume and acknowledge, {SOCKETS} sockets",
                partial(cases.sockets, SOCKETS),
                1,
                "consume",
            ),
        ):
            if given.only in name:
                compare(name, made(), cluster.pid, given.rounds, messages, RECORDED[recorded])


if __name__ == "__main__":
    main()
