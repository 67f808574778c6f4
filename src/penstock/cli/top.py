"""`penstock top`: the topics in use, with rates, backlogs and consumers."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from penstock.client.access import without_password
from penstock.client.http import HttpClient, RemoteError
from penstock.client.paths import admin_path
from penstock.model.errors import PenstockError
from penstock.model.names import NamespaceName, TopicName

from . import output
from .actions import of_each
from .connection import NamespaceType, connected
from .messages.ending import Ending
from .topic_figures import NO_TYPE

if TYPE_CHECKING:
    from rich.console import RenderableType

Row = dict[str, Any]
Statistics = Mapping[str, Any]  # of a partition or a subscription, as the admin API returns them

_COLUMNS = ("topic", "in/s", "kB in/s", "out/s", "kB out/s", "backlog", "unacked", "producers", "consumers")
_RATES: Final = {
    "rate_in": "msgRateIn",
    "bytes_in": "msgThroughputIn",
    "rate_out": "msgRateOut",
    "bytes_out": "msgThroughputOut",
}
_SORTS: Final = {"in": "rate_in", "out": "rate_out", "backlog": "backlog", "topic": "topic"}
_FORBIDDEN: Final = 403


@click.command("top")
@click.argument("namespace", type=NamespaceType(), required=False)
@click.option("--sort", type=click.Choice([*_SORTS]), default="in", show_default=True, help="Highest first.")
@click.option("--interval", metavar="S", type=click.FloatRange(0.2), default=2.0, show_default=True)
@click.option("--limit", metavar="N", type=click.IntRange(1), help="Show at most N topics.")
@click.option("--once", is_flag=True, help="Show them once and exit.")
@connected
def top_command(
    client: HttpClient, /, namespace: NamespaceName | None, sort: str, interval: float, **how: Any
) -> None:
    """Watch the topics in use, of NAMESPACE or of all: rates in and out, backlogs, producers and consumers.

    Rates are those of the last minute. In a pipe, each topic is a line of JSON at each interval. Ctrl-C ends it.
    """

    def look() -> list[Row]:
        rows = topics_in_use(client, namespace)
        return sorted(rows, key=lambda row: row[_SORTS[sort]], reverse=sort != "topic")[: how["limit"]]

    if not how["once"] and output.for_people() and sys.stdout.isatty():
        _live(look, without_password(client.url), interval)
    while True:
        if output.for_people():
            output.rows(_COLUMNS, _cells(look()), "no topic is in use")
        else:
            output.lines()([{"timestamp": int(time.time() * 1000), **row} for row in look()])
        if how["once"]:
            return
        time.sleep(interval)


def _live(look: Callable[[], list[Row]], url: str, interval: float) -> NoReturn:
    """Show the topics until a signal ends it. A server that cannot be reached is asked again."""
    from rich.live import Live

    rows, trouble = look(), ""
    with Ending(), Live(screen=True, auto_refresh=False) as live:  # SIGTERM restores the terminal, too
        while True:
            live.update(_screen(rows, url, trouble, live.console.height), refresh=True)
            time.sleep(interval)
            try:
                rows, trouble = look(), ""
            except RemoteError:
                raise
            except PenstockError as error:
                trouble = error.message


def topics_in_use(client: HttpClient, namespace: NamespaceName | None) -> list[Row]:
    """One row per topic, over all its partitions, by name. Only a superuser may omit the namespace."""
    partitions: dict[str, Statistics] = {}
    try:
        for name, bundles in client.call("GET", "/admin/v2/broker-stats/topics").items():
            if namespace is None or name == str(namespace):
                for domain in (domain for bundle in bundles.values() for domain in bundle.values()):
                    partitions |= domain
    except RemoteError as error:
        if error.status != _FORBIDDEN:
            raise
        if namespace is None:
            raise click.ClickException(f"{error.message}; name a NAMESPACE") from None
        of_namespace = client.topics(namespace)
        partitions = of_each(of_namespace, lambda name: client.call("GET", f"{admin_path(name)}/stats"))
    by_topic: dict[str, list[Statistics]] = {}
    for name, statistics in partitions.items():
        by_topic.setdefault(str(TopicName.parse(name).base), []).append(statistics)
    return [_row(topic, by_topic[topic]) for topic in sorted(by_topic)]


def _row(topic: str, partitions: Sequence[Statistics]) -> Row:
    parts: dict[str, list[Statistics]] = {}
    for name, one in ((name, one) for each in partitions for name, one in each["subscriptions"].items()):
        parts.setdefault(name, []).append(one)
    subscriptions = [_subscription(name, parts[name]) for name in sorted(parts)]
    return {
        "topic": topic,
        **{rate: sum(each[name] for each in partitions) for rate, name in _RATES.items()},
        "backlog": sum(one["backlog"] for one in subscriptions),
        "producers": sum(len(each["publishers"]) for each in partitions),
        "consumers": sum(one["consumers"] for one in subscriptions),
        "subscriptions": subscriptions,
    }


def _subscription(name: str, parts: Sequence[Statistics]) -> Row:
    consumers = [consumer for one in parts for consumer in one["consumers"]]
    unacked = sum(one["unackedMessages"] for one in parts if "unackedMessages" in one)
    return {
        "subscription": name,
        "type": next((one["type"] for one in parts if one.get("type") not in NO_TYPE), None),
        "rate_out": sum(one["msgRateOut"] for one in parts),
        "backlog": sum(one["msgBacklog"] for one in parts),
        # A Pulsar broker that lists its topics has the figure per consumer only.
        "unacknowledged": unacked or sum(each.get("unackedMessages", 0) for each in consumers),
        "consumers": len({each.get("consumerName") or each.get("address") for each in consumers}),
    }


def _cells(rows: Sequence[Row]) -> Iterator[Row]:
    """Table rows: each topic, followed by its subscriptions."""
    for row in rows:
        name = row["topic"].removeprefix("persistent://").removeprefix("public/default/")
        rates = (row["rate_in"], row["bytes_in"] / 1000, row["rate_out"], row["bytes_out"] / 1000)
        unacked = sum(one["unacknowledged"] for one in row["subscriptions"])
        cells = (name, *rates, row["backlog"], unacked, row["producers"], row["consumers"])
        yield dict(zip(_COLUMNS, cells, strict=True))
        for one in row["subscriptions"]:
            name = f"  {one['subscription']}" + (f" ({one['type']})" if one["type"] else "")
            figures = (one["rate_out"], "", one["backlog"], one["unacknowledged"], "", one["consumers"])
            yield dict(zip(_COLUMNS, (name, "", "", *figures), strict=True))


def _screen(rows: Sequence[Row], url: str, trouble: str, height: int) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    totals = (sum(row[name] for row in rows) for name in ("rate_in", "rate_out", "backlog"))
    head = f"{url}  {time.strftime('%H:%M:%S')}  {len(rows):,} topics"
    head += "  in {:,.0f}/s  out {:,.0f}/s  backlog {:,}".format(*totals)
    table = output.table_of(_COLUMNS, list(_cells(rows))[: max(1, height - 4)])
    return Group(Text(head, style="bold"), Text(trouble, style="red"), table)
