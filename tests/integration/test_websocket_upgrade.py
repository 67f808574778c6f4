"""Refused upgrades as raw HTTP: statuses and texts of Pulsar's WebSocket API, and the order of the checks."""

import http.client
from asyncio import to_thread

import pytest
from tests.support.websocket import CONSUMER, PRODUCER, READER, TOPICS, WebSocketServer

from penstock.broker.settings import BrokerSettings
from penstock.model.names import TopicName
from penstock.model.policy import AccessMode, ProducerOptions
from penstock.testing.credentials import Issuer


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        (
            f"{PRODUCER}/t?sendTimeoutMillis=x",
            400,
            'Invalid query params: For input string: "x" (sendTimeoutMillis)',
        ),
        (f"{PRODUCER}/t?messageRoutingMode=X", 400, "Invalid query params: Invalid messageRoutingMode X"),
        (f"{PRODUCER}/t?compressionType=X", 400, "Invalid query params: Invalid compressionType X"),
        (
            f"{PRODUCER}/t?encryptionKeys=a",
            500,
            "Failed to create producer: Can't add encryption key without configuring "
            "cryptoKeyReaderFactoryClassName",
        ),
        (f"{CONSUMER}/t/s?subscriptionType=X", 400, "Invalid query params: Invalid subscriptionType X"),
        (f"{CONSUMER}/t/", 400, "Invalid query params: Empty subscription name"),
        (f"{TOPICS}/s", 400, "Invalid query params: Should set topics or topicsPattern"),
        (
            f"{TOPICS}/s?topics=a&topicsPattern=b",
            400,
            "Invalid query params: Topics must be null when use topicsPattern",
        ),
        (
            f"{TOPICS}/s?topicsPattern=(",
            400,
            "Invalid query params: 'public/default/(?:()' is no regular expression that is matched here: it has a mistake: missing ): public/default/(?:()",
        ),
        (f"{READER}/t?messageId=x", 500, "Failed to create reader: invalid message id 'x'"),
        ("/ws/v2/producer/persistent/public", 400, "Invalid query params: Invalid topic name format"),
        ("/ws/v1/producer/persistent/public/default/t", 404, "no such WebSocket endpoint"),
    ],
)
async def test_refusals(path: str, status: int, body: str) -> None:
    async with WebSocketServer.open() as server:
        assert await server.upgrade(path) == (status, body)
        assert server.broker.topics.open_topics == []


async def test_what_is_not_there() -> None:
    async with WebSocketServer.open(settings=BrokerSettings(auto_create_topics=False)) as server:
        for path, role in ((f"{PRODUCER}/t", "producer"), (f"{CONSUMER}/t/s", "consumer")):
            status, body = await server.upgrade(path)
            assert status == 404
            assert body.startswith(f"Failed to create {role}: ")
        assert (await server.upgrade(f"{READER}/t"))[0] == 500


async def test_who_is_taken() -> None:
    async with WebSocketServer.open() as server:
        await server.broker.producer(TopicName.parse("t"), ProducerOptions(access_mode=AccessMode.EXCLUSIVE))
        assert await server.upgrade(f"{PRODUCER}/t?producerName=p") == (
            409,
            "Failed to create producer: Topic persistent://public/default/t has an existing exclusive producer",
        )
        await server.connect(f"{CONSUMER}/t/s")
        assert await server.upgrade(f"{CONSUMER}/t/s") == (
            409,
            "Failed to create consumer: Exclusive consumer is already connected",
        )
        assert (await server.upgrade(f"{CONSUMER}/t/s?subscriptionType=Shared"))[0] == 409


async def test_what_is_terminated() -> None:
    async with WebSocketServer.open() as server:
        name = TopicName.parse("t")
        await server.broker.topics.get(name)
        await server.broker.topics.terminate(name)
        status, body = await server.upgrade(f"{PRODUCER}/t")
        assert (status, body.split(":")[0]) == (503, "Failed to create producer")


async def test_a_server_that_goes_down_takes_nobody() -> None:
    async with WebSocketServer.open() as server:
        server.context.draining = True
        for path in (f"{PRODUCER}/t", f"{CONSUMER}/t/s", f"{READER}/t"):
            assert (await server.upgrade(path))[0] == 503


async def test_tokens_and_the_order_of_checks() -> None:
    issuer = Issuer()
    known = issuer.token("stranger")
    async with WebSocketServer.open(auth=issuer.settings()) as server:
        for path in (f"{PRODUCER}/t", f"{CONSUMER}/t/s", f"{READER}/t", f"{TOPICS}/s?topics=t"):
            none = "Failed to authenticate: credentials are needed, and there are none"
            assert await server.upgrade(path) == (401, none)
            joined = "&" if "?" in path else "?"
            status, text = await server.upgrade(f"{path}{joined}token={known}")
            assert status == 403
            assert text.startswith("Not authorized: role 'stranger' may not ")
            for bearer in (f"Bearer {known}", f"bearer {known}"):
                given = f"Authorization: {bearer}"
                assert (await server.upgrade(f"{path}{joined}token=other", given))[0] == 403
            # As Pulsar's clients may write it.
            assert (await server.upgrade(f"{path}{joined}token=Bearer%20{known}"))[0] == 403
        # A producer and a reader are authenticated first, a consumer's parameters are read first.
        assert (await server.upgrade(f"{PRODUCER}/t?sendTimeoutMillis=x"))[0] == 401
        assert (await server.upgrade(f"{READER}/t?receiverQueueSize=x"))[0] == 401
        assert (await server.upgrade(f"{CONSUMER}/t/s?receiverQueueSize=x"))[0] == 400
        assert server.broker.topics.open_topics == []


async def test_http_without_an_upgrade() -> None:
    async with WebSocketServer.open() as server:

        def get() -> tuple[int, bytes]:
            connection = http.client.HTTPConnection("127.0.0.1", server.port)
            connection.request("GET", f"{PRODUCER}/t")
            response = connection.getresponse()
            body = response.read()
            connection.close()
            return response.status, body

        assert await to_thread(get) == (426, b"this is a WebSocket endpoint")
