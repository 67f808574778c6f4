"""Request-reply (PIP-371) over WebSocket and HTTP beside its floors, with workers that answer over WebSocket.

    python -m benchmarks.requests [--seconds 2] [--rounds 5] [--quick] [--folder DIR]

Many at once: requests a second beside the frames, or the HTTP requests, that the echoes answer with as many sockets
and as much under way. One at a time: the median of a round trip (request out, reply back, the worker's round trip
between them) beside two echo round trips, and on a persistent topic one durable commit more.
"""

import json
import statistics
from functools import partial
from typing import Final

from . import servers
from .generator import Peer, Result, Server, consume, http, post, request, run
from .latency import commits_ms
from .measuring import Options, Runs, compare, head, median, options
from .rest import PATH, body, publish
from .websocket import IN_FLIGHT, PAYLOAD, exchange

REQUEST: Final = f'{{"payload":"{PAYLOAD}","context":"1","requestTimeoutMillis":60000}}'
DOMAINS: Final = ("non-persistent", "persistent")
# Over HTTP only the dialect that Pulsar shipped names a domain.
CALLS: Final = {
    "non-persistent": ("/topics/non-persistent/public/default/calls", {"payload": "x" * 100}),
    "persistent": ("/topics/public/default/calls", {"value": "x" * 100}),
}


def worker(topic: str, connections: int) -> Peer:
    """Replies to each message with a payload of its size."""
    path = f"/ws/v2/consumer/{topic}/s?subscriptionType=Shared"
    return consume(path, connections=connections, measured=False, reply=PAYLOAD)


def over_websocket(server: Server, domain: str, sockets: int, in_flight: int, options: Options) -> Result:
    """Requests with so many under way in all."""
    topic = f"{domain}/public/default/requests-{sockets}-{in_flight}"  # no case has what another left
    asking = request(f"/ws/v2/producer/{topic}", REQUEST, connections=sockets, in_flight=in_flight // sockets)
    return run(server, [worker(topic, sockets), asking], options.seconds, warm_s=options.warm_s)


def over_http(server: Server, domain: str, in_flight: int, options: Options) -> Result:
    """Requests, one on each connection."""
    path, message = CALLS[domain]
    call = post(f"{path}/request?timeout=60000", json.dumps(message, separators=(",", ":")).encode())
    peers = [worker(f"{domain}/public/default/calls", 1), http(call, connections=in_flight)]
    return run(server, peers, options.seconds, warm_s=options.warm_s)


def show_trips(echo: Server, penstock: Server, given: Options) -> None:
    """One at a time: round trips."""
    echoes, commits = [], []
    trips: dict[str, list[Result]] = {domain: [] for domain in DOMAINS}
    for _ in range(given.rounds):
        echoes.append(exchange(echo, given, sockets=1, in_flight=1))
        for domain, results in trips.items():
            results.append(over_websocket(penstock, domain, 1, 1, given))
        commits.append(statistics.median(commits_ms(given.folder, 1000, 0.5)))
    commit = statistics.median(commits)
    print(f"echo round trip {median(echoes, 'p50_ms'):.3f} ms, durable commit of one row {commit:.3f} ms")
    for domain, results in trips.items():
        more = commit if domain == "persistent" else 0.0
        ratios = [trip.p50_ms / (2 * echo.p50_ms + more) for trip, echo in zip(results, echoes, strict=True)]
        print(
            f"one request and reply, {domain}: {median(results, 'p50_ms'):.3f} ms, "
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) of two echoes"
            + (" and a commit" if more else "")
        )


def main() -> None:
    given = options(__doc__)
    head()
    with (
        servers.echo() as echo,
        servers.echo("websocket_echo") as websocket_echo,
        servers.echo("stack_echo") as stack,
        servers.penstock(folder=given.folder) as penstock,
    ):
        plain = post(PATH, body(1))
        for domain in DOMAINS:
            for sockets in (1, 8):
                echoing = partial(exchange, sockets=sockets, in_flight=IN_FLIGHT // sockets)
                compare(
                    Runs(
                        f"requests over WebSocket, {domain}, {sockets} a side, {IN_FLIGHT} in flight",
                        partial(echoing, websocket_echo, given),
                        partial(echoing, stack, given),
                        partial(over_websocket, penstock, domain, sockets, IN_FLIGHT, given),
                    ),
                    given.rounds,
                )
            compare(
                Runs(
                    f"requests over HTTP, {domain}, {IN_FLIGHT} in flight",
                    partial(publish, echo, plain, given, IN_FLIGHT),
                    partial(publish, stack, plain, given, IN_FLIGHT),
                    partial(over_http, penstock, domain, IN_FLIGHT, given),
                ),
                given.rounds,
            )
        show_trips(websocket_echo, penstock, given)


if __name__ == "__main__":
    main()
