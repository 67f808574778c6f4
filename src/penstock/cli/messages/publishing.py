"""Pieces of input to requests: while one is on its way the next is read, and none overtakes another."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import click
import msgspec

from penstock.cli import output
from penstock.cli.progress import Progress
from penstock.client.http import HttpClient, RemoteError
from penstock.client.paths import topic_path
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName

from .formats import BadPiece, Message, Reading
from .pieces import Pieces

BATCH: Final = 1000  # messages a request, as one entry takes; each is durable before the next is sent
BATCH_BYTES: Final = 1 << 20  # of input; a server takes somewhat more than one message of 5 MiB
AHEAD: Final = 2  # requests that are read, or on their way

_OF_MESSAGES: Final = (
    ErrorKind.BAD_MESSAGE,
    ErrorKind.TOO_LARGE,
)  # of a request: why none of its messages is stored

_UNSENT: Final = (
    "ConnectError",
    "ConnectTimeout",
)  # errors of httpx, which only penstock.client.http imports


class Batch(NamedTuple):
    """The messages of a request; `places` are those of their pieces."""

    source: Pieces
    places: list[int]
    messages: list[Message]

    @property
    def named(self) -> str:
        """Its pieces, for people."""
        first, last = (self.source.named(self.places[end]) for end in (0, -1))
        return first if first == last else f"{first} to {last}"


class Publishing:
    """Publishes to a topic what a `Reading` makes of pieces. Bad pieces are named on stderr and counted in `failed`.

    `request` are the fields of every request.
    """

    def __init__(
        self, client: HttpClient, topic: TopicName, reading: Reading, request: Message, progress: Progress
    ) -> None:
        self._client = client
        self._path = topic_path(topic)
        self._reading = reading
        self._request = request
        self._progress = progress
        self._show = _results()
        self._broken = False
        self.failed = 0

    @property
    def published(self) -> int:
        return self._progress.count

    def run(self, sources: Iterator[Pieces]) -> None:
        """Publish everything. Raises errors that would stop further messages, too; published messages stay."""
        waiting: deque[Future[None]] = deque()
        with ThreadPoolExecutor(1) as sender:
            try:
                for source in sources:
                    for batch in self._batches(source):
                        waiting.append(sender.submit(self._send, batch))
                        while len(waiting) >= AHEAD:
                            waiting.popleft().result()
                while waiting:
                    waiting.popleft().result()
            except Exception as error:
                while waiting:  # messages read before the input failed; none after a failed request
                    waiting.popleft().result()
                if isinstance(error, click.ClickException) and self.published:
                    raise click.ClickException(
                        f"{error.format_message()} (published: {self.published:,})"
                    ) from error
                raise
            except BaseException:
                sender.shutdown(cancel_futures=True)  # after requests in flight: their results are shown
                raise

    def _batches(self, source: Pieces) -> Iterator[Batch]:
        batch, size = Batch(source, [], []), 0
        for place, piece in enumerate(source.contents):
            try:
                message = self._reading.message(piece)
            except BadPiece as error:
                self._fail(source.named(place), str(error))
                continue
            if message is None:
                continue
            if batch.messages and (len(batch.messages) == BATCH or size + len(piece) > BATCH_BYTES):
                yield batch
                batch, size = Batch(source, [], []), 0
            batch.places.append(place)
            batch.messages.append(message)
            size += len(piece)
        if batch.messages:
            yield batch

    def _send(self, batch: Batch) -> None:
        """In the sender's thread. After a request that failed no other goes out: the rest is published later, in order."""
        if self._broken:
            return
        self._broken = True  # until it has gone well, whatever is raised
        self._publish(batch)
        self._broken = False

    def _publish(self, batch: Batch) -> None:
        """One request and what became of its messages."""
        body = msgspec.json.encode({**self._request, "messages": batch.messages})
        try:
            answer = self._client.call(
                "POST", self._path, content=body, headers={"Content-Type": "application/json"}
            )
        except RemoteError as error:
            if error.kind not in _OF_MESSAGES:
                raise self._stopped(batch, error) from error
            self._fail(batch.named, error.message, len(batch.messages))
            return
        except PenstockError as error:
            raise self._stopped(batch, error) from error
        published: list[dict[str, Any]] = []
        for place, result in zip(batch.places, answer["messageIds"], strict=True):
            if result["error_code"]:
                self._fail(batch.source.named(place), result["error"])
            else:
                published.append({"messageId": result["messageId"], "partition": result["partition"]})
        self._progress.add(len(published))
        try:
            self._show(published)
        except click.exceptions.Exit:  # the reader has seen enough; the rest is published all the same
            self._show = _nothing

    def _stopped(self, batch: Batch, error: PenstockError) -> PenstockError:
        """Says how far it came, so that the rest can be published later."""
        said = []
        if self.published:
            said.append(f"published: {self.published:,}, up to before {batch.source.named(batch.places[0])}")
        if _unknown(error):
            said.append(f"whether {batch.named} is stored is not known")
        return PenstockError(error.kind, f"{error.message} ({'; '.join(said)})") if said else error

    def _fail(self, where: str, why: str, count: int = 1) -> None:
        self.failed += count
        click.echo(f"penstock: {where}: {why}", err=True)


def _unknown(error: PenstockError) -> bool:
    """Whether a request may have been carried out although it failed: it went out, and its answer did not come."""
    if isinstance(error, RemoteError):
        return error.status in (502, 504)
    return type(error.__cause__).__name__ not in _UNSENT


def _results() -> Callable[[Sequence[Message]], None]:
    """How this command prints what became of messages; asked in its own thread, which knows its options."""
    if output.for_people():
        return _nothing
    return output.lines()


def _nothing(_: Sequence[Message]) -> None: ...
