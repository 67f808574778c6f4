"""The AsyncAPI document of the WebSocket API, made from the types that read and write its frames."""

from typing import Any, Final

import msgspec

from penstock.model.policy import Routing, SubscriptionType

from .frames import Answer, ConsumerCommand, ConsumerMessage, ProducerAck, ProducerMessage, ProducerReply
from .parameters import Compression, Hashing, InitialPosition, SubscriptionMode

_REF: Final = "#/components/schemas/{name}"

Schema = dict[str, Any]
Frame = type[msgspec.Struct]


def _integer(default: int, text: str) -> Schema:
    return {"type": "integer", "default": default, "description": text}


def _flag(text: str) -> Schema:
    return {"type": "boolean", "default": False, "description": text}


def _text(text: str) -> Schema:
    return {"type": "string", "description": text}


def _choice(kind: Any, default: Any) -> Schema:
    return {"type": "string", "enum": [member.value for member in kind], "default": default.value}


_TOKEN: Final = {"token": _text("for clients that cannot send an Authorization header")}

PRODUCER_QUERY: Final[dict[str, Schema]] = {
    "producerName": _text("chosen by the broker if it is missing; several producers may share it"),
    "initialSequenceId": _integer(-1, "the first message gets the next one"),
    "hashingScheme": {
        "type": "string",
        "enum": [member.value for member in Hashing],
        "description": "default: JavaStringHash; before Kafka engine.partitioner",
    },
    "messageRoutingMode": _choice(Routing, Routing.SINGLE),
    "sendTimeoutMillis": _integer(30_000, "0: none"),
    "batchingEnabled": _flag("whether neighbours may share an entry"),
    "batchingMaxMessages": _integer(1000, "with batchingEnabled"),
    "maxPendingMessages": _integer(1000, "with batchingEnabled; beyond it the socket is read no further"),
    "batchingMaxPublishDelay": _integer(1, "accepted; nothing is held back to fill a batch"),
    "compressionType": _choice(Compression, Compression.NONE),
    "encryptionKeys": _text("base64 of {name: {keyValue, metadata}}: payloads come encrypted (PIP-290)"),
    **_TOKEN,
}

CONSUMER_QUERY: Final[dict[str, Schema]] = {
    "subscriptionType": _choice(SubscriptionType, SubscriptionType.EXCLUSIVE),
    "subscriptionMode": _choice(SubscriptionMode, SubscriptionMode.DURABLE),
    "subscriptionInitialPosition": _choice(InitialPosition, InitialPosition.LATEST),
    "ackTimeoutMillis": _integer(0, "0: never, else at least 1000"),
    "receiverQueueSize": _integer(1000, "messages out and not acknowledged, at most 1000; 0 means 1"),
    "consumerName": _text("chosen by the broker where it is missing"),
    "priorityLevel": _integer(0, "0 is served first"),
    "negativeAckRedeliveryDelay": _integer(60_000, "milliseconds"),
    "maxRedeliverCount": _integer(0, "turns the dead-letter topic on"),
    "deadLetterTopic": _text("{topic}-{subscription}-DLQ where it is missing"),
    "cryptoFailureAction": _text("accepted; encrypted messages come as they are"),
    "pullMode": _flag("messages come only for permits"),
    **_TOKEN,
}

TOPICS_QUERY: Final[dict[str, Schema]] = {
    "topics": _text("topics, with commas between; or"),
    "topicsPattern": _text("[domain://]tenant/namespace/regular-expression"),
}

READER_QUERY: Final[dict[str, Schema]] = {
    "readerName": _text("chosen by the broker where it is missing"),
    "receiverQueueSize": _integer(1000, "messages sent ahead of the client's frames, at most 1000"),
    "messageId": {
        "type": "string",
        "default": "latest",
        "description": "start after it; or earliest, latest",
    },
    **_TOKEN,
}


SCHEMES: Final[dict[str, Schema]] = {
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "basic": {"type": "http", "scheme": "basic"},
    "query": {"type": "httpApiKey", "in": "query", "name": "token"},
}
_SECURITY: Final = [{"$ref": f"#/components/securitySchemes/{name}"} for name in SCHEMES]


def servers(address: str = "") -> dict[str, Any]:
    """The server's address in the document, from the URL at which it is reached over HTTP."""
    scheme, _, host = (address or "http://localhost:8080").partition("://")
    protocol = "wss" if scheme == "https" else "ws"
    return {"penstock": {"host": host, "protocol": protocol, "security": [*_SECURITY]}}


def asyncapi(version: str) -> dict[str, Any]:
    """The document, AsyncAPI 3.0; `version` is the server's."""
    frames: tuple[Frame, ...] = (
        ProducerMessage,
        ProducerAck,
        ProducerReply,
        ConsumerMessage,
        ConsumerCommand,
        Answer,
    )
    _, schemas = msgspec.json.schema_components(frames, ref_template=_REF)
    topic = "{domain}/{tenant}/{namespace}/{topic}"
    ends: dict[str, tuple[str, dict[str, Schema], Frame, tuple[Frame, ...]]] = {
        "producer": (
            f"/ws/v2/producer/{topic}",
            PRODUCER_QUERY,
            ProducerMessage,
            (ProducerAck, ProducerReply),
        ),
        "consumer": (
            f"/ws/v2/consumer/{topic}/{{subscription}}",
            CONSUMER_QUERY,
            ConsumerCommand,
            (ConsumerMessage, Answer),
        ),
        "consumerOfTopics": (
            "/ws/v3/consumer/{subscription}",
            CONSUMER_QUERY | TOPICS_QUERY,
            ConsumerCommand,
            (ConsumerMessage, Answer),
        ),
        "reader": (f"/ws/v2/reader/{topic}", READER_QUERY, ConsumerCommand, (ConsumerMessage, Answer)),
    }
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for name, (address, query, received, sent) in ends.items():
        channels[name] = _channel(address, query, (received, *sent))
        operations[f"{name}.receive"] = _operation("receive", name, (received,))
        operations[f"{name}.send"] = _operation("send", name, sent)
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Penstock WebSocket API",
            "version": version,
            "description": "Pulsar's WebSocket API: JSON text frames to produce, consume and read topics.",
        },
        "servers": servers(),
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": {
                kind.__name__: {"payload": {"$ref": _REF.format(name=kind.__name__)}} for kind in frames
            },
            "schemas": schemas,
            "securitySchemes": SCHEMES,
        },
    }


def _channel(address: str, query: dict[str, Schema], frames: tuple[Frame, ...]) -> Schema:
    names = [part.partition("}")[0] for part in address.split("{")[1:]]
    parameters: Schema = {name: {} for name in names}
    if "domain" in parameters:
        parameters["domain"] = {"enum": ["persistent", "non-persistent"]}
    return {
        "address": address,
        "parameters": parameters,
        "messages": {kind.__name__: {"$ref": f"#/components/messages/{kind.__name__}"} for kind in frames},
        "bindings": {"ws": {"method": "GET", "query": {"type": "object", "properties": query}}},
    }


def _operation(action: str, channel: str, frames: tuple[Frame, ...]) -> Schema:
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{channel}"},
        "messages": [{"$ref": f"#/channels/{channel}/messages/{kind.__name__}"} for kind in frames],
    }
