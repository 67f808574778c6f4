"""`penstock produce`."""

import sys
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

from penstock.cli import output
from penstock.cli.connection import connected, topic_argument
from penstock.cli.options import files as offer_files
from penstock.cli.progress import Progress, watched
from penstock.cli.properties import pairs_option
from penstock.cli.schema_files import schema_of
from penstock.client.http import HttpClient, RemoteError
from penstock.client.paths import schemas_path, topic_path
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName

from .formats import ENCODINGS, FORMATS, BadPiece, Format, Message, Reading, ValueEncoding
from .pieces import Pieces, pieces

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


_TEXTS: Final = ("STRING", "BYTES", "NONE")  # types of schemas whose values are texts


@click.command("produce")
@topic_argument
@click.argument("values", nargs=-1)
@click.option(
    "--format",
    type=click.Choice(FORMATS),
    default="lines",
    show_default=True,
    help="What stdin, files and values hold: values, keys and values, JSON as `read` prints it; `whole`: a file is one message.",
)
@click.option("--key-separator", metavar="TEXT", default="\t", help="Of key-value. [a tab]")
@click.option(
    "--encoding",
    type=click.Choice(ENCODINGS),
    default="text",
    show_default=True,
    help="How values are given: as text, in base64, or as the payload's bytes.",
)
@click.option("--key", help="The key of every message that has none of its own.")
@pairs_option("--property", "properties", help="May be repeated.")
@click.option("--schema-type", help="string, json, avro, int32, bytes (base64), …; by default the topic's.")
@click.option(
    "--schema-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="An .avsc, .json or .proto file; values are then JSON.",
)
@click.option(
    "--file",
    "files",
    metavar="FILE",
    multiple=True,
    shell_complete=offer_files,
    help="Input; - is stdin. May be repeated.",
)
@click.option("--deliver-after", metavar="MS", type=click.IntRange(0), help="Deliver so much later.")
@connected
def produce_command(
    client: HttpClient,
    topic: TopicName,
    values: tuple[str, ...],
    format: Format,
    key_separator: str,
    encoding: ValueEncoding,
    key: str | None,
    properties: dict[str, str],
    schema_type: str | None,
    schema_file: Path | None,
    files: tuple[str, ...],
    deliver_after: int | None,
) -> int:
    """Publish each VALUE to TOPIC; without any, or for `-`, each line of stdin.

    Invalid input is reported on stderr, and the rest is published; the exit code is then 1.
    """
    if not topic.persistent:
        raise click.ClickException("messages for non-persistent topics go over WebSocket")
    if format == "json" and encoding == "binary":
        raise click.UsageError("--encoding binary is not for --format json: JSON holds bytes in base64")
    if not key_separator:
        raise click.UsageError("--key-separator is empty")
    target = _target(client, topic, schema_type, schema_file)
    shared: Message = {"key": key, "deliverAfterMs": deliver_after, "properties": properties}
    request = target.request
    if encoding != "text":
        request = {**(request or {"schema_type": "bytes"}), "encoding": "base64"}
    reading = Reading(
        format,
        encoding,
        structured=target.structured,
        keys_structured=target.pairs,
        separator=key_separator,
        shared={name: value for name, value in shared.items() if value},
    )
    with Progress("published", shown=_followed(values, files)) as progress:
        publishing = Publishing(client, topic, reading, request, progress)
        try:
            publishing.run(pieces(values, files, whole=format == "whole", bare=encoding == "binary"))
        except KeyboardInterrupt:
            _tell(publishing.published, topic)
            raise
    _tell(publishing.published, topic)
    return 1 if publishing.failed else 0


def _tell(count: int, topic: TopicName) -> None:
    if output.for_people():
        output.say(f"published {count:,} message{'' if count == 1 else 's'} to {topic}")


class Target(NamedTuple):
    """What the topic takes: the schema fields of a request, whether values are JSON, and whether keys are, too."""

    request: dict[str, Any]
    structured: bool = False
    pairs: bool = False


def _target(
    client: HttpClient, topic: TopicName, schema_type: str | None, schema_file: Path | None
) -> Target:
    if schema_file is not None:
        schema = schema_of(schema_file, schema_type)
        if schema["type"] == "PROTOBUF_NATIVE":  # its definition is a separate object: requests take base64
            schema["schema"] = b64encode(schema["schema"].encode()).decode()
        return Target({"schema_type": schema["type"], "value_schema": schema}, structured=True)
    if schema_type is not None:
        return Target({"schema_type": schema_type}, structured=schema_type.upper() not in _TEXTS)
    return _target_of_topic(client, topic)


def _target_of_topic(client: HttpClient, topic: TopicName) -> Target:
    """The format of the topic's newest schema; texts if there is none, or if it may not be read."""
    try:
        schema = client.call("GET", f"{schemas_path(topic)}/schema")
    except RemoteError as error:
        if error.status in (403, 404):
            return Target({})
        raise
    kind = str(schema["type"]).upper()
    if kind in _TEXTS:
        return Target({})
    return Target({"schema_version": schema["version"]}, structured=True, pairs=kind == "KEY_VALUE")


def _followed(values: tuple[str, ...], files: tuple[str, ...]) -> bool:
    """Whether a person watches and does not type the messages."""
    typed = sys.stdin.isatty() and ("-" in (*values, *files) or not (values or files))
    return not typed and watched(silent_output=True)
