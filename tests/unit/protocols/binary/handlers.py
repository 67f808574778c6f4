"""Sessions without sockets: commands said, and what is heard in answer, as a transcript."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from google.protobuf.message import Message
from tests.unit.engines.core.brokers import Bench, bench

from penstock.model.message import OutMessage
from penstock.protocols.auth.authenticator import authenticator
from penstock.protocols.auth.settings import AuthSettings
from penstock.protocols.binary.commands import HANDLERS
from penstock.protocols.binary.session import Session
from penstock.protocols.context import ServerContext
from penstock.runtime.tasks import Tasks
from penstock.testing.clock import settle
from penstock.wire import entry as wire
from penstock.wire.frames import FIELD, Frame, FrameDecoder
from penstock.wire.pulsar_pb2 import BaseCommand, CommandConnect, FeatureFlags

TOPIC = "persistent://public/default/t"


class Heard:
    """An output that keeps what is written."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.paused = False
        self.closed = False
        self.holds: set[str] = set()
        self.reason = ""
        self._decoder = FrameDecoder()

    def write(self, *pieces: bytes) -> None:
        self.frames += self._decoder.feed(b"".join(pieces))

    async def writable(self) -> None:
        while self.paused:
            await settle(1)

    def count(self) -> None:
        pass

    def admitted(self) -> None:
        pass

    def hold(self, why: str) -> None:
        self.holds.add(why)

    def release(self, why: str) -> None:
        self.holds.discard(why)

    def cut(self, reason: str) -> None:
        self.closed = True
        self.reason = reason


class ClientSession:
    """One client's session with a broker in memory."""

    def __init__(self, made: Bench, context: ServerContext, tasks: Tasks) -> None:
        self.bench = made
        self.output = Heard()
        self.session = Session(context, self.output, tasks, HANDLERS)
        self._requests = 100

    def say(self, body: Any, entry: bytes = b"") -> None:
        """Say a command, and go on."""
        name = TYPES[type(body).__name__]
        command = BaseCommand(type=getattr(BaseCommand, name.upper()))
        getattr(command, name).CopyFrom(body)
        self.session.receive(Frame(command, entry))

    async def heard(self) -> list[Any]:
        """What came since the last call, once everything has settled."""
        await settle(100)
        frames, self.output.frames = self.output.frames, []
        commands = [getattr(frame.command, FIELD[frame.type]) for frame in frames]
        for command in commands:
            # Clients read what is there: an empty URL is no URL.
            assert not set(empty_fields(command)) - MAY_BE_EMPTY, command
        return commands

    async def ask(self, body: Any, entry: bytes = b"") -> Any:
        """Say a command and hear the one answer."""
        self.say(body, entry)
        (answer,) = await self.heard()
        return answer

    async def connect(self, **features: bool) -> Any:
        return await self.ask(
            CommandConnect(client_version="test", protocol_version=21, feature_flags=FeatureFlags(**features))
        )


# Required by the protocol, or read unasked by the Java client.
MAY_BE_EMPTY = {"schema_data", "schema_version", "reply_payload"}


def empty_fields(message: Message) -> Iterator[str]:
    """The texts and bytes of a command that are there and empty, also within its parts."""
    for field, value in message.ListFields():
        if isinstance(value, Message):
            yield from empty_fields(value)
        elif value in ("", b""):
            yield field.name


def _types() -> dict[str, str]:
    """The name of the field of BaseCommand by the name of its type."""
    fields = BaseCommand.DESCRIPTOR.fields
    return {f.message_type.name: f.name for f in fields if f.message_type is not None}


TYPES = _types()


def entry(*payloads: bytes, producer: str = "p", sequence_id: int = 0, **fields: Any) -> bytes:
    """An entry as a client sends it."""
    messages = [OutMessage(payload=payload, **fields) for payload in payloads]
    made = wire.encode(
        messages,
        producer=producer,
        sequence_id=sequence_id,
        publish_time=1_700_000_000_000,
        schema_version=None,
    )
    return made.data


@asynccontextmanager
async def sessions(
    *, count: int = 1, auth: AuthSettings | None = None, **options: Any
) -> AsyncIterator[list[ClientSession]]:
    """Sessions with one broker, not connected yet."""
    async with bench(**options) as made:
        context, tasks = ServerContext(made.broker, auth=auth and authenticator(auth, made.broker)), Tasks()
        context.pulsar_url = "pulsar://here:6650"
        clients = [ClientSession(made, context, tasks) for _ in range(count)]
        try:
            yield clients
        finally:
            for one in clients:
                await one.session.close()
            await tasks.close()
