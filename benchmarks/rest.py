"""REST publish, durable, beside its floors: 1 and 100 messages a request, in both dialects.

    python -m benchmarks.rest [--seconds 2] [--rounds 5] [--quick] [--folder DIR]

Both floors are asked in the native dialect, of which they decode and answer the same JSON.
"""

import json
from functools import partial
from typing import Final

from . import servers
from .generator import Result, Server, http, post, run
from .measuring import Options, Runs, compare, head, options

CONNECTIONS: Final = 32
PATH: Final = "/topics/public/default/bench"
SHIPPED: Final = "/topics/persistent/public/default/bench-shipped"


def body(messages: int, field: str = "value") -> bytes:
    """A request's body; `field` is where a dialect has the payload."""
    return json.dumps({"messages": [{field: "x" * 100}] * messages}, separators=(",", ":")).encode()


def publish(server: Server, request: bytes, options: Options, connections: int = CONNECTIONS) -> Result:
    """The same request again and again on each connection."""
    return run(server, [http(request, connections=connections)], options.seconds, warm_s=options.warm_s)


def main() -> None:
    given = options(__doc__)
    head()
    with (
        servers.echo() as echo,
        servers.echo("stack_echo") as stack,
        servers.penstock(folder=given.folder) as penstock,
    ):
        for messages in (1, 100):
            native = post(PATH, body(messages))
            shipped = post(SHIPPED, body(messages, "payload"))
            for dialect, request in (("native", native), ("shipped", shipped)):
                name = f"REST publish, durable, {messages} of 100 bytes a request, {dialect}"
                compare(
                    Runs(
                        name,
                        partial(publish, echo, native, given),
                        partial(publish, stack, native, given),
                        partial(publish, penstock, request, given),
                    ),
                    given.rounds,
                )


if __name__ == "__main__":
    main()
