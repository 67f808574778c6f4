"""REST publish, durable, against the echo floor: `python -m benchmarks.rest [SECONDS]`.

Both servers run in turn, several times, on the same machine; the ratio of each pair is what counts.
"""

import json
import statistics
import sys

import uvloop

from . import load, servers

CONNECTIONS = 32
ROUNDS = 5
PATH = "/topics/public/default/bench"


def body(messages: int) -> bytes:
    return json.dumps({"messages": [{"value": "x" * 100}] * messages}, separators=(",", ":")).encode()


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    print(
        f"{'messages':>8} {'floor req/s':>12} {'penstock':>10} {'ratio':>6} {'min':>6} {'max':>6} {'p99 ms':>7}"
    )
    for messages in (1, 100):
        request = load.post(PATH, body(messages))
        floors, ours, ratios, p99 = [], [], [], []
        with servers.echo() as floor, servers.penstock() as (port, _):
            for each in (floor, port):
                uvloop.run(load.run(each, request, CONNECTIONS, 1.0))  # warm
            for _ in range(ROUNDS):
                low = uvloop.run(load.run(floor, request, CONNECTIONS, seconds))
                high = uvloop.run(load.run(port, request, CONNECTIONS, seconds))
                assert not low.failed, "the floor failed"
                assert not high.failed, "a publish failed"
                floors.append(low.per_second)
                ours.append(high.per_second)
                ratios.append(high.per_second / low.per_second)
                p99.append(high.percentile(0.99) * 1000)
        print(
            f"{messages:>8} {statistics.median(floors):>12.0f} {statistics.median(ours):>10.0f}"
            f" {statistics.median(ratios):>6.2f} {min(ratios):>6.2f} {max(ratios):>6.2f}"
            f" {statistics.median(p99):>7.1f}"
        )


if __name__ == "__main__":
    main()
