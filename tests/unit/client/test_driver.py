"""The asyncio driver against a broker that follows a script."""

import asyncio
import ssl
import subprocess
from pathlib import Path

import pytest
from tests.support.waiting import until_async

import penstock
from penstock.wire.frames import Frame
from penstock.wire.pulsar_pb2 import BaseCommand

from .broker import delivery
from .fake import error, fake, receipt


def client(port: int, **options: object) -> penstock.aio.Client:
    return penstock.aio.Client(f"pulsar://127.0.0.1:{port}", operation_timeout_seconds=30, **options)  # type: ignore[arg-type]


async def test_the_order_of_commands() -> None:
    async with fake() as broker, client(broker.port) as ours:
        producer = await ours.create_producer("t")
        await producer.send(b"x")
        consumer = await ours.subscribe("t", "sub")
        await consumer.close()
        await producer.close()

    assert broker.heard == [
        "CONNECT", "PARTITIONED_METADATA", "LOOKUP", "PRODUCER", "SEND",
        "PARTITIONED_METADATA", "LOOKUP", "SUBSCRIBE", "FLOW", "CLOSE_CONSUMER", "CLOSE_PRODUCER",
    ]  # fmt: skip


async def test_a_broker_without_requests_is_told_apart() -> None:
    async with fake(replies=False) as broker, client(broker.port) as ours:
        producer = await ours.create_producer("t")
        with pytest.raises(penstock.OperationNotSupported, match="PIP-371"):
            await producer.request(b"?")
        consumer = await ours.subscribe("t", "sub")
        frame = delivery(0, b"?")
        frame.command.message.consumer_id = 1
        broker.script[BaseCommand.FLOW] = lambda _: []
        broker._protocols[-1].transport.write(_message(frame))
        message = await consumer.receive(30_000)
        with pytest.raises(penstock.OperationNotSupported, match="PIP-371"):
            await consumer.acknowledge(message, reply=b"!")
        await consumer.acknowledge(message)


def _message(frame: Frame) -> bytes:
    from penstock.wire.frames import encode_with_entry

    return b"".join(encode_with_entry(frame.command, frame.entry))


async def test_lookups_are_redirected_and_proxied() -> None:
    async with fake() as first, fake() as second:

        def lookup(frame: Frame) -> list[BaseCommand]:
            answer = second.lookup(frame, redirect=not frame.command.lookup.authoritative)
            return [answer]

        first.script[BaseCommand.LOOKUP] = lookup
        second.script[BaseCommand.LOOKUP] = lambda frame: [first.lookup(frame, proxy=True)]
        async with client(first.port) as ours:
            await ours.create_producer("t")

        connects = [frame.command.connect for frame in first.frames if frame.type == BaseCommand.CONNECT]
        assert [connect.proxy_to_broker_url for connect in connects] == ["", f"127.0.0.1:{first.port}"]
        assert "LOOKUP" in second.heard
        assert "PRODUCER" in first.heard


async def test_what_may_pass_is_tried_again_and_what_will_not_is_raised() -> None:
    async with fake() as broker, client(broker.port) as ours:
        failures = [6, 14]  # not ready, too many requests

        def producer(frame: Frame) -> list[BaseCommand]:
            if failures:
                return [error(frame.command.producer.request_id, failures.pop())]
            return broker._usual(frame)

        broker.script[BaseCommand.PRODUCER] = producer
        made = await ours.create_producer("t")
        assert made.producer_name() == "given"
        failures.append(4)
        with pytest.raises(penstock.AuthorizationError, match="no"):
            await ours.create_producer("u")


async def test_a_message_the_broker_could_not_store_is_sent_again() -> None:
    async with fake() as broker, client(broker.port) as ours:
        answers = ["fail"]

        def send(frame: Frame) -> list[BaseCommand]:
            if answers:
                answers.pop()
                out = BaseCommand(type=BaseCommand.SEND_ERROR)
                body = out.send_error
                body.producer_id, body.sequence_id = frame.command.send.producer_id, 0
                body.error, body.message = 2, "disk"  # type: ignore[assignment]
                return [out]
            return [receipt(frame)]

        broker.script[BaseCommand.SEND] = send
        producer = await ours.create_producer("t")
        message_id = await producer.send(b"x")

        assert message_id.entry_id() == 0
        assert broker.heard.count("SEND") == 2
        assert broker.heard.count("PRODUCER") == 2
        epochs = [f.command.producer.epoch for f in broker.frames if f.type == BaseCommand.PRODUCER]
        assert epochs == [0, 1]


async def test_a_message_the_broker_refuses_fails_alone() -> None:
    async with fake() as broker, client(broker.port) as ours:

        def send(frame: Frame) -> list[BaseCommand]:
            if frame.command.send.sequence_id != 0:
                return [receipt(frame)]
            out = BaseCommand(type=BaseCommand.SEND_ERROR)
            body = out.send_error
            body.producer_id, body.sequence_id = frame.command.send.producer_id, 0
            body.error, body.message = 22, "no"  # type: ignore[assignment]
            return [out]

        broker.script[BaseCommand.SEND] = send
        producer = await ours.create_producer("t", batching_enabled=False)
        results = await asyncio.gather(*(producer.send(b"x") for _ in range(2)), return_exceptions=True)

        assert isinstance(results[0], penstock.NotAllowedError)
        assert isinstance(results[1], penstock.MessageId)


async def test_a_schema_registered_after_the_batch_delay_holds_nothing_back() -> None:
    async with fake() as broker, client(broker.port) as ours:
        asked: list[int] = []

        def later(frame: Frame) -> list[BaseCommand]:
            asked.append(frame.command.get_or_create_schema.request_id)
            return []

        broker.script[BaseCommand.GET_OR_CREATE_SCHEMA] = later
        producer = await ours.create_producer("t", batching_max_publish_delay_ms=10)
        message = producer.new_message("x", schema=penstock.StringSchema())
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(message.send())
            await asyncio.sleep(0.1)  # the batch's delay passes meanwhile
            await until_async(lambda: asked)
            answer = BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE)
            answer.get_or_create_schema_response.request_id = asked[0]
            answer.get_or_create_schema_response.schema_version = bytes(8)
            broker.say(answer)


async def test_a_producer_closed_by_the_broker_comes_back() -> None:
    async with fake() as broker, client(broker.port) as ours:
        producer = await ours.create_producer("t")
        await producer.send(b"x")
        close = BaseCommand(type=BaseCommand.CLOSE_PRODUCER)
        close.close_producer.producer_id, close.close_producer.request_id = 0, 2**64 - 1
        broker.say(close)
        await until_async(lambda: broker.heard.count("PRODUCER") == 2)
        await producer.send(b"y")

        assert broker.heard.count("PRODUCER") == 2
        assert broker.heard.count("CONNECT") == 1


async def test_no_receipt_is_a_timeout() -> None:
    async with fake() as broker, client(broker.port) as ours:
        broker.script[BaseCommand.SEND] = lambda _: []
        producer = await ours.create_producer("t", send_timeout_millis=50)
        with pytest.raises(penstock.Timeout):
            await producer.send(b"x")
        broker.script[BaseCommand.LOOKUP] = lambda _: []
        with pytest.raises(penstock.Timeout):
            await penstock.aio.Client(
                f"pulsar://127.0.0.1:{broker.port}", operation_timeout_seconds=0.5
            ).create_producer("u")


async def test_tokens_travel() -> None:
    async with fake() as broker:
        async with client(broker.port, authentication=penstock.AuthenticationToken("secret")) as ours:
            await ours.create_producer("t")
        connect = broker.frames[0].command.connect

    assert (connect.auth_method_name, connect.auth_data) == ("token", b"secret")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    key, chain = folder / "key.pem", folder / "cert.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(chain)]
    subprocess.run(command, check=True, capture_output=True)
    return chain, key


async def test_tls(certificate: tuple[Path, Path]) -> None:
    chain, key = certificate
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain, key)
    async with fake(tls=context) as broker:
        url = f"pulsar+ssl://127.0.0.1:{broker.port}"
        async with penstock.aio.Client(url, tls_trust_certs_file_path=str(chain)) as ours:
            producer = await ours.create_producer("t")
            await producer.send(b"x")
        async with penstock.aio.Client(url, tls_allow_insecure_connection=True) as ours:
            await ours.create_producer("t")
        trusting = ssl.create_default_context(cafile=str(chain))
        for options in ({}, {"ssl_context": trusting}):
            async with penstock.aio.Client(url, operation_timeout_seconds=0.5, **options) as ours:  # type: ignore[arg-type]
                with pytest.raises(penstock.ConnectError):  # nobody vouches for it, or it is another host's
                    await ours.create_producer("t")
    with pytest.raises(penstock.InvalidConfiguration):
        penstock.aio.Client("pulsar+ssl://h", tls_trust_certs_file_path="/nowhere.pem")
