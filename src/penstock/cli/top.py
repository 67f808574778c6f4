"""`penstock top`."""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.client.access import without_password
from penstock.client.http import HttpClient, RemoteError
from penstock.model.errors import PenstockError
from penstock.model.names import NamespaceName

from . import output
from .connection import NamespaceType, connected
from .messages.ending import Ending
from .traffic import Sample, TopicTraffic, sample, traffic

if TYPE_CHECKING:
    from rich.console import RenderableType

_COLUMNS: Final = (
    "topic",
    "in/s",
    "kB in/s",
    "out/s",
    "kB out/s",
    "backlog",
    "unacked",
    "producers",
    "consumers",
)
_SORTS: Final = ("in", "out", "backlog", "topic")


@click.command("top")
@click.argument("namespace", type=NamespaceType(), required=False)
@click.option("--sort", type=click.Choice(_SORTS), default="in", show_default=True, help="The most first.")
@click.option("--interval", metavar="S", type=click.FloatRange(0.2), default=2.0, show_default=True)
@click.option("--limit", metavar="N", type=click.IntRange(1), help="So many topics at most.")
@click.option("--once", is_flag=True, help="Once, with the rates of the last minute.")
@connected
def top_command(
    client: HttpClient,
    namespace: NamespaceName | None,
    sort: str,
    interval: float,
    limit: int | None,
    once: bool,
) -> None:
    """Watch the topics in use, of NAMESPACE or of all: rates in and out, backlogs, producers and consumers.

    Rates are those since the last look, at first those of the last minute. In a pipe each look is a line of JSON for
    each topic. Ctrl-C ends it.
    """
    now = sample(client, namespace)
    if once or not (output.for_people() and sys.stdout.isatty()):
        before: Sample | None = None
        while True:
            _print(_chosen(now, before, sort, limit))
            if once:
                return
            time.sleep(interval)
            now, before = sample(client, namespace), now
    _live(client, namespace, now, sort, interval, limit)


def _chosen(now: Sample, before: Sample | None, sort: str, limit: int | None) -> list[TopicTraffic]:
    found = sorted(traffic(now, before), key=lambda one: one.topic)
    if sort != "topic":
        found.sort(
            key=lambda one: getattr(one, {"in": "rate_in", "out": "rate_out"}.get(sort, sort)), reverse=True
        )
    return found[:limit]


def _print(found: Sequence[TopicTraffic]) -> None:
    if output.for_people():
        output.rows(_COLUMNS, _rows(found), "no topic is in use")
        return
    at = int(time.time() * 1000)
    output.lines()(
        [
            {
                "timestamp": at,
                **one._asdict(),
                "subscriptions": [each._asdict() for each in one.subscriptions],
            }
            for one in found
        ]
    )


def _rows(found: Sequence[TopicTraffic]) -> Iterator[dict[str, Any]]:
    """A row for each topic, and below it one for each of its subscriptions."""
    for one in found:
        figures = (one.rate_in, one.bytes_in / 1000, one.rate_out, one.bytes_out / 1000, one.backlog)
        unacked = sum(each.unacknowledged for each in one.subscriptions)
        cells: Sequence[Any] = (_short(one.topic), *figures, unacked, one.producers, one.consumers)
        yield dict(zip(_COLUMNS, cells, strict=True))
        for each in one.subscriptions:
            kind = f" ({each.type})" if each.type else ""
            cells = (
                f"  {each.subscription}{kind}",
                "",
                "",
                each.rate_out,
                "",
                each.backlog,
                each.unacknowledged,
                "",
            )
            yield dict(zip(_COLUMNS, (*cells, each.consumers), strict=True))


def _short(topic: str) -> str:
    return topic.removeprefix("persistent://").removeprefix("public/default/")


def _live(
    client: HttpClient,
    namespace: NamespaceName | None,
    now: Sample,
    sort: str,
    interval: float,
    limit: int | None,
) -> None:
    """Until Ctrl-C. A server that is away is waited for."""
    from rich.live import Live

    before: Sample | None = None
    trouble = ""
    with Ending(), Live(screen=True, auto_refresh=False) as live:  # SIGTERM, too, gives the terminal back
        while True:
            shown = _screen(_chosen(now, before, sort, limit), client.url, trouble, live.console.height)
            live.update(shown, refresh=True)
            time.sleep(interval)
            try:
                now, before, trouble = sample(client, namespace), now, ""
            except RemoteError:
                raise  # a refusal does not pass
            except PenstockError as error:
                trouble = error.message


def _screen(found: Sequence[TopicTraffic], url: str, trouble: str, height: int) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    going_in, out, backlog = (
        sum(one.rate_in for one in found),
        sum(one.rate_out for one in found),
        sum(one.backlog for one in found),
    )
    head = f"{without_password(url)}  {time.strftime('%H:%M:%S')}  {len(found):,} topics  in {going_in:,.0f}/s  out {out:,.0f}/s"
    lines: list[RenderableType] = [Text(f"{head}  backlog {backlog:,}", style="bold")]
    lines.append(Text(trouble, style="red"))
    rows = list(_rows(found))[: max(1, height - 4)]
    lines.append(output.table_of(_COLUMNS, rows))
    return Group(*lines)
