"""A server of remote calls: each request names a function and its arguments, the reply is the result.

    python examples/rpc_server.py [pulsar://127.0.0.1:6650]

Start as many as you like: the requests are shared among them.
"""

# ruff: noqa: T201 (examples talk on the terminal)
import json
import sys
from collections.abc import Callable
from typing import Any

import penstock

FUNCTIONS: dict[str, Callable[..., Any]] = {}


def remote(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function be called from afar."""
    FUNCTIONS[function.__name__] = function
    return function


@remote
def add(a: float, b: float) -> float:
    return a + b


@remote
def divide(a: float, b: float) -> float:
    return a / b


def serve(service_url: str) -> None:
    with penstock.Client(service_url) as client:
        consumer = client.subscribe("calls", "servers", penstock.ConsumerType.Shared)
        print("serving", flush=True)
        for message in consumer:
            if not message.is_request or message.request_expired:
                consumer.acknowledge(message)  # nobody waits
                continue
            try:
                name, arguments = json.loads(message.data())
                reply = json.dumps(FUNCTIONS[name](*arguments)).encode()
            except Exception as error:
                consumer.acknowledge(
                    message, reply=f"{type(error).__name__}: {error}".encode(), is_error=True
                )
            else:
                consumer.acknowledge(message, reply=reply)


if __name__ == "__main__":
    serve(sys.argv[1] if len(sys.argv) > 1 else "pulsar://127.0.0.1:6650")
