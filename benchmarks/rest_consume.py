"""REST consume, 1,000 messages a fetch and acknowledged id by id, beside the stateless read of the same messages.

    python -m benchmarks.rest_consume [--seconds 2] [--rounds 5] [--quick] [--folder DIR]

The read is the floor: it makes the same JSON of as many messages and keeps nothing. Messages have 100 bytes and were
published 100 at a time; each run consumes them with a new Shared subscription. The load generator looks for the ids
in both answers. One connection, so that fetches and acknowledgements take turns; messages a second.
"""

import statistics
from typing import Final

import httpx

from . import servers
from .generator import Result, Server, fetch, get, http, post, run
from .measuring import Options, cpu_ratios_of, median, note, options, ratios_of
from .rest import body

TOPIC: Final = "/topics/public/default/consume"
FETCH: Final = 1000
FILL: Final = 300_000  # messages for a second: the end of the topic ends a run


def fill(server: Server, messages: int) -> None:
    """Publish at least so many messages."""
    peer = http(post(TOPIC, body(100)), connections=8)
    run(server, [peer], 600, warm_s=0, count=messages // 100)


def read(server: Server, options: Options, filled: int) -> Result:
    """Ranges of the topic, one after the other."""
    path = f"{TOPIC}/partitions/0/messages?max_messages={FETCH}&offset="
    ranges = [get(f"{path}{offset}") for offset in range(0, filled - FETCH, FETCH)]
    return run(server, [fetch(*ranges, connections=1)], options.seconds, warm_s=options.warm_s / 2)


def consume(server: Server, subscription: str, options: Options, filled: int) -> Result:
    """Fetches of a consumer instance that is new."""
    base = f"{TOPIC}/subscription/{subscription}"
    chosen = {"subscription_type": "Shared", "initial_position": "earliest"}
    url = f"http://127.0.0.1:{server.port}"
    instance = httpx.post(url + base, json=chosen).json()["base_uri"]
    messages = get(f"{instance.removeprefix(url)}/messages?timeout=1000&max_messages={FETCH}")
    peer = fetch(messages, cursor=f"{base}/cursor", connections=1)
    result = run(server, [peer], options.seconds, warm_s=options.warm_s / 2, count=filled)
    httpx.delete(instance)
    return result


def main() -> None:
    given = options(__doc__)
    filled = int(FILL * given.seconds)
    with servers.penstock(folder=given.folder) as server:
        fill(server, filled)
        reads, consumed = [], []
        for number in range(given.rounds):
            reads.append(read(server, given, filled))
            consumed.append(consume(server, f"s{number}", given, filled))
    ratios = ratios_of(consumed, reads)
    print("| | read/s | consume/s | ratio (least to most) | by CPU | CPU µs: read, consume | generator |")
    print("|---|---|---|---|---|---|---|")
    print(
        f"| REST consume and acknowledge, {FETCH:,} a fetch | {median(reads, 'per_second'):,.0f} "
        f"| {median(consumed, 'per_second'):,.0f} "
        f"| {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) "
        f"| {statistics.median(cpu_ratios_of(consumed, reads)):.2f} "
        f"| {median(reads, 'server_us'):.2f}, {median(consumed, 'server_us'):.2f} "
        f"| {median(consumed, 'generator_share'):.0%} |"
    )
    note("read", reads)
    note("consume", consumed)


if __name__ == "__main__":
    main()
