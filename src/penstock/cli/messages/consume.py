"""`penstock consume`."""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self

import click

from penstock.cli.connection import connected, topic_argument
from penstock.cli.output import say
from penstock.cli.progress import Progress, watched
from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.client.paths import subscription_path
from penstock.model.errors import PenstockError
from penstock.model.names import TopicName

from .ending import Ending
from .printing import decode, ids, printer
from .read import FOLLOW_MS, encoding_option

WAITING_MAX: Final = 4  # requests; more wait


class Acknowledging:
    """Acknowledges in its own thread, in order; a context manager.

    The server answers when an acknowledgement is durable, and so all are when the context ends, however it ends.
    A failure is raised by a later `add`, or at the end; if another error ends the context it is printed to stderr.
    """

    def __init__(self, access: Access, path: str) -> None:
        self._client = HttpClient(access)
        self._path = path
        self._thread = ThreadPoolExecutor(1)
        self._waiting: deque[Future[None]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown()
        self._client.close()
        try:
            self._settle(0)
        except PenstockError as failure:
            if error is None:
                raise
            if failure.message != str(error):
                say(f"penstock: not all that was printed is acknowledged: {failure.message}")

    def add(self, ids: Sequence[str]) -> None:
        """Acknowledge messages soon."""
        self._waiting.append(self._thread.submit(self._acknowledge, ids))
        self._settle(WAITING_MAX)

    def _settle(self, waiting_max: int) -> None:
        while len(self._waiting) > waiting_max:
            self._waiting.popleft().result()

    def _acknowledge(self, ids: Sequence[str]) -> None:
        self._client.call("POST", self._path, body={"type": "individual", "messageIds": ids})


BATCH: Final = 4000  # messages a request
WINDOW: Final = 10 * BATCH  # messages that are out: printed, but not acknowledged yet, or not at all
FIRST_MS: Final = 1000  # of a consumer that does not follow: stored messages come within this


@click.command("consume")
@topic_argument
@click.option("--subscription", "-s", required=True, help="Created when it is not there.")
@click.option(
    "--type",
    "kind",
    type=click.Choice(["Exclusive", "Shared", "Failover", "Key_Shared"], case_sensitive=False),
    default="Exclusive",
    show_default=True,
)
@click.option(
    "--from",
    "start",
    type=click.Choice(["earliest", "latest"]),
    default="latest",
    show_default=True,
    help="Where a new subscription begins.",
)
@click.option(
    "--ack/--no-ack",
    default=True,
    help=f"Acknowledge what was printed; without it at most {WINDOW:,} messages come. [ack]",
)
@click.option("--follow", is_flag=True, help="Wait for what is published later.")
@click.option(
    "--timeout",
    metavar="MS",
    type=click.IntRange(1, FOLLOW_MS),
    help="End when nothing came for so long. [1000]",
)
@click.option("--count", type=click.IntRange(1), help="So many messages at most.")
@click.option("--name", help="The consumer's name.")
@click.option("--create", is_flag=True, help="Create TOPIC when it does not exist; else that is an error.")
@encoding_option
@connected
def consume_command(
    client: HttpClient,
    topic: TopicName,
    subscription: str,
    kind: str,
    start: str,
    ack: bool,
    follow: bool,
    timeout: int | None,
    count: int | None,
    name: str | None,
    create: bool,
    encoding: str | None,
) -> None:
    """Consume TOPIC under a subscription; printed messages are acknowledged, also if Ctrl-C ends it."""
    if follow and timeout is not None:
        raise click.UsageError("--follow and --timeout exclude one another")
    if not ack and count is not None and count > WINDOW:
        raise click.UsageError(
            f"--no-ack is for {WINDOW:,} messages at most: more are not sent unacknowledged"
        )
    if not create:
        client.partitions(topic)  # raises for an unknown topic: subscribing would create it
    path = subscription_path(topic, subscription)
    asked = {"subscription_type": kind, "initial_position": start, "receiver_queue_size": WINDOW}
    with Ending() as ending:
        created = client.call("POST", path, body={**asked, **({} if name is None else {"name": name})})
        consumer = f"{path}/consumer/{created['id']}"
        wait = FOLLOW_MS if follow else timeout or FIRST_MS
        show, left = printer(), count if ack else min(count or WINDOW, WINDOW)
        try:
            with (
                Progress("consumed", count, shown=watched(silent_output=False)) as progress,
                Acknowledging(client.access, f"{path}/cursor") as acknowledging,
            ):
                while left is None or left > 0:
                    wanted = BATCH if left is None else min(BATCH, left)
                    params = {"max_messages": wanted, "timeout": wait, "encoding": encoding}
                    found = decode(client.fetch("GET", f"{consumer}/messages", params=params)[0]).messages
                    if not found and not follow:
                        break
                    with ending.held():
                        show(found)
                        if ack and found:
                            acknowledging.add(ids(found))
                    progress.add(len(found))
                    left = None if left is None else left - len(found)
            if left == 0 and count is None:
                say(f"penstock: {WINDOW:,} messages are printed, and no more come with --no-ack")
        finally:
            _leave(client, consumer)


def _leave(client: HttpClient, consumer: str) -> None:
    """Release unacknowledged messages to other consumers, at once rather than when the consumer expires."""
    try:
        client.call("DELETE", consumer)
    except PenstockError:
        pass  # it is gone already, or the server is
