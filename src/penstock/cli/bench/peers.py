"""Producers and consumers: what a run asks of them, whatever the protocol."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Literal, NamedTuple, Protocol

import click

from penstock.client.errors import PulsarException

SEND_TIMEOUT_S: Final = 30.0  # of a message without a receipt: the longest that the end of a run takes
CONNECT_S: Final = 30.0
SUBSCRIPTION: Final = "penstock-bench"
UNSUBSCRIBE_S: Final = 10.0  # for the server to learn that the other consumers of a run have closed
UNSUBSCRIBE_RETRY_S: Final = 0.1
OTHERS: Final = (
    "attempting to unsubscribe"  # in the refusal while a subscription has other consumers; also Pulsar's
)

Wire = Literal["pulsar", "websocket"]
Receipt = Callable[[PulsarException | None, Any], None]


class Load(NamedTuple):
    """What is sent, and by how many."""

    topic: str
    size: int
    producers: int
    pending: int  # messages, or requests, of one producer whose end is not known
    keys: int = 0
    batch: int = 1
    batch_delay_ms: int = 1


class Sender(Protocol):
    """A producer."""

    def send_async(self, content: Any, callback: Receipt, **options: Any) -> None:
        """Publish a message; `callback` is called with what was wrong, and with its id."""

    async def request(self, content: Any, timeout_ms: int) -> Any:
        """Publish a request and wait for the reply."""


class Receiver(Protocol):
    """A consumer. Messages have `data()`, `is_request` and `request_expired`."""

    async def receive(self) -> Any:
        """Wait for a message."""

    async def acknowledge(self, message: Any, reply: bytes | None = None) -> None:
        """Acknowledge a message, or reply to a request."""


class Peers(Protocol):
    """What makes them."""

    def producers(self, load: Load) -> AbstractAsyncContextManager[list[Sender]]:
        """The producers of a run."""

    def consumers(
        self, topic: str, count: int, *, keep: bool = False
    ) -> AbstractAsyncContextManager[list[Receiver]]:
        """Consumers of one subscription, which begins now where it is new, and is deleted at the end unless `keep`."""


async def unsubscribe(ask: Callable[[], Awaitable[None]]) -> None:
    """Delete the subscription by the last consumer of a run.

    Retries while the server still counts the other consumers, up to UNSUBSCRIBE_S: processes of one service learn a
    little later that a consumer has closed. A refusal is printed to stderr; the run's figures are valid all the same.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + UNSUBSCRIBE_S
    while True:
        try:
            await ask()
            return
        except PulsarException as error:
            if OTHERS not in str(error) or loop.time() >= until_s:
                click.echo(f"the subscription {SUBSCRIPTION} was not deleted: {error}", err=True)
                return
        await asyncio.sleep(UNSUBSCRIBE_RETRY_S)


@asynccontextmanager
async def beside(works: Sequence[Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """What goes on until the context ends; what fails of it ends the context."""
    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(work) for work in works]
        try:
            yield
        finally:
            for task in made:
                task.cancel()
