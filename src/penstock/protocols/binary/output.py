"""Where a session's commands go."""

from collections.abc import Iterable
from typing import Final, Protocol

from penstock.wire.frames import encode
from penstock.wire.pulsar_pb2 import BaseCommand


class ProtocolViolation(Exception):
    """What the client did has no answer: the connection is closed, as Pulsar does."""


class Output(Protocol):
    """The way to one client. Nothing is written once it is closed."""

    paused: bool  # the client does not read: a writer that can wait waits for `writable`
    closed: bool

    def write(self, *pieces: bytes) -> None:
        """Send whole frames, in order."""
        ...

    async def writable(self) -> None:
        """Wait until the client reads, or is gone."""
        ...

    def count(self) -> None:
        """Count what the connection holds now; beyond its principal's share nothing more is read or delivered."""
        ...

    def admitted(self) -> None:
        """The client is admitted: what it sends is read on, in frames as large as messages."""
        ...

    def hold(self, why: str) -> None:
        """Read nothing more from the client until `release` of the same reason."""
        ...

    def release(self, why: str) -> None:
        """End a `hold`; harmless without one."""
        ...

    def cut(self, reason: str) -> None:
        """Close the connection: what the client does cannot be answered."""
        ...


class Closed:
    """The output of a session that has ended: everything said to it is dropped."""

    paused = False
    closed = True

    def write(self, *pieces: bytes) -> None:
        """The connection is closed: nothing is sent."""

    async def writable(self) -> None:
        """At once."""

    def count(self) -> None:
        """There is nothing."""

    def admitted(self) -> None:
        """Too late."""

    def hold(self, why: str) -> None:
        """Nothing is read."""

    def release(self, why: str) -> None:
        """Nothing is read."""

    def cut(self, reason: str) -> None:
        """It is."""


CLOSED: Final = Closed()


def send(output: Output, command: BaseCommand) -> None:
    """Send a command that carries no entry."""
    output.write(encode(command))


def joined(frames: Iterable[bytes]) -> bytes:
    """Several frames as one piece: one write costs more than the copy of small ones."""
    return b"".join(frames)
