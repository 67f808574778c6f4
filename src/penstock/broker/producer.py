"""Producers: messages in, one result each (PIP-64, PIP-43), and requests that wait for a reply (PIP-371)."""

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from penstock.model.entry import NewEntry
from penstock.model.errors import PenstockError
from penstock.model.message import OutMessage, Payloads
from penstock.model.message_id import MessageId
from penstock.model.schema import SchemaInfo

from .log import Log
from .topic import Publisher, Topic

Result = MessageId | PenstockError
T = TypeVar("T", OutMessage, NewEntry)


class Reply(msgspec.Struct, frozen=True):
    """PIP-371's ReplyResult."""

    request_id: MessageId
    content: bytes
    is_error: bool
    schema_version: int | None = None  # of the request's topic


# The result of a wait for a reply; the error is REQUEST_TIMEOUT, or why the wait ended.
ReplyOrError = Reply | PenstockError


class Request(Protocol):
    """A wait for a reply. What it ends with is given to one caller, once."""

    def call_when_ended(self, on_end: Callable[["Request", ReplyOrError], None]) -> None:
        """Call `on_end` with the result of the wait; now if it has ended. Not after `withdraw`."""

    async def reply(self) -> Reply:
        """Await the reply; raises the error that the wait ended with."""

    def placed(self, message_id: MessageId) -> None:
        """The request is stored under this id."""

    def fail(self, error: PenstockError) -> None:
        """End the wait with an error."""

    def withdraw(self) -> None:
        """The requester is gone: the wait ends."""


class RequestFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests wait, and what became of the others since the server's start."""

    waiting: int
    opened: int
    answered: int
    late: int  # replies that came too late, or twice
    timed_out: int
    withdrawn: int


class Requests(Protocol):
    """Every wait for a reply."""

    def figures(self) -> RequestFigures:
        """What became of them."""

    def check(self, timeout_ms: int) -> None:
        """Raise BAD_PARAMETER for a timeout out of bounds."""

    def wait(self, names: tuple[str, str, int], timeout_ms: int) -> Request:
        """Wait for the reply to the message of that topic, producer and sequence id, which is marked as a request.

        `timeout_ms` is PIP-371's requestTTL. Raises BAD_PARAMETER.
        """


class Item(msgspec.Struct, Generic[T], gc=False):
    """A message to publish, or an entry that a client made, and what became of it.

    With a `producer` the client chose the sequence id: it is remembered under that name and identifies repeats.
    `chunk_of`: the entry is not the last chunk of the message with that sequence id.
    """

    content: T
    producer: str | None = None
    sequence_id: int = -1
    request: Request | None = None  # waits for a reply to it
    chunk_of: int = -1
    result: Result | None = None

    def settle(self, result: Result) -> None:
        """Set the result, and notify the request that waits for a reply."""
        self.result = result
        if self.request is not None:
            if isinstance(result, PenstockError):
                self.request.fail(result)
            else:
                self.request.placed(result)


class Placement(msgspec.Struct, frozen=True, gc=False):
    """The position of plain messages. `batched`: in one entry, where message i has the batch index i (none when alone);
    else message i is the entry `entry_id + i`."""

    topic: Log
    ledger: int
    entry_id: int
    offset: int
    count: int
    batched: bool


class Producer(Publisher, Protocol):
    """Publishes to the partitions of one topic under one name. The endpoint that made it may set `owner`, `proxy` and `ousted`."""

    ousted: Callable[[PenstockError], None] | None  # called when it is closed by others

    @property
    def topics(self) -> Sequence[Topic]: ...
    @property
    def closed(self) -> bool: ...
    @property
    def close_reason(self) -> PenstockError | None: ...
    async def publish(
        self,
        messages: Sequence[OutMessage],
        *,
        batch: bool = True,
        requests: Sequence[Request | None] = (),
    ) -> list[Result]:
        """Store messages and return one result each, in their order; a bad one fails alone.

        With `batch`, neighbours for one partition and schema version share an entry. `requests` are what `ask` gave
        for them.
        """

    async def publish_plain(
        self,
        payloads: Payloads,
        schema_version: int | None,
        partition: int | None = None,
        *,
        batch: bool = True,
    ) -> Placement | list[Result]:
        """Store plain messages, all of them in one partition, if `takes_plain` says so: with `batch`
        as one entry, if the engine has batches, else as an entry each.

        They are stored all or none, or each has a separate result: if a cluster's order has others between them, or took
        some of them only. Raises why none was stored.
        """

    def takes_plain(self, count: int, size_bytes: int, partition: int | None, *, batch: bool = True) -> bool:
        """Whether `publish_plain` fits, for so many payloads of at most `size_bytes` together."""

    async def publish_entries(self, items: Sequence[Item[NewEntry]]) -> list[Result]:
        """Store entries that a client made in the one topic; a result each, in order."""

    async def schema_version(self, schema: SchemaInfo) -> int | None:
        """The version of a schema on this topic, registered when it is new (PIP-43); None for bytes.

        Raises INCOMPATIBLE_SCHEMA, BAD_VALUE_SCHEMA.
        """

    def ask(self, messages: Sequence[OutMessage], timeouts: Sequence[int | None]) -> Sequence[Request | None]:
        """Make the messages that have a timeout (ms) requests, and begin to wait; None for the others. `publish` all of them
        next, with what this gives: it numbers those that have no sequence id, which are never taken for repeats. Raises
        BAD_PARAMETER, and nothing waits."""

    async def request(self, message: OutMessage, timeout_ms: int) -> Reply:
        """Publish a request and return its reply; raises REQUEST_TIMEOUT, UNAVAILABLE, and why it was not stored."""
