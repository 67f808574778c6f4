"""`penstock bench`: measures how fast a server takes, delivers and answers messages, and how long each takes."""

import asyncio
import secrets
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from penstock.client.errors import PulsarException
from penstock.client.http import HttpClient
from penstock.client.paths import admin_path, subscription_admin_path
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName

from . import output
from .bench_runs import STAMP, SUBSCRIPTION, Pace, Plan, run
from .connection import TopicType, connected
from .groups import Group
from .options import Decorated, with_options
from .progress import Progress, watched

Decorator = Callable[[Decorated], Decorated]

SECONDS: Final = 10.0  # of a run without other bounds
BUSY: Final = 0.9  # of a processor
SIGNALLED: Final = 128  # shells add a signal's number to say that it ended a command


@click.group("bench", cls=Group)
def bench_command() -> None:
    """Measure how fast a server takes, delivers and answers messages.

    Messages go over Pulsar's binary protocol, from one process. Without TOPIC a run creates one and deletes it at the end.
    """


_number = click.IntRange(1)
_OPTIONS: Final = (
    click.argument("topic", type=TopicType(), required=False),
    click.option("--messages", type=_number, help="End after so many."),
    click.option("--duration", type=click.FloatRange(0.1), help="End after so many seconds. [10]"),
    click.option("--rate", type=click.FloatRange(0.1), help="Messages a second. [as fast as possible]"),
    click.option("--size", type=click.IntRange(STAMP.size), default=100, show_default=True, help="Bytes."),
    click.option("--producers", type=click.IntRange(1, 1000), default=1, show_default=True),
    click.option("--partitions", type=click.IntRange(0), default=0, help="Of the created topic. [none]"),
)
_batch = click.option("--batch", type=_number, default=1, show_default=True, help="Messages of a batch.")
_consumers = click.option("--consumers", type=click.IntRange(1, 1000), default=1, show_default=True)
_COMMANDS: Final = {
    "publish": ("Publish, and measure the time until each message is stored.", 1000, (_batch,)),
    "consume": ("Receive messages: those published with --rate, else a backlog.", 1000, (_batch, _consumers)),
    "request": ("Send requests, and measure the time until each reply.", 1, (_consumers,)),
}


def _add(name: str, help: str, pending: int, options: tuple[Decorator, ...]) -> None:
    def command(client: HttpClient, topic: TopicName | None, **given: Any) -> int:
        if topic is not None and given["partitions"]:
            raise click.UsageError("--partitions is for the topic that a run creates: omit TOPIC")
        if given["messages"] is None and given["duration"] is None:
            given["duration"] = SECONDS
        with _topic_of_run(client, topic, given["partitions"], name != "publish") as used:
            return measure(name, Plan(client.access, str(used), **given))

    unanswered = "Unanswered messages of a producer."
    most = click.IntRange(1, 100_000)
    limit = click.option("--pending", type=most, default=pending, show_default=True, help=unanswered)
    made = with_options(connected(command), (*_OPTIONS, limit, *options))
    bench_command.add_command(click.command(name, help=help)(made))


for _name, _declared in _COMMANDS.items():
    _add(_name, *_declared)


@contextmanager
def _topic_of_run(
    client: HttpClient, topic: TopicName | None, partitions: int, subscribed: bool
) -> Iterator[TopicName]:
    """The given topic, of which the run's subscription is deleted at the end, or one that is deleted itself."""
    used = topic or TopicName.parse(f"penstock-bench-{secrets.token_hex(4)}")
    if topic is None:
        client.create_topic(used, partitions)
    else:
        client.partitions(topic)  # raises if it does not exist
    try:
        yield used
    finally:
        path = f"{admin_path(used)}/partitions" if partitions else admin_path(used)
        if topic is not None:
            path = subscription_admin_path(topic, SUBSCRIPTION) if subscribed else ""
        try:
            if path:
                client.call("DELETE", path, params={"force": "true"})
        except PenstockError as error:
            if error.kind is not ErrorKind.SUBSCRIPTION_NOT_FOUND:
                output.say(f"{path} was not deleted: {error.message}")


def measure(name: str, plan: Plan) -> int:
    """Run, and print the result; returns the exit code. Raises ClickException if no message succeeded."""
    done = {"publish": "published", "consume": "received", "request": "answered"}[name]
    with Progress(done, plan.messages, shown=watched(silent_output=True)) as progress:
        pace = Pace(plan, progress)
        try:
            asyncio.run(_interruptible(name, plan, pace))
        except* PulsarException as failures:
            error: BaseException = failures
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            raise click.ClickException(str(error) or type(error).__name__) from None
    _print(result(name, plan, pace))
    if pace.stopped:
        return SIGNALLED + pace.stopped
    if pace.errors and not pace.count:
        raise click.ClickException(f"no message was {done}: {pace.error}")
    return 0


async def _interruptible(name: str, plan: Plan, pace: Pace) -> None:
    """The first signal ends a run early, with its result; the second one does what signals do."""
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        loop.remove_signal_handler(number)
        pace.stop(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    await run(name, plan, pace)


def result(name: str, plan: Plan, pace: Pace) -> dict[str, Any]:
    """The result of a run; times in ms."""
    per_second = pace.count / pace.seconds if pace.seconds > 0 else 0.0
    return {
        "benchmark": name,
        "topic": plan.topic,
        "producers": plan.producers,
        "consumers": plan.consumers,
        "size": plan.size,
        "rate": plan.rate,
        "messages": pace.count,
        "errors": pace.errors,
        "error": pace.error or None,
        "seconds": round(pace.seconds, 3),
        "messages_per_second": round(per_second, 1),
        "megabytes_per_second": round(per_second * plan.size / 1e6, 3),
        "latency_ms": pace.latencies.summary(),
        "generator_cpu": round(pace.cpu_share, 2),
    }


def _print(found: dict[str, Any]) -> None:
    if not output.for_people():
        output.line(found)
        return
    times = found.pop("latency_ms")
    output.record({name: value for name, value in found.items() if value})
    if times:
        output.rows(("latency ms", *times), [{"latency ms": "", **times}], "")
    if found["generator_cpu"] >= BUSY:
        output.say("this program used a whole processor: the server may take more than it can send")
