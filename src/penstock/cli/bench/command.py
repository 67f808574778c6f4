"""`penstock bench …`."""

from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.cli.connection import TopicType, connected
from penstock.cli.groups import Group
from penstock.client.http import HttpClient
from penstock.model.names import TopicName

if TYPE_CHECKING:
    from .plan import Plan

_topic: Final = click.argument("topic", type=TopicType(), required=False)
_consumers: Final = click.option("--consumers", type=click.IntRange(1, 1000), default=1, show_default=True)


@click.group("bench", cls=Group)
def bench_command() -> None:
    """Measure how fast a server takes, delivers and answers messages.

    Messages go by Pulsar's binary protocol or over WebSocket, from one process. Without TOPIC a run makes one, and deletes it at the end.
    """


def _options(pending: int, rate: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What every run takes; `pending` is a default, and `rate` says what happens without one."""
    each = (
        click.option(
            "--protocol",
            type=click.Choice(["pulsar", "websocket"]),
            default="pulsar",
            show_default=True,
            help="By which messages go: Pulsar's binary one, or its WebSocket API.",
        ),
        click.option("--messages", type=click.IntRange(1), help="End after so many."),
        click.option("--duration", metavar="S", type=click.FloatRange(0.1), help="End after so long. [10]"),
        click.option("--rate", metavar="N", type=click.FloatRange(0.1), help=f"Messages a second. [{rate}]"),
        click.option("--size", metavar="BYTES", type=click.IntRange(16), default=100, show_default=True),
        click.option("--producers", type=click.IntRange(1, 1000), default=1, show_default=True),
        click.option(
            "--pending",
            metavar="N",
            type=click.IntRange(1, 100_000),
            default=pending,
            show_default=True,
            help="Of one producer, whose end is not known yet.",
        ),
        click.option("--keys", metavar="N", type=click.IntRange(0), default=0, help="Different keys. [none]"),
        click.option(
            "--batch",
            metavar="N",
            type=click.IntRange(1),
            default=1,
            help="Messages of a batch. [1: no batches]",
        ),
        click.option(
            "--batch-delay", metavar="MS", type=click.IntRange(1), default=1, help="To fill one. [1]"
        ),
        click.option(
            "--partitions", type=click.IntRange(0), default=0, help="Of the topic that is made. [none]"
        ),
        click.option(
            "--warm-up", metavar="S", type=click.FloatRange(0), help="Not counted. [1; 0 with --messages]"
        ),
    )

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(each):
            command = option(command)
        return _topic(command)

    return decorate


def _measured(run: Callable[..., int], *, drains: bool = False) -> Callable[..., int]:
    """Give a command a `Plan` of its options, on a topic that is there for the run.

    One that `drains` a backlog where there is no rate counts all of it.
    """

    @wraps(run)
    def command(client: HttpClient, topic: TopicName | None, **options: Any) -> int:
        from .plan import Plan, topic_of_run

        partitions = options.pop("partitions")
        if topic is not None and partitions:
            raise click.UsageError("--partitions is of a topic that the run makes: it goes without TOPIC")
        if drains and options["warm_up"] and options["rate"] is None:
            raise click.UsageError("--warm-up goes with --rate: of a backlog everything counts")
        with topic_of_run(client, topic, partitions) as name:
            return run(Plan.of(client.access, str(name), options), **options)

    return command


@bench_command.command()
@_options(pending=1000, rate="as fast as it goes")
@connected
@_measured
def publish(plan: "Plan") -> int:
    """Publish, and measure the time until each message is stored.

    With --rate the time counts from when a message was to be sent: what a slow server holds up is late.
    """
    from . import measuring

    return measuring.publish(plan)


@bench_command.command()
@_options(pending=1000, rate="a backlog is drained")
@_consumers
@connected
@partial(_measured, drains=True)
def consume(plan: "Plan", consumers: int) -> int:
    """Receive and acknowledge.

    Without --rate messages are published first, and then delivered as fast as it goes. With it they are delivered while
    they are published, and the time counts from when each was to be sent until it was received.
    """
    from . import measuring

    return measuring.consume(plan, consumers)


@bench_command.command()
@_options(pending=1, rate="the next after a reply")
@_consumers
@connected
@_measured
def request(plan: "Plan", consumers: int) -> int:
    """Send requests to consumers of this process, and measure the time until each reply."""
    from . import measuring

    return measuring.request(plan, consumers)
