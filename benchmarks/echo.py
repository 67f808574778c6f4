"""The echo floor of HTTP: uvicorn and Starlette, decoding and answering the same JSON, storing nothing. It is a
constant reference and uses nothing of Penstock.

`python -m benchmarks.echo PORT`; prints `ready` when it accepts.
"""

import sys

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class Message(msgspec.Struct):
    value: str


class Body(msgspec.Struct):
    messages: list[Message]


class Receipt(msgspec.Struct, rename="camel"):
    message_id: str
    partition: int
    error_code: int | None = msgspec.field(name="error_code")
    error: str | None


class Answer(msgspec.Struct):
    schema_version: int
    receipts: list[Receipt] = msgspec.field(name="messageIds")


_decode = msgspec.json.Decoder(Body).decode
_encode = msgspec.json.Encoder().encode


def answer(content: bytes) -> bytes:
    """The body of the answer to the body of a request."""
    body = _decode(content)
    receipts = [Receipt("CAAQACAAMAI=", 0, None, None) for _ in body.messages]
    return _encode(Answer(0, receipts))


async def produce(request: Request) -> Response:
    return Response(answer(await request.body()), media_type="application/json")


app = Starlette(routes=[Route("/topics/{tenant}/{namespace}/{topic}", produce, methods=["POST"])])


class _Server(uvicorn.Server):
    async def startup(self, sockets: object = None) -> None:
        await super().startup(sockets)  # type: ignore[arg-type]
        print("ready", flush=True)


if __name__ == "__main__":
    config = uvicorn.Config(
        app, port=int(sys.argv[1]), loop="uvloop", http="httptools", log_level="error", access_log=False
    )
    _Server(config).run()
