"""The binary endpoint against its floors: publishing against the store, consuming against prepared frames.

    python -m benchmarks.binary [--seconds 3] [--folder DIR]

Entries are batches of 1,000 messages of 100 bytes. `official` is Pulsar's own client; `raw` is a socket that
writes prepared SEND frames, or reads MESSAGE frames without opening them: what the server can do.
"""

import argparse
import asyncio
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulsar
import uvloop

from benchmarks.servers import penstock_urls
from benchmarks.store_floor import Case, floor
from penstock.model.message_id import MessageId
from penstock.wire import entry as wire
from penstock.wire.frames import FIELD, FrameDecoder, encode, encode_with_entry, message_head
from penstock.wire.pulsar_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandConnected,
    CommandFlow,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
    CommandProducer,
    CommandSend,
    CommandSubscribe,
    CommandSuccess,
)

MESSAGES, SIZE = 1000, 100
WINDOW = 32  # batches in flight
PAYLOAD = b"x" * SIZE
ENTRY = wire.encode_plain(
    [PAYLOAD] * MESSAGES, producer="p", sequence_id=0, publish_time=1_700_000_000_000, schema_version=None
).data
TOPIC = "persistent://public/default/bench"
RAW = TOPIC + "-raw"


class Wire:
    """A socket that speaks frames."""

    def __init__(self, url: str) -> None:
        host, port = url.removeprefix("pulsar://").split(":")
        self.socket = socket.create_connection((host, int(port)))
        self.decoder = FrameDecoder()
        self.say("connect", CommandConnect(client_version="bench", protocol_version=21))
        self.until(BaseCommand.CONNECTED)

    def say(self, name: str, body: Any) -> None:
        self.socket.sendall(encode(command(name, body)))

    def until(self, kind: int, count: int = 1) -> None:
        """Read until so many commands of a type came."""
        while count > 0:
            count -= self.heard(kind)

    def heard(self, kind: int) -> int:
        """Read once; how many commands of a type came."""
        return sum(frame.type == kind for frame in self.decoder.feed(self.socket.recv(1 << 20)))


def command(name: str, body: Any) -> BaseCommand:
    made = BaseCommand(type=getattr(BaseCommand, name.upper()))
    getattr(made, name).CopyFrom(body)
    return made


# -- publishing


def publish_raw(url: str, seconds: float, least: int = 0) -> float:
    """Batches a second of prepared SEND frames, as many in flight as a client would have."""
    wire = Wire(url)
    wire.say("producer", CommandProducer(topic=RAW, producer_id=1, request_id=1, producer_name="p"))
    wire.until(BaseCommand.PRODUCER_SUCCESS)
    send = command("send", CommandSend(producer_id=1, sequence_id=0, num_messages=MESSAGES))
    frame = b"".join(encode_with_entry(send, ENTRY))
    permits = threading.Semaphore(WINDOW)
    sent = 0
    end = time.perf_counter() + seconds

    def write() -> None:
        nonlocal sent
        while time.perf_counter() < end or sent < least:
            permits.acquire()
            wire.socket.sendall(frame)
            sent += 1

    start = time.perf_counter()
    writing = threading.Thread(target=write)
    writing.start()
    got = 0
    while writing.is_alive() or got < sent:
        receipts = wire.heard(BaseCommand.SEND_RECEIPT)
        got += receipts
        for _ in range(receipts):
            permits.release()
    writing.join()
    return got / (time.perf_counter() - start)


def publish_official(url: str, seconds: float) -> float:
    """Batches a second of Pulsar's client, which makes them of single messages."""
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(
        TOPIC,
        batching_enabled=True,
        batching_max_messages=MESSAGES,
        batching_max_allowed_size_in_bytes=1 << 20,
        batching_max_publish_delay_ms=1000,
        max_pending_messages=WINDOW * MESSAGES,
        block_if_queue_full=True,
    )
    sent = 0
    start = time.perf_counter()
    while time.perf_counter() < start + seconds:
        for _ in range(MESSAGES):
            producer.send_async(PAYLOAD, None)
        sent += 1
    producer.flush()
    rate = sent / (time.perf_counter() - start)
    client.close()
    return rate


# -- consuming


def consume_raw(url: str, topic: str, count: int) -> float:
    """Messages a second that arrive at a socket which does not open them."""
    wire = Wire(url)
    subscribe = CommandSubscribe(
        topic=topic,
        subscription="raw",
        subType=CommandSubscribe.Exclusive,
        consumer_id=1,
        request_id=1,
        initialPosition=CommandSubscribe.Earliest,
        durable=False,
    )
    subscribe.start_message_id.ledgerId = subscribe.start_message_id.entryId = 2**64 - 1
    wire.say("subscribe", subscribe)
    wire.until(BaseCommand.SUCCESS)
    start = time.perf_counter()
    wire.say("flow", CommandFlow(consumer_id=1, messagePermits=2**31 - 1))
    wire.until(BaseCommand.MESSAGE, count)
    return count * MESSAGES / (time.perf_counter() - start)


def consume_official(url: str, topic: str, count: int) -> float:
    """Messages a second of Pulsar's client, a reader's loop in Python."""
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(
        topic, "official", initial_position=pulsar.InitialPosition.Earliest, receiver_queue_size=10_000
    )
    receive = consumer._consumer.receive
    receive()
    start = time.perf_counter()
    for _ in range(count * MESSAGES - 1):
        receive()
    rate = count * MESSAGES / (time.perf_counter() - start)
    client.close()
    return rate


class Prepared(asyncio.Protocol):
    """A server that answers what a consumer needs, and writes prepared MESSAGE frames."""

    count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.decoder = FrameDecoder()
        self.consumer = 0
        self.sent = 0
        self.permits = 0
        self.paused = False

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self.write()

    def data_received(self, data: bytes) -> None:
        for frame in self.decoder.feed(data):
            body = getattr(frame.command, FIELD[frame.type])
            answer = self.answer(frame.type, body)
            if answer is not None:
                self.transport.write(encode(answer))

    def answer(self, kind: int, body: Any) -> BaseCommand | None:
        match kind:
            case BaseCommand.CONNECT:
                return command("connected", CommandConnected(server_version="prepared", protocol_version=21))
            case BaseCommand.PARTITIONED_METADATA:
                found = CommandPartitionedTopicMetadataResponse
                return command(
                    "partitioned_metadata_response",
                    found(request_id=body.request_id, partitions=0, response=found.Success),
                )
            case BaseCommand.LOOKUP:
                here = CommandLookupTopicResponse
                return command(
                    "lookup_response",
                    here(
                        request_id=body.request_id,
                        response=here.Connect,
                        brokerServiceUrl="pulsar://127.0.0.1:1",
                        authoritative=True,
                        proxy_through_service_url=True,
                    ),
                )
            case BaseCommand.FLOW:
                self.consumer = body.consumer_id
                self.permits += body.messagePermits
                self.write()
            case BaseCommand.SUBSCRIBE | BaseCommand.CLOSE_CONSUMER | BaseCommand.UNSUBSCRIBE:
                return command("success", CommandSuccess(request_id=body.request_id))
        return None

    def write(self) -> None:
        while not self.paused and self.permits > 0 and self.sent < self.count:
            self.transport.writelines(
                (message_head(self.consumer, MessageId(0, self.sent), len(ENTRY)), ENTRY)
            )
            self.sent += 1
            self.permits -= MESSAGES


async def serve_prepared(count: int) -> None:
    """In a process of its own: `python -m benchmarks.binary --prepared N`."""
    Prepared.count = count
    server = await asyncio.get_running_loop().create_server(Prepared, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def prepared(count: int) -> Iterator[str]:
    arguments = [sys.executable, "-m", "benchmarks.binary", "--prepared", str(count)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield f"pulsar://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--folder", type=Path, help="where to write; the default is the temporary folder")
    parser.add_argument("--prepared", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.prepared:
        uvloop.run(serve_prepared(args.prepared))
        return
    print(f"entries of {len(ENTRY):,} bytes, {MESSAGES:,} messages each; {WINDOW} in flight")
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        base = floor(Path(name), Case(WINDOW // 4, MESSAGES, len(ENTRY)), args.seconds)
    print(f"store floor        {base:8,.0f} batches/s")
    with penstock_urls() as (_, url):
        for label, rate in (
            ("publish raw", publish_raw(url, args.seconds)),
            ("publish official", publish_official(url, args.seconds)),
        ):
            print(f"{label:18} {rate:8,.0f} batches/s {rate * MESSAGES:12,.0f} messages/s  {rate / base:.2f}")
        count = 1000
        publish_raw(url, 0, least=count)
        with prepared(count) as stub:
            for label, measure, entries in (
                ("consume raw", consume_raw, count),
                ("consume official", consume_official, count // 2),
            ):
                high = measure(stub, RAW, entries)
                rate = measure(url, RAW, entries)
                print(f"{label:18} {rate:12,.0f} messages/s, prepared {high:12,.0f}  {rate / high:.2f}")


if __name__ == "__main__":
    main()
