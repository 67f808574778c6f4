"""The WebSocket endpoint beside its floors: durable publishing, and delivery to one consumer that acknowledges.

    python -m benchmarks.websocket [--seconds 2] [--rounds 5] [--quick] [--folder DIR]

The echo floor is the stack of uvicorn, Starlette and websockets with the same decoder of frames and the same answer,
which stores nothing; the second floor is the same echo by Penstock's own stack. Both have 8 sockets with 64 frames in
flight on each, also beside delivery, which has one socket.
"""

import base64
from functools import partial
from itertools import count
from typing import Final

from . import servers
from .generator import Result, Server, consume, publish, run
from .measuring import Options, Runs, compare, head, options

SOCKETS: Final = 8
IN_FLIGHT: Final = 64
PAYLOAD: Final = base64.b64encode(bytes(range(100))).decode()
MESSAGE: Final = f'{{"payload":"{PAYLOAD}","context":"1"}}'
TOPIC: Final = "persistent/public/default"
KINDS: Final = {"an entry each": "", "batchingEnabled": "?batchingEnabled=true"}
NUMBERS: Final = count()  # of subscriptions
FILL: Final = 100_000  # messages for a second of delivery: the end of the topic ends a run


def exchange(
    server: Server, options: Options, *, query: str = "", sockets: int = SOCKETS, in_flight: int = IN_FLIGHT
) -> Result:
    """Frames sent and answered, with so many under way on each of the sockets."""
    path = f"/ws/v2/producer/{TOPIC}/publish{query}"
    peer = publish(path, MESSAGE, connections=sockets, in_flight=in_flight)
    return run(server, [peer], options.seconds, warm_s=options.warm_s)


def fill(server: Server, topic: str, query: str, messages: int) -> None:
    """Publish at least so many messages."""
    peer = publish(
        f"/ws/v2/producer/{TOPIC}/{topic}{query}", MESSAGE, connections=SOCKETS, in_flight=IN_FLIGHT
    )
    run(server, [peer], 600, warm_s=0, count=messages)


def deliver(server: Server, topic: str, options: Options, filled: int) -> Result:
    """Messages to one Shared consumer that acknowledges each, from the beginning by a new subscription."""
    query = "subscriptionType=Shared&subscriptionInitialPosition=Earliest"
    peer = consume(f"/ws/v2/consumer/{TOPIC}/{topic}/s{next(NUMBERS)}?{query}")
    return run(server, [peer], options.seconds, warm_s=options.warm_s / 2, count=filled)


def main() -> None:
    given = options(__doc__)
    head()
    with (
        servers.echo("websocket_echo") as echo,
        servers.echo("stack_echo") as stack,
        servers.penstock(folder=given.folder) as penstock,
    ):
        for kind, query in KINDS.items():
            compare(
                Runs(
                    f"WebSocket publish, durable, {SOCKETS} x {IN_FLIGHT} in flight, {kind}",
                    partial(exchange, echo, given),
                    partial(exchange, stack, given),
                    partial(exchange, penstock, given, query=query),
                ),
                given.rounds,
            )
        for number, (kind, query) in enumerate(KINDS.items()):
            topic, filled = f"delivery-{number}", int(FILL * given.seconds)
            fill(penstock, topic, query, filled)
            compare(
                Runs(
                    f"WebSocket delivery to one Shared consumer, acknowledged, {kind}",
                    partial(exchange, echo, given),
                    partial(exchange, stack, given),
                    partial(deliver, penstock, topic, given, filled),
                ),
                given.rounds,
            )


if __name__ == "__main__":
    main()
