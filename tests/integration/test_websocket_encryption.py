"""Payloads that clients encrypt themselves (PIP-290), from producer to consumer."""

import json
from base64 import b64encode
from typing import Any
from urllib.parse import quote

import pytest
from tests.support.websocket import CONSUMER, PRODUCER, READER, WebSocketServer

from penstock.model.names import TopicName
from penstock.wire.contents import parse
from penstock.wire.pulsar_pb2 import LZ4

KEYS = {"mine": {"keyValue": "a2V5", "metadata": {"version": "1"}}, "yours": {"keyValue": "eWVr"}}
PARAM = b64encode(b"initial vector").decode()
SEALED = b64encode(b"\x00sealed\xff").decode()


def url(keys: Any = KEYS, more: str = "") -> str:
    return f"{PRODUCER}/t?encryptionKeys={quote(b64encode(json.dumps(keys).encode()).decode())}{more}"


async def test_a_sealed_payload_comes_with_what_opens_it() -> None:
    async with WebSocketServer.open() as server:
        receiving = await server.connect(f"{CONSUMER}/t/s?subscriptionInitialPosition=Earliest")
        sending = await server.connect(url(more="&batchingEnabled=true&compressionType=LZ4"))
        for _ in range(3):
            await sending.send(
                {
                    "payload": SEALED,
                    "encryptionParam": PARAM,
                    "compressionType": "LZ4",
                    "uncompressedMessageSize": 1234,
                    "key": "k",
                    "eventTime": "2020-01-01T00:00:00Z",
                    "properties": {"a": "b"},
                }
            )
        for _ in range(3):
            assert (await sending.receive())["result"] == "ok"
            frame = await receiving.receive()
            assert (frame["payload"], frame["key"], frame["properties"]) == (SEALED, "k", {"a": "b"})
            assert frame["eventTime"] == "2020-01-01T00:00:00.000Z"
            assert frame["encryptionContext"] == {
                "keys": {
                    "mine": {"keyValue": "a2V5", "metadata": {"version": "1"}},
                    "yours": {"keyValue": "eWVr", "metadata": {}},
                },
                "param": PARAM,
                "algorithm": "",
                "compressionType": "LZ4",
                "uncompressedMessageSize": 1234,
                "encrypted": True,
            }
        topic = await server.broker.topics.get(TopicName.parse("t"))
        entries = await topic.read(0, 10)
        assert [entry.count for entry in entries] == [1, 1, 1]
        metadata, payload = parse(entries[0].data)
        assert payload == b"\x00sealed\xff"
        assert [(k.key, k.value) for k in metadata.encryption_keys] == [("mine", b"key"), ("yours", b"yek")]
        assert metadata.encryption_keys[0].metadata[0].value == "1"
        assert metadata.encryption_param == b"initial vector"
        assert (metadata.compression, metadata.uncompressed_size) == (LZ4, 1234)


async def test_a_reader_gets_it_too_and_plain_messages_stay_plain() -> None:
    async with WebSocketServer.open() as server:
        await (await server.connect(url())).ask({"payload": SEALED, "encryptionParam": PARAM})
        plain = await server.connect(f"{PRODUCER}/t")
        await plain.ask({"payload": SEALED, "encryptionParam": "?", "compressionType": "LZ4"})
        reading = await server.connect(f"{READER}/t?messageId=earliest")
        context = (await reading.receive())["encryptionContext"]
        assert (context["compressionType"], context["uncompressedMessageSize"]) == ("NONE", 0)
        assert "encryptionContext" not in await reading.receive()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "encryptionParam is missing"),
        ({"encryptionParam": "?"}, "Invalid Base64 encryptionParam"),
        ({"encryptionParam": PARAM, "compressionType": "LZ4"}, "go together"),
        ({"encryptionParam": PARAM, "uncompressedMessageSize": 1}, "go together"),
        ({"encryptionParam": PARAM, "compressionType": "RAR", "uncompressedMessageSize": 1}, "RAR"),
        ({"encryptionParam": PARAM, "compressionType": "LZ4", "uncompressedMessageSize": -1}, "-1"),
    ],
)
async def test_what_is_said_of_it_must_make_sense(fields: dict[str, Any], text: str) -> None:
    async with WebSocketServer.open() as server:
        sending = await server.connect(url())
        answer = await sending.ask({"payload": SEALED, "context": "c", **fields})
        assert (answer["result"], answer["context"]) == ("send-error:7", "c")
        assert text in answer["errorMsg"]
        assert (await server.broker.topics.get(TopicName.parse("t"))).next_offset == 0


async def test_a_schema_is_named_and_the_payload_not_looked_into() -> None:
    async with WebSocketServer.open() as server:
        sending = await server.connect(url())
        schema = {"type": "JSON", "schema": {"type": "record", "name": "R", "fields": []}}
        answer = await sending.ask({"payload": SEALED, "encryptionParam": PARAM, "valueSchema": schema})
        assert answer["result"] == "ok"
        reading = await server.connect(f"{READER}/t?messageId=earliest")
        assert (await reading.receive())["schemaVersion"] == 0


async def test_keys_that_the_server_would_have_to_find() -> None:
    async with WebSocketServer.open() as server:
        status, body = await server.upgrade(f"{PRODUCER}/t?encryptionKeys=mine,yours")
        assert (status, body) == (
            500,
            "Failed to create producer: "
            "Can't add encryption key without configuring cryptoKeyReaderFactoryClassName",
        )
        assert (await server.upgrade(url({"mine": 5})))[0] == 400


async def test_a_dead_letter_comes_with_what_opens_it() -> None:
    async with WebSocketServer.open() as server:
        policy = (
            "subscriptionType=Shared&maxRedeliverCount=1&negativeAckRedeliveryDelay=10&deadLetterTopic=dead"
        )
        letters = await server.connect(f"{CONSUMER}/dead/s?subscriptionInitialPosition=Earliest")
        receiving = await server.connect(f"{CONSUMER}/t/s?subscriptionInitialPosition=Earliest&{policy}")
        await (await server.connect(url())).ask({"payload": SEALED, "encryptionParam": PARAM})
        for _ in range(2):
            message_id = (await receiving.receive())["messageId"]
            await receiving.send({"type": "negativeAcknowledge", "messageId": message_id})
        letter = await letters.receive()
        assert (letter["payload"], letter["encryptionContext"]["param"]) == (SEALED, PARAM)
