"""The processes of one service, as endpoints see them: which process has an instance, and how a request reaches it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import msgspec

Header = tuple[bytes, bytes]

# The header of a request that another process passed on, with its proof; of an answer: the proof was refused.
FORWARDED: Final = b"penstock-forwarded"

# Over Pulsar's protocol: the method of authentication of another process, and what its proof in CONNECT is of.
PROCESS_METHOD: Final = "penstock-process"
CONNECT: Final = b"CONNECT"


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a service. `id` is random and is never used again; addresses are empty if there are none."""

    id: str
    url: str  # http://host:port or https://host:port
    pulsar_url: str = ""
    pulsar_tls_url: str = ""
    peer_url: str = ""  # pulsar:// or pulsar+ssl://, for other processes alone
    started_ms: int = 0
    version: str = ""


Learned = Callable[[str, bytes | None], None]


class ProcessDocuments(Protocol):
    """The documents of processes, by their ids, which an engine stores."""

    async def start(self, learned: Learned) -> None:
        """Call `learned` with every document, and with each that is written from now on; None: removed, by any writer.
        Raises a PenstockError if they cannot be kept."""

    async def write(self, id: str, document: bytes) -> None:
        """Write a document. Raises a PenstockError."""

    async def remove(self, id: str, last: bytes = b"") -> None:
        """Remove a document; those that read now learn the last one before. Raises a PenstockError."""

    async def catch_up(self) -> None:
        """Learn every document that was written until now. Raises UNAVAILABLE."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """What a process knows of a client by its connection alone, and passes on with its request.

    `process`: the process that sends the request asks for itself, and has checked what its own client may do.
    """

    address: str = ""
    port: int = 0
    scheme: str = "http"
    host: str = ""  # its Host header: the name by which it reached the service
    role: str | None = None  # proved by its TLS certificate
    prefix: str = ""  # how the path begins because of the port that it reached
    process: bool = False


class ForwardedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is passed on. `headers` are the client's, without those of its connection and its `Host`."""

    method: bytes
    target: bytes
    headers: Sequence[Header]
    body: bytes | AsyncIterator[bytes]
    caller: Caller
    client: str = ""  # whose share of the requests under way it is
    lasts: bool = False  # it takes as long as its client wants


class ForwardedAnswer(msgspec.Struct, frozen=True):
    """The answer of the other process: its HTTP status, its headers in lower case, and the next part of its body, which is empty
    at the end. `part` raises UNAVAILABLE if the connection is cut."""

    status: int
    headers: Sequence[Header]
    part: Callable[[], Awaitable[bytes]]


class ProcessGoneError(Exception):
    """The process has ended; what it alone had is lost."""


class Fleet(Protocol):
    """The processes of one service. A lone process has none."""

    @property
    def id(self) -> str:
        """The id of this process."""

    @property
    def counts(self) -> Mapping[str, tuple[int, int]]:
        """By each known process: how many requests were passed on to it, and how many of them it did not answer."""

    @property
    def problem(self) -> str | None:
        """Why processes before the same cluster are not one service with this one, and what to configure; None if nothing is known."""

    def new_id(self) -> str:
        """An unguessable id of something that this process has; `owner_of` finds the process."""

    def owner_of(self, id: str) -> str | None:
        """The process that made an id with `new_id`; None if no process of this service did."""

    def send(
        self, process: str, request: ForwardedRequest, head_s: float
    ) -> AbstractAsyncContextManager[ForwardedAnswer]:
        """Send a request to another process; its answer must begin within `head_s` seconds. Raises ProcessGoneError, and
        UNAVAILABLE if the process does not answer."""

    def accept(self, proof: bytes, method: bytes, target: bytes, headers: Sequence[Header]) -> Caller:
        """The client of a request that another process passed on to this one, if `proof` is valid; raises MISDIRECTED."""
