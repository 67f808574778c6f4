"""Frames as clients send them, and what becomes of them when something goes wrong: for tests of the endpoints."""

import json
import os
import random
import struct
from base64 import b64encode
from typing import Any, Final

from penstock.wire.batch import pack_plain
from penstock.wire.bulk import batch_entry
from penstock.wire.frames import FIELD, encode
from penstock.wire.pulsar_pb2 import BaseCommand, CommandSubscribe

TOPIC: Final = "persistent://public/default/fuzzed"
PAYLOAD: Final = b64encode(b"hello").decode()

# -- WebSocket: texts

TEXTS: Final[dict[str, list[dict[str, Any]]]] = {
    "producer": [
        {"payload": PAYLOAD, "context": "1"},
        {"payload": PAYLOAD, "key": "k", "properties": {"a": "b"}, "sequenceId": 1, "eventTime": "2026-01-01T00:00:00Z"},
        {"payload": PAYLOAD, "deliverAt": 1, "deliverAfterMs": 1, "schemaVersion": 0, "requestTimeoutMillis": 5},
        {"payload": PAYLOAD, "valueSchema": '{"type":"STRING","schema":"","properties":{}}', "replicationClusters": []},
    ],
    "consumer": [
        {"messageId": "CAAQACAAMAE="},
        {"messageId": "CAAQAA==", "ackType": "cumulative", "context": "1"},
        {"messageId": "CAAQAA==", "replyContent": PAYLOAD, "isErrorResult": True, "context": "2"},
        {"type": "negativeAcknowledge", "messageId": "CAAQAA==", "context": "3"},
        {"type": "permit", "permitMessages": 10},
        {"type": "seek", "timestamp": 1, "context": "4"},
        {"type": "seek", "messageId": "CAAQAA=="},
        {"type": "isEndOfTopic", "context": "5"},
        {"type": "unsubscribe", "context": "6"},
    ],
    "reader": [{"messageId": "CAAQAA=="}, {"type": "isEndOfTopic"}],
}  # fmt: skip

PATHS: Final = {
    "producer": "/ws/v2/producer/persistent/public/default/fuzzed",
    "consumer": "/ws/v2/consumer/persistent/public/default/fuzzed/s?subscriptionType=Shared&pullMode=true",
    "reader": "/ws/v2/reader/persistent/public/default/fuzzed?messageId=earliest",
}

ODD: Final[list[Any]] = [
    None, True, 0, -1, 1, 2**31, 2**53, 2**63, -(2**63), 2**64, 10**400, 0.5, 1e308, -0.0, "", "0", "=", "\ud800",
    "\x00", "x" * 70_000, [], [[]], {}, {"a": None}, {"": {}}, "CAAQACAAMAE", "////", PAYLOAD * 3, "earliest", "\u202e",
]  # fmt: skip


def odd_text(dice: random.Random, role: str) -> bytes:
    """A frame's text, not quite as it should be."""
    frame: Any = dict(dice.choice(TEXTS[role]))
    for _ in range(dice.randint(0, 2)):
        key = dice.choice([*frame, "context", "type", "payload", "messageId"])
        frame[key] = dice.choice(ODD)
    content = json.dumps(frame).encode()
    match dice.randint(0, 6):
        case 0:
            content = content[: dice.randint(0, len(content))]
        case 1:
            content = turned(dice, content)
        case 2:
            content = b"[" * dice.randint(1, 5000) + content
        case 3:
            content = content.replace(b":", b":" * 2, 1)
    return content


def turned(dice: random.Random, content: bytes) -> bytes:
    """Some of its bytes changed."""
    made = bytearray(content)
    for _ in range(dice.randint(1, 4)):
        if made:
            made[dice.randrange(len(made))] = dice.randrange(256)
    return bytes(made)


def websocket_frame(dice: random.Random, content: bytes, *, odd: bool) -> bytes:
    """One frame of RFC 6455, masked; `odd`: with something wrong in its head."""
    opcode, finished, masked, reserved = 1, 1, 1, 0
    if odd:
        opcode = dice.randrange(16)
        finished = dice.randint(0, 1)
        masked = int(dice.random() < 0.8)
        reserved = dice.choice((0, 0, 1, 7))
    size = len(content)
    if odd and dice.random() < 0.2:
        size = dice.choice((0, 125, 126, 65_535, 2**31, 2**63 - 1))
    head = bytes([finished << 7 | reserved << 4 | opcode])
    if size < 126:
        head += bytes([masked << 7 | size])
    elif size < 65_536:
        head += bytes([masked << 7 | 126]) + struct.pack(">H", size)
    else:
        head += bytes([masked << 7 | 127]) + struct.pack(">Q", size)
    if not masked:
        return head + content
    key = os.urandom(4)
    return head + key + bytes(byte ^ key[place % 4] for place, byte in enumerate(content))


# -- Pulsar's protocol: commands


def commands() -> list[BaseCommand]:
    """What a client sends in a short life, but for SEND."""
    made = []
    for kind, fields in (
        (BaseCommand.CONNECT, {"client_version": "fuzz", "protocol_version": 21}),
        (BaseCommand.PARTITIONED_METADATA, {"topic": TOPIC, "request_id": 1}),
        (BaseCommand.LOOKUP, {"topic": TOPIC, "request_id": 2}),
        (BaseCommand.PRODUCER, {"topic": TOPIC, "producer_id": 1, "request_id": 3, "producer_name": "p"}),
        (BaseCommand.SUBSCRIBE, {"topic": TOPIC, "subscription": "s", "subType": CommandSubscribe.Shared,
                                 "consumer_id": 1, "request_id": 4}),
        (BaseCommand.FLOW, {"consumer_id": 1, "messagePermits": 100}),
        (BaseCommand.ACK, {"consumer_id": 1, "ack_type": 0, "request_id": 5}),
        (BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, {"consumer_id": 1}),
        (BaseCommand.GET_LAST_MESSAGE_ID, {"consumer_id": 1, "request_id": 6}),
        (BaseCommand.CONSUMER_STATS, {"consumer_id": 1, "request_id": 7}),
        (BaseCommand.GET_TOPICS_OF_NAMESPACE, {"namespace": "public/default", "request_id": 8}),
        (BaseCommand.GET_SCHEMA, {"topic": TOPIC, "request_id": 9}),
        (BaseCommand.GET_OR_CREATE_SCHEMA, {"topic": TOPIC, "request_id": 10}),
        (BaseCommand.SEEK, {"consumer_id": 1, "request_id": 11, "message_publish_time": 1}),
        (BaseCommand.WATCH_TOPIC_LIST, {"namespace": "public/default", "topics_pattern": ".*", "watcher_id": 1,
                                        "request_id": 12}),
        (BaseCommand.PING, {}),
        (BaseCommand.AUTH_RESPONSE, {"client_version": "fuzz"}),
        (BaseCommand.UNSUBSCRIBE, {"consumer_id": 1, "request_id": 13}),
        (BaseCommand.CLOSE_CONSUMER, {"consumer_id": 1, "request_id": 14}),
        (BaseCommand.CLOSE_PRODUCER, {"producer_id": 1, "request_id": 15}),
    ):  # fmt: skip
        command = BaseCommand(type=kind)
        inner = getattr(command, FIELD[kind])
        inner.SetInParent()
        for name, value in fields.items():
            setattr(inner, name, value)
        if kind == BaseCommand.ACK:
            inner.message_id.add(ledgerId=1, entryId=0)
        if kind == BaseCommand.GET_OR_CREATE_SCHEMA:
            inner.schema.name, inner.schema.type, inner.schema.schema_data = "", 1, b""
        made.append(command)
    return made


def sending(number: int) -> bytes:
    """SEND of one message."""
    entry = batch_entry(
        pack_plain([b"hello"]), 1, producer="p", sequence_id=number, publish_time=1_700_000_000_000
    )
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id, command.send.sequence_id, command.send.num_messages = 1, number, 1
    bare = encode(command)[4:]
    return (len(bare) + len(entry)).to_bytes(4, "big") + bare + entry


def odd_command(dice: random.Random, command: BaseCommand) -> bytes:
    """A command with some of its fields set to what they seldom are; still protobuf."""
    made = BaseCommand()
    made.CopyFrom(command)
    inner: Any = getattr(made, FIELD[command.type])
    for field in dice.sample(list(inner.DESCRIPTOR.fields), min(2, len(inner.DESCRIPTOR.fields))):
        value: Any = None
        match field.cpp_type:
            case field.CPPTYPE_UINT64:
                value = dice.choice((0, 1, 2**32, 2**63, 2**64 - 1))
            case field.CPPTYPE_INT64:
                value = dice.choice((0, -1, 2**63 - 1, -(2**63)))
            case field.CPPTYPE_UINT32:
                value = dice.choice((0, 1, 2**31, 2**32 - 1))
            case field.CPPTYPE_INT32:
                value = dice.choice((0, -1, 2**31 - 1, -(2**31)))
            case field.CPPTYPE_BOOL:
                value = dice.random() < 0.5
            case field.CPPTYPE_STRING if field.type == field.TYPE_STRING:
                value = dice.choice(
                    ("", TOPIC, "\x00", "a/b", "(((", ".*", "x" * 5000, "non-persistent://a/b/c")
                )
            case field.CPPTYPE_STRING:
                value = dice.randbytes(dice.randint(0, 50))
            case field.CPPTYPE_ENUM:
                value = dice.choice(list(field.enum_type.values)).number
        if value is not None:
            target = getattr(inner, field.name)
            if hasattr(target, "append"):
                target.append(value)
            else:
                setattr(inner, field.name, value)
    return encode(made)


def odd_conversation(dice: random.Random) -> bytes:
    """A client's whole exchange, in which some things are wrong."""
    hello, *said = commands()
    if dice.random() < 0.3:
        dice.shuffle(said)
    if dice.random() < 0.95:
        said.insert(0, hello)
    parts: list[bytes] = []
    for command in said:
        odd = dice.random() < (0.02 if command is hello else 0.15)
        parts.append(odd_command(dice, command) if odd else encode(command))
        if command.type == BaseCommand.PRODUCER:
            parts += [sending(number) for number in range(dice.randint(0, 5))]
    for _ in range(dice.randint(0, 2)):
        place = dice.randrange(len(parts))
        match dice.randint(0, 4):
            case 0:
                parts[place] = turned(dice, parts[place])
            case 1:
                parts[place] = parts[place][: dice.randint(0, len(parts[place]))]
            case 2:
                parts.insert(place, parts[dice.randrange(len(parts))])
            case 3:
                del parts[place]
            case 4:
                parts.insert(place, dice.randbytes(dice.randint(1, 60)))
    return b"".join(parts)
