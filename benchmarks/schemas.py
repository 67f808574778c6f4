"""Avro over REST against plain strings of the same size: `python -m benchmarks.schemas [SECONDS]`.

Publishing: 100 records of ten fields a request, and the same request with each record as a JSON string. Reading:
both topics back as JSON, 100 messages a request.
"""

import json
import statistics
import sys

from . import servers
from .generator import Server, get, http, post, run

CONNECTIONS = 8
ROUNDS = 5
TOPICS = "/topics/public/default"

SCHEMA = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "flight", "type": "int"},
        {"name": "origin", "type": "string"},
        {"name": "destination", "type": "string"},
        {"name": "delay", "type": ["null", "double"], "default": None},
        {"name": "distance", "type": "double"},
        {"name": "hour", "type": "int"},
        {"name": "minute", "type": "int"},
        {"name": "time", "type": "long"},
        {"name": "cancelled", "type": "boolean"},
    ],
}


def record(number: int) -> dict[str, object]:
    return {
        "carrier": "UA",
        "flight": 1500 + number,
        "origin": "EWR",
        "destination": "IAH",
        "delay": 2.0 if number % 7 else None,
        "distance": 1400.0,
        "hour": 5,
        "minute": 15,
        "time": 1357034400000 + number,
        "cancelled": False,
    }


def bodies() -> dict[str, bytes]:
    """The request's body by topic."""
    records = [record(n) for n in range(100)]
    avro = {
        "value_schema": {"type": "AVRO", "schema": SCHEMA},
        "messages": [{"value": r} for r in records],
    }
    plain = {"messages": [{"value": json.dumps(r)} for r in records]}
    return {
        "avro": json.dumps(avro, separators=(",", ":")).encode(),
        "plain": json.dumps(plain, separators=(",", ":")).encode(),
    }


def compare(server: Server, name: str, requests: dict[str, bytes], seconds: float) -> None:
    rates: dict[str, list[float]] = {"avro": [], "plain": []}
    for _ in range(ROUNDS):
        for kind, request in requests.items():
            rates[kind].append(run(server, [http(request, connections=CONNECTIONS)], seconds).per_second)
    ratios = [a / p for a, p in zip(rates["avro"], rates["plain"], strict=True)]
    print(
        f"{name:>8} {statistics.median(rates['plain']):>12.0f} {statistics.median(rates['avro']):>10.0f}"
        f" {statistics.median(ratios):>6.2f} {min(ratios):>6.2f} {max(ratios):>6.2f}"
    )


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    print(f"{'':>8} {'plain req/s':>12} {'avro':>10} {'ratio':>6} {'min':>6} {'max':>6}")
    with servers.penstock() as server:
        publishes = {kind: post(f"{TOPICS}/{kind}", body) for kind, body in bodies().items()}
        compare(server, "publish", publishes, seconds)
        path = "partitions/0/messages?max_messages=100&offset=1000"
        reads = {kind: get(f"{TOPICS}/{kind}/{path}") for kind in ("avro", "plain")}
        compare(server, "read", reads, seconds)


if __name__ == "__main__":
    main()
