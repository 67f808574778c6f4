"""The WebSocket echo floor of uvicorn, Starlette and websockets: decodes a produced frame and answers as the endpoint
does, storing nothing. It is a constant reference and uses nothing of Penstock, whatever serves Penstock's own sockets.

`python -m benchmarks.websocket_echo PORT`; prints `ready` when it accepts.
"""

import asyncio
import gc
import sys
from typing import Annotated, Any

import msgspec
import uvicorn
import uvloop
from msgspec import UNSET, Meta, UnsetType
from starlette.routing import Router, WebSocketRoute

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Scalar = str | int | float | bool | None


class Message(msgspec.Struct, rename="camel", gc=False):
    """What a producer sends (Pulsar's WebSocket API)."""

    payload: Scalar = None
    properties: dict[str, Scalar] | None = None
    context: Scalar = None
    key: Scalar = None
    replication_clusters: list[str] | None = None
    event_time: Scalar = None
    sequence_id: Int64 | None = None
    disable_replication: bool | None = None
    deliver_at: Int64 | None = None
    deliver_after_ms: Int64 | None = None
    schema_version: Int64 | None = None
    key_schema: str | dict[str, Any] | None = None
    value_schema: str | dict[str, Any] | None = None
    key_value_encoding: str | None = None
    request_timeout_millis: Int64 | None = None
    encryption_param: Scalar = None
    compression_type: Scalar = None
    uncompressed_message_size: Int64 | None = None


class Ack(msgspec.Struct, rename="camel", gc=False):
    """What it is answered."""

    result: str
    error_msg: str | UnsetType = UNSET
    message_id: str | UnsetType = UNSET
    context: str | UnsetType = UNSET
    error_code: int = 0
    schema_version: int = 0


MESSAGE_ID = "CAAQAzAA"
read = msgspec.json.Decoder(Message, strict=False).decode
encode = msgspec.json.Encoder().encode


def answer(text: str | bytes) -> bytes:
    """The answer to a frame."""
    context: Any = read(text).context
    return encode(Ack("ok", message_id=MESSAGE_ID, context=context))


class Echo:
    """The ASGI application of one socket; a class, because Starlette takes a function for a handler of its own."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (event := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": answer(event["text"]).decode()})


async def serve(port: int) -> None:
    config = uvicorn.Config(
        Router([WebSocketRoute("/ws/{path:path}", Echo())]),
        port=port,
        loop="none",
        http="httptools",
        ws="websockets-sansio",
        lifespan="off",
        log_level="warning",
        ws_per_message_deflate=False,
    )
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    # As `penstock serve` does.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 50, 100)
    sys.setswitchinterval(0.0005)
    print("ready", flush=True)
    await asyncio.Event().wait()  # until the process is ended


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
