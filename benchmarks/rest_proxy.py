"""The REST proxy's API (v2), beside other gateways that speak it before the same Kafka.

    python -m benchmarks.rest_proxy [--engine kafka] [--workers 2] [--peer NAME=URL=PID ...] [--only WORD]

With `--engine embedded` Penstock stores by itself. Before Kafka the broker is that of the tests (`scripts/kafka.sh fetch`), started
for this, and the first line is `confluent-kafka` in Python without a gateway. Karapace and Strimzi's bridge are not to be had from
package registries: name one that runs before a broker of yours with `--peer`, and the broker with `--bootstrap`. Without them their
lines are rates that were once measured on a machine of this kind.
Values are JSON strings of 100 bytes. Consuming is one instance of a new group, which commits after each fetch.
"""

import argparse
import contextlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

import httpx
from tests.support import kafka_broker

from . import kafka_floor
from .gateways import CONNECTIONS, Gateway, Work, compare, penstock
from .generator import Result, get, http, post, records, run
from .kafka_gateway import PARTITIONS, RECORDED

JSON: Final = "application/vnd.kafka.json.v2+json"
V2: Final = "application/vnd.kafka.v2+json"
FILL: Final = 60_000  # records for each second: the end of the topic ends a run
FETCH_BYTES: Final = 150_000
HUNDREDS: Final = 100
NUMBERS: Final = count()


class Proxy:
    """A gateway that speaks the API below a path."""

    def __init__(self, gateway: Gateway, prefix: str = "") -> None:
        self.gateway = gateway
        self.prefix = prefix
        self.url = f"http://127.0.0.1:{gateway.port}{prefix}"

    def produce(self, topic: str, each: int, seconds: float, gateway: Gateway) -> Result:
        """The same request again and again on each connection."""
        body = json.dumps({"records": [{"value": "x" * 100}] * each}, separators=(",", ":")).encode()
        request = post(f"{self.prefix}/topics/{topic}", body, JSON)
        return run(gateway.server, [http(request, connections=CONNECTIONS)], seconds)

    def fill(self, topic: str, number: int) -> None:
        """Publish so many records."""
        body = json.dumps({"records": [{"value": "x" * 100}] * 1000}, separators=(",", ":")).encode()
        request = post(f"{self.prefix}/topics/{topic}", body, JSON)
        run(self.gateway.server, [http(request, connections=4)], 600, warm_s=0, count=number // 1000)

    def consume(self, topic: str, seconds: float, filled: int, gateway: Gateway) -> Result:
        """Fetches by one instance of a new group, each of which is committed."""
        group = f"{self.prefix}/consumers/g{next(NUMBERS)}"
        asked = {"format": "json", "auto.offset.reset": "earliest", "auto.commit.enable": "false"}
        with httpx.Client(base_url=self.url.removesuffix(self.prefix), timeout=60, trust_env=False) as client:
            kind = {"content-type": V2}
            made = client.post(group, content=json.dumps(asked), headers=kind).raise_for_status().json()
            instance = f"{group}/instances/{made['instance_id']}"
            topics = json.dumps({"topics": [topic]})
            client.post(f"{instance}/subscription", content=topics, headers=kind).raise_for_status()
            wanted = f"{instance}/records?max_bytes={FETCH_BYTES}&timeout=1000"
            for _ in range(60):  # joining the group took its time
                if client.get(wanted, headers={"accept": JSON}).raise_for_status().json():
                    break
            peer = records(get(wanted, JSON), f"{instance}/offsets", V2)
            result = run(gateway.server, [peer], seconds, warm_s=0.2, count=filled // 2)
            client.delete(instance, headers=kind).raise_for_status()
        return result


def peer(text: str) -> Proxy:
    """A gateway that runs already, as `NAME=URL=PID`."""
    name, url, pid = text.split("=")
    at = httpx.URL(url)
    assert at.port, "the URL names no port"
    return Proxy(Gateway(name, at.port, [int(pid)]), at.path.rstrip("/"))


@contextlib.contextmanager
def cluster(engine: str, bootstrap: str | None, folder: str) -> Iterator[tuple[str | None, int | None]]:
    """The addresses of the broker, and its process; None without one, or if it is not ours."""
    if engine == "embedded" or bootstrap is not None:
        yield bootstrap, None
        return
    with kafka_broker.standalone(Path(folder)) as started:
        yield started.bootstrap, started.pid


def floor(what: str, bootstrap: str, topic: str, seconds: float, filled: int) -> tuple[Gateway, Work]:
    """`confluent-kafka` without a gateway; requests of hundreds are counted as such."""

    def work(_: Gateway) -> Result:
        result = kafka_floor.client(what, bootstrap, topic, seconds, filled)
        result.count //= HUNDREDS if what == "publish-hundreds" else 1
        return result

    return Gateway("confluent-kafka, no gateway", 0, ()), work


def cases(
    proxies: Sequence[Proxy], seconds: float, filled: int, bootstrap: str | None
) -> Iterator[tuple[str, int, str, list[tuple[Gateway, Work]]]]:
    """What is measured: its name, the records of an answer, the name of what was recorded, and who does it."""
    for name, each, recorded, what in (
        (f"produce, one record a request, {CONNECTIONS} connections", 1, "single", "publish"),
        (
            f"produce, {HUNDREDS} records a request, {CONNECTIONS} connections",
            HUNDREDS,
            "hundreds",
            "publish-hundreds",
        ),
        ("consume and commit, one instance", 1, "consume", "consume"),
    ):
        made: list[tuple[Gateway, Work]] = []
        if bootstrap is not None:
            made.append(floor(what, bootstrap, "filled" if what == "consume" else "floor", seconds, filled))
        for proxy in proxies:
            if what == "consume":
                made.append((proxy.gateway, partial(proxy.consume, "filled", seconds, filled)))
            else:
                made.append((proxy.gateway, partial(proxy.produce, recorded, each, seconds)))
        yield name, each, recorded, made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", choices=("kafka", "embedded"), default="kafka")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="cases whose name has this word")
    parser.add_argument("--bootstrap", help="a broker that runs already")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=URL=PID")
    given = parser.parse_args()
    if given.engine == "kafka" and not given.bootstrap and not (kafka_broker.HOME / "home").exists():
        print("skipped: there is no Kafka to stand before: scripts/kafka.sh fetch has not run")
        return
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="proxy-bench-"))
        bootstrap, broker = stack.enter_context(cluster(given.engine, given.bootstrap, folder))
        flags = ("--engine", f"kafka://{bootstrap}") if bootstrap is not None else ()
        ours = [stack.enter_context(penstock(number, *flags)) for number in (1, given.workers)]
        proxies = [*(Proxy(gateway, "/rest") for gateway in ours), *map(peer, given.peer)]
        for gateway in ours[:1] if bootstrap is not None else ours:
            for name in ("single", "hundreds", "filled", "floor"):
                path = f"/admin/v2/persistent/public/default/{name}/partitions"
                httpx.put(f"http://127.0.0.1:{gateway.port}{path}", json=PARTITIONS).raise_for_status()
        filled = int(FILL * given.seconds)
        for proxy in proxies[:1] if bootstrap is not None else proxies:
            proxy.fill("filled", filled)
        for name, each, recorded, contenders in cases(proxies, given.seconds, filled, bootstrap):
            if given.only in name:
                told = () if given.peer else RECORDED[recorded]
                compare(name, contenders, broker or ours[0].pids[0], given.rounds, each, told)


if __name__ == "__main__":
    main()
