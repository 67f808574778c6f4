"""A client of examples/rpc_server.py.

python examples/rpc_client.py [pulsar://127.0.0.1:6650]
"""

# ruff: noqa: T201 (examples talk on the terminal)
import json
import sys
from typing import Any

import penstock


class RemoteError(Exception):
    """The function failed where it ran."""


def call(producer: penstock.Producer, name: str, *arguments: Any) -> Any:
    """Call a function of the server's and wait for its result."""
    result = producer.request(json.dumps([name, arguments]).encode(), timeout_ms=5000)
    if result.is_error_result:
        raise RemoteError(result.reply_content.decode())
    return json.loads(result.reply_content)


def main(service_url: str) -> None:
    with penstock.Client(service_url) as client:
        producer = client.create_producer("calls")
        print("2 + 3 =", call(producer, "add", 2, 3))
        try:
            call(producer, "divide", 1, 0)
        except RemoteError as error:
            print("divide(1, 0):", error)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "pulsar://127.0.0.1:6650")
