"""The interface for programs: OpenAPI of all HTTP doors, AsyncAPI of the WebSocket one."""

from typing import Any, Final

from penstock import __version__
from penstock.model.errors import ErrorKind
from penstock.protocols.admin.openapi import operations
from penstock.protocols.openapi import Operation, document
from penstock.protocols.rest.operations import OPERATIONS
from penstock.protocols.session import Gate


def openapi(gate: Gate) -> dict[str, Any]:
    """The OpenAPI document."""
    made = document(gate, [*OPERATIONS, *operations(), *_HEALTH], version=__version__)
    made["info"] |= {
        "description": "HTTP over durable topics: publish, read and consume (PIP-64), and administer.",
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    }
    return made


_HEALTH: Final = (
    Operation(
        method="GET",
        path="/health/live",
        tag="health",
        summary="Whether the process runs.",
        answer=dict[str, str],
    ),
    Operation(
        method="GET",
        path="/health/ready",
        tag="health",
        summary="Whether the server takes work; 503 while it shuts down.",
        answer=dict[str, str],
        errors=(ErrorKind.UNAVAILABLE,),
    ),
)


def asyncapi() -> dict[str, Any]:
    """The AsyncAPI document of the WebSocket door: Pulsar's WebSocket API with what was mended."""
    text = {"type": "string"}
    number = {"type": "integer"}
    texts = {"type": "object", "additionalProperties": text}
    payload = {"type": "string", "contentEncoding": "base64"}
    publish = _object(
        payload=payload, key=text, properties=texts, context=text, sequenceId=number, schemaVersion=number,
        eventTime=text, deliverAt=number, deliverAfterMs=number,
    )  # fmt: skip
    receipt = _object(result=text, messageId=text, errorCode=number, errorMsg=text, context=text)
    delivery = _object(
        messageId=text, payload=payload, properties=texts, publishTime=text, redeliveryCount=number, key=text,
        eventTime=text, topic=text, sequenceId=number, producerName=text, schemaVersion=number,
    )  # fmt: skip
    command = _object(
        type=text, messageId=text, permitMessages=number, ackType=text, timestamp=number, context=text
    )
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Penstock over WebSocket", "version": __version__},
        "channels": {
            name: {
                "address": address,
                "parameters": {part: {} for part in parts},
                "messages": {"in": {"payload": taken}, "out": {"payload": given}},
            }
            for name, address, parts, taken, given in (
                ("producer", f"/ws/v2/producer/{_TOPIC}", _PARTS, publish, receipt),
                (
                    "consumer",
                    f"/ws/v2/consumer/{_TOPIC}/{{subscription}}",
                    [*_PARTS, "subscription"],
                    command,
                    delivery,
                ),
                ("consumers", "/ws/v3/consumer/{subscription}", ["subscription"], command, delivery),
                ("reader", f"/ws/v2/reader/{_TOPIC}", _PARTS, command, delivery),
            )
        },
        "operations": {
            f"{action}-{name}": {"action": action, "channel": {"$ref": f"#/channels/{name}"}}
            for name in ("producer", "consumer", "consumers", "reader")
            for action in ("send", "receive")
        },
    }


_PARTS = ["domain", "tenant", "namespace", "topic"]
_TOPIC = "/".join(f"{{{part}}}" for part in _PARTS)


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}
