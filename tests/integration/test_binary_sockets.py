"""The binary endpoint on real sockets: bad input, clients that do not read or say nothing, the start and the end."""

import contextlib
import logging
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.binary import Pulsar, pulsar_server, take
from tests.support.ports import kept_port
from tests.support.waiting import until
from tests.unit.protocols.binary.handlers import TYPES, entry

from penstock.protocols.limits import Limits
from penstock.server.config import Config, DataSettings, HttpSettings, PulsarSettings
from penstock.testing.server import launch
from penstock.wire.frames import FIELD, Frame, FrameDecoder, encode, encode_with_entry
from penstock.wire.pulsar_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandFlow,
    CommandPing,
    CommandProducer,
    CommandSend,
    CommandSubscribe,
)

HASTY = Limits(binary_stall_ms=700, binary_keep_alive_ms=700)


@pytest.fixture(scope="module")
def server() -> Iterator[Pulsar]:
    with pulsar_server() as made:
        yield made


@pytest.fixture(scope="module")
def hasty() -> Iterator[Pulsar]:
    with pulsar_server(limits=HASTY) as made:
        yield made


class Wire:
    """A socket that speaks frames."""

    def __init__(self, server: Pulsar, *, small: bool = False) -> None:
        host, port = server.server.pulsar.removeprefix("pulsar://").split(":")
        self.socket = socket.socket()
        if small:  # a window that fills at once
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(60)
        self.socket.connect((host, int(port)))
        self._decoder = FrameDecoder()
        self._frames: list[Frame] = []

    def say(self, body: Any, data: bytes = b"") -> None:
        name = TYPES[type(body).__name__]
        command = BaseCommand(type=getattr(BaseCommand, name.upper()))
        getattr(command, name).CopyFrom(body)
        self.socket.sendall(b"".join(encode_with_entry(command, data)) if data else encode(command))

    def hear(self) -> Any:
        """The next command; None once the connection is closed."""
        while not self._frames:
            try:
                data = self.socket.recv(65536)
            except ConnectionError:
                return None
            if not data:
                return None
            self._frames += self._decoder.feed(data)
        frame = self._frames.pop(0)
        return getattr(frame.command, FIELD[frame.type])

    def connect(self) -> None:
        self.say(CommandConnect(client_version="raw", protocol_version=21))
        assert type(self.hear()).__name__ == "CommandConnected"


@contextlib.contextmanager
def wire(server: Pulsar, **options: Any) -> Iterator[Wire]:
    made = Wire(server, **options)
    try:
        yield made
    finally:
        made.socket.close()


GOOD = [
    CommandProducer(topic="fuzz", producer_id=1, request_id=1, producer_name="p"),
    CommandSubscribe(
        topic="fuzz", subscription="s", subType=CommandSubscribe.Shared, consumer_id=1, request_id=2
    ),
    CommandFlow(consumer_id=1, messagePermits=10),
]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=64),
            st.builds(
                lambda body: struct.pack(">II", len(body) + 4, len(body)) + body, st.binary(max_size=64)
            ),
            st.sampled_from([b"\x7f\xff\xff\xff", b"\0\0\0\x05\0\0\0\x05", b"GET / HTTP/1.1\r\n\r\n"]),
        ),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
)
def test_junk_disturbs_nobody(server: Pulsar, junk: list[bytes], connected: bool) -> None:
    with wire(server) as good, wire(server) as bad:
        good.connect()
        if connected:
            bad.connect()
            for body in GOOD:
                bad.say(body)
        with contextlib.suppress(ConnectionError):
            for data in junk:
                bad.socket.sendall(data)
        bad.socket.close()
        good.say(CommandPing())
        assert type(good.hear()).__name__ == "CommandPong"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 200), st.integers(0, 255))
def test_an_entry_with_a_wrong_byte_is_refused_or_another(server: Pulsar, at: int, value: int) -> None:
    data = bytearray(entry(b"payload", b"another"))
    data[at % len(data)] = value
    with wire(server) as raw:
        raw.connect()
        raw.say(CommandProducer(topic="bytes", producer_id=1, request_id=1))
        made = raw.hear()
        good = entry(b"x", producer=made.producer_name)
        raw.say(CommandSend(producer_id=1, sequence_id=1), bytes(data))
        assert raw.hear().sequence_id == 1
        raw.say(CommandSend(producer_id=1, sequence_id=2), good)
        assert raw.hear().message_id.ledgerId >= 0


def test_a_frame_too_large_closes_the_connection(server: Pulsar) -> None:
    with wire(server) as raw:
        raw.connect()
        raw.socket.sendall(struct.pack(">I", 5 * 1024 * 1024 + 10 * 1024 + 1))
        assert raw.hear() is None


def test_who_does_not_read_is_cut_with_a_reason(hasty: Pulsar, caplog: pytest.LogCaptureFixture) -> None:
    topic = hasty.topic()
    hasty.publish_batch(topic, *(bytes(100_000) for _ in range(400)))
    with caplog.at_level(logging.WARNING), wire(hasty, small=True) as raw:
        raw.connect()
        raw.say(
            CommandSubscribe(
                topic=topic,
                subscription="slow",
                subType=CommandSubscribe.Shared,
                consumer_id=1,
                request_id=2,
                initialPosition=CommandSubscribe.Earliest,
            )
        )
        raw.say(CommandFlow(consumer_id=1, messagePermits=100_000))
        until(lambda: any("not read" in str(getattr(r, "reason", "")) for r in caplog.records))
    consumer = hasty.subscribe(topic, "slow")
    assert len(take(consumer, 400)) == 400


def test_who_says_nothing_is_asked_and_then_cut(hasty: Pulsar) -> None:
    with wire(hasty) as raw:
        raw.connect()
        assert type(raw.hear()).__name__ == "CommandPing"
        assert raw.hear() is None


def test_who_does_not_connect_is_cut(hasty: Pulsar) -> None:
    with wire(hasty) as raw:
        assert raw.hear() is None


def test_what_was_sent_is_answered_before_the_server_ends() -> None:
    with pulsar_server() as server:
        raw = Wire(server)
        raw.connect()
        raw.say(CommandProducer(topic="t", producer_id=1, request_id=1, producer_name="p"))
        assert raw.hear().producer_name == "p"
        for number in range(100):
            raw.say(CommandSend(producer_id=1, sequence_id=number), entry(b"x", sequence_id=number))
        assert raw.hear().sequence_id == 0
        found: list[int] = []

        def listen() -> None:
            while (answer := raw.hear()) is not None:
                found.append(answer.sequence_id)

        listening = threading.Thread(target=listen)
        listening.start()
    listening.join(30)
    raw.socket.close()
    assert found == list(range(1, 100))


# -- the server round it


def test_the_ready_line_names_it_and_off_leaves_it_out(tmp_path: Any) -> None:
    with launch(tmp_path / "a") as server:
        assert server.pulsar.startswith("pulsar://127.0.0.1:")
    with launch(tmp_path / "b", "--pulsar", "off") as server:
        assert server.pulsar == ""


def test_a_port_that_is_taken(tmp_path: Any) -> None:
    with launch(tmp_path / "a") as server:
        taken = server.pulsar.removeprefix("pulsar://")
        with (
            pytest.raises(RuntimeError, match="the port is taken"),
            launch(tmp_path / "b", "--pulsar", taken),
        ):
            pass


def test_the_default_port() -> None:
    assert Config(http=HttpSettings(), data=DataSettings()).pulsar == PulsarSettings(listen="127.0.0.1:6650")


def test_the_http_lookup_leads_to_it(server: Pulsar) -> None:
    answer = server.http.get("/lookup/v2/topic/persistent/public/default/t").json()
    assert answer["brokerUrl"] == server.server.pulsar
    port = server.server.pulsar.rpartition(":")[2]
    named = server.http.get(
        "/lookup/v2/topic/persistent/public/default/t", headers={"Host": "localhost:8080"}
    ).json()
    assert named["brokerUrl"] == f"pulsar://localhost:{port}"


@pytest.mark.crash
def test_a_killed_server_loses_nothing_that_was_answered_and_repeats_nothing(tmp_path: Any) -> None:
    """Pulsar's client sends again what was not answered; deduplication drops what was stored."""
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(kept_port())
        options = ("--set", "broker.deduplication=true", "--pulsar", f"127.0.0.1:{port}")
        first = stack.enter_context(launch(tmp_path, *options))
        client = pulsar.Client(first.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        stack.callback(client.close)
        producer = client.create_producer("t", producer_name="p", block_if_queue_full=True)
        results: list[pulsar.Result] = []
        for number in range(4000):
            producer.send_async(b"%d" % number, lambda result, _: results.append(result))
            if number == 2000:
                first.kill()
                stack.enter_context(launch(tmp_path, *options))
        producer.flush()
        assert results == [pulsar.Result.Ok] * 4000
        consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
        assert [int(payload) for payload in take(consumer, 4000)] == list(range(4000))
