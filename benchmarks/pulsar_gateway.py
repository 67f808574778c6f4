"""Penstock before a Pulsar broker, beside Pulsar's own WebSocket proxy and REST produce before the same broker.

    PULSAR_HOME=… python -m benchmarks.pulsar_gateway [--seconds 3] [--rounds 5] [--workers 2] [--folder DIR]

PULSAR_HOME is the folder of an unpacked distribution of Apache Pulsar (default: what the tests fetched). It runs
standalone on loopback with `journalSyncData=true` and its WebSocket service in the broker's process, so that its CPU time
is that of broker and proxy together; ours is that of Penstock's processes alone, and the broker's is told beside it.
Servers are measured in turns, each for a short time; ratios are those of pairs.
"""

import argparse
import os
import re
import tempfile
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

import httpx

from .binary_pulsar import pulsar
from .gateways import CONNECTIONS, Gateway, Work, compare, deliver, exchange, fill, penstock, produce
from .rest import body
from .websocket import IN_FLIGHT, SOCKETS

FETCHED: Final = Path(__file__).parents[1] / "tests" / "clusters" / "build" / "pulsar" / "home"
TOPIC: Final = "persistent/public/default"
NUMBERS: Final = count()  # of subscriptions


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where data goes (default: the temporary folder)")
    given = parser.parse_args()
    home = Path(os.environ.get("PULSAR_HOME", FETCHED))
    if not (home / "bin" / "pulsar").is_file():
        print("skipped: PULSAR_HOME names no unpacked distribution of Apache Pulsar to compare with")
        return
    settings = {"webSocketServiceEnabled": "true"}
    with (
        tempfile.TemporaryDirectory(prefix="pulsar-bench-", dir=given.folder) as folder,
        pulsar(home, Path(folder), settings) as (url, broker),
    ):
        conf = (Path(folder) / "standalone.conf").read_text()
        web = int(re.findall(r"(?m)^webServicePort=(\d+)$", conf)[-1])
        admin = f"http://127.0.0.1:{web}"
        # Pulsar's REST makes no topics.
        httpx.put(f"{admin}/admin/v2/{TOPIC}/produced", timeout=60).raise_for_status()
        flags = ("--engine", url, "--admin", admin)
        with penstock(1, *flags) as one, penstock(given.workers, *flags) as several:
            gateways = (Gateway("Pulsar's own", web, [broker]), one, several)

            def turns(name: str, work: Work, messages: int = 1) -> None:
                contenders = [(gateway, work) for gateway in gateways]
                compare(name, contenders, broker, given.rounds, messages)

            turns(
                f"WebSocket publish, {SOCKETS} x {IN_FLIGHT} in flight",
                partial(exchange, f"{TOPIC}/published", given.seconds),
            )
            filled = int(20_000 * given.seconds)
            fill(one, f"{TOPIC}/filled", filled)
            for connections in (1, SOCKETS):
                turns(
                    f"WebSocket consume, acknowledged, {connections} sockets",
                    partial(deliver, f"{TOPIC}/filled", _subscription, given.seconds, connections, filled),
                )
            for messages in (1, 100):
                turns(
                    f"REST produce, {messages} a request, {CONNECTIONS} connections",
                    partial(produce, f"/topics/{TOPIC}/produced", body(messages, "payload"), given.seconds),
                    messages,
                )


def _subscription() -> str:
    return f"s{next(NUMBERS)}"


if __name__ == "__main__":
    main()
