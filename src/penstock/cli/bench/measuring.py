"""Runs, from the first connection to the report."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Final

import click

from penstock.cli.progress import Progress, watched
from penstock.client.errors import ConnectError, OperationNotSupported, PulsarException
from penstock.client.errors import LookupError as LookupFailed

from .client import connected
from .pace import Bounds, Pace
from .peers import beside
from .plan import Plan
from .report import Setting, report
from .runs import Deliveries, Payloads, reply
from .runs import publish as publish_all
from .runs import request as request_all

BACKLOG: Final = 100_000  # messages
FILLING: Final = 100  # messages of a batch, where messages are published that are to be drained
SIGNALLED: Final = 128  # shells add a signal's number to say that it ended a command

_DONE: Final = {"publish": "published", "consume": "received", "request": "answered"}

Run = Callable[[Payloads, Pace], Awaitable[None]]


def publish(plan: Plan) -> int:
    """From due to stored."""

    async def run(payloads: Payloads, pace: Pace) -> None:
        async with connected(plan.access, plan.wire) as peers, peers.producers(plan.load) as senders:
            pace.begin()
            await publish_all(plan.load, senders, payloads, pace, pace.done)
            pace.finish()

    return _measure("publish", plan, 0, run)


def consume(plan: Plan, receivers: int) -> int:
    """From due to received with a rate; else how fast a backlog is received."""

    async def live(payloads: Payloads, pace: Pace) -> None:
        async with (
            connected(plan.access, plan.wire) as peers,
            peers.consumers(plan.load.topic, receivers) as taking,
            peers.producers(plan.load) as senders,
        ):
            pace.begin()
            deliveries = Deliveries(payloads, pace, pace.done)
            async with beside([deliveries.take(one) for one in taking]):
                await publish_all(plan.load, senders, payloads, pace, lambda _: None)
                await deliveries.all_of(pace.taken - pace.errors)
                pace.finish()

    async def backlog(payloads: Payloads, pace: Pace) -> None:
        async with connected(plan.access, plan.wire) as peers:
            async with peers.consumers(plan.load.topic, 1, keep=True):
                pass
            bounds = Bounds(plan.bounds.duration_s, plan.bounds.messages or BACKLOG)
            filling = Pace(bounds, Progress("published", shown=False), part_of=pace)
            load = plan.load._replace(batch=max(plan.load.batch, FILLING))
            async with peers.producers(load) as senders:
                await publish_all(load, senders, payloads, filling, lambda _: None)
            pace.errors, pace.error = filling.errors, filling.error
            pace.begin()
            async with peers.consumers(plan.load.topic, receivers) as taking:
                deliveries = Deliveries(payloads, pace, pace.arrived)
                async with beside([deliveries.take(one) for one in taking]):
                    left_s = plan.bounds.duration_s
                    until_s = None if left_s is None else time.perf_counter() + left_s
                    await deliveries.all_of(filling.taken - filling.errors, until_s)
                    pace.finish()

    if plan.bounds.rate:
        return _measure("consume", plan, receivers, live)
    # The draining has the bounds once more; messages were due long before it.
    return _measure("consume", plan._replace(bounds=plan.bounds._replace(warm_s=0.0)), receivers, backlog)


def request(plan: Plan, receivers: int) -> int:
    """From due to the reply."""

    async def run(payloads: Payloads, pace: Pace) -> None:
        async with (
            connected(plan.access, plan.wire) as peers,
            peers.consumers(plan.load.topic, receivers) as replying,
            peers.producers(plan.load) as senders,
        ):
            pace.begin()
            async with beside([reply(one) for one in replying]):
                await request_all(plan.load, senders, payloads, pace)
                pace.finish()

    return _measure("request", plan, receivers, run)


def _measure(name: str, plan: Plan, receivers: int, run: Run) -> int:
    bounds, load = plan.bounds, plan.load
    with Progress(_DONE[name], bounds.messages, shown=watched(silent_output=True)) as progress:
        pace = Pace(bounds, progress)
        try:
            asyncio.run(_interruptible(run(Payloads(load.size), pace), pace))
        except* PulsarException as failures:
            first = _first(failures)
            said = str(first) or type(first).__name__
            if plan.wire == "pulsar" and isinstance(first, ConnectError | LookupFailed):
                said += "; --protocol websocket goes without the binary endpoint"
            if isinstance(first, OperationNotSupported):
                said += "; with --protocol websocket requests go through the server"
            raise click.ClickException(said) from None
    report(Setting(name, plan.wire, load.topic, load.size, load.producers, bounds.rate, receivers), pace)
    if pace.stopped:
        return SIGNALLED + pace.signal
    if pace.errors and not pace.count:
        raise click.ClickException(f"no message was {_DONE[name]}: {pace.error}")
    return 0


async def _interruptible(run: Awaitable[None], pace: Pace) -> None:
    """The first signal ends a run early, with its result; the second one does what signals do."""
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        loop.remove_signal_handler(number)
        pace.stop(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    await run


def _first(failures: BaseExceptionGroup[PulsarException]) -> BaseException:
    first: BaseException = failures
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
