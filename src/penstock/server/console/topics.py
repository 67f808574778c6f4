"""Topics as the console shows them: a page of a namespace's with their figures, and one."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from penstock.broker.cluster import Cluster
from penstock.broker.topic import Topic
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.model.target import Target
from penstock.protocols.admin.stats import service_stats, shown_subscriptions
from penstock.protocols.caller import Caller
from penstock.protocols.http.operations import ALWAYS, Table
from penstock.protocols.http.params import Parameter, Params
from penstock.runtime.tasks import Slices, chosen, each

BASE: Final = "/console/api"
INTEGER: Final = {"type": "integer", "minimum": 0}

table = Table("console", BASE)

LIMIT: Final = 100
LIMIT_MAX: Final = 500
ROWS_AT_ONCE: Final = 16  # topics that a cluster is asked for at the same time: it answers what is asked together in one request


class TopicRow(msgspec.Struct):
    """A topic with all its partitions. Rates are a second, over the last minute; `backlog` is of all subscriptions."""

    topic: str
    partitions: int
    messages: int | None = 0  # null if the engine's cluster does not count them
    size_bytes: int = 0
    rate_in: float = 0.0
    rate_out: float = 0.0
    throughput_in: float = 0.0
    backlog: int = 0
    subscriptions: int = 0
    producers: int = 0
    consumers: int = 0
    last_publish: int = 0  # ms since the epoch; 0: none since the server started

    def add(self, log: Topic, subscriptions: set[str]) -> None:
        """Take in one of its logs."""
        figures = log.figures()
        rate, throughput = figures.rate_in.per_second()
        bounds = log.bounds
        self.messages = (self.messages or 0) + bounds.messages
        self.size_bytes += bounds.size_bytes
        self.rate_in += rate
        self.throughput_in += throughput
        self.producers += len(log.producers)
        self.last_publish = max(self.last_publish, figures.last_publish_ms)
        for name, subscription in shown_subscriptions(log).items():
            subscriptions.add(name)
            known = subscription.figures()
            self.rate_out += known.rate_out.per_second()[0]
            self.backlog += known.backlog
            self.consumers += len(subscription.consumers)
        self.subscriptions = len(subscriptions)


class TopicsAnswer(msgspec.Struct):
    """A page of topics; `matched` of the `total` that the caller may see pass the search."""

    total: int
    matched: int
    topics: list[TopicRow]


SORTS: Final = ("name", *TopicRow.__struct_fields__[2:])


@table.on(
    "GET",
    "/topics",
    summary="A page of a namespace's topics with their figures, searched and sorted.",
    description="Figures other than the name sort the topics that were in use since the server started; others count"
    " as 0. Of several processes before Kafka each sorts by what it counts itself.",
    parameters=(
        Parameter("namespace", "tenant/namespace."),
        Parameter("search", "Only topics whose name has this text in it, in any case."),
        Parameter("sort", "By what.", {"type": "string", "enum": list(SORTS), "default": "name"}),
        Parameter("descending", "The largest first.", {"type": "boolean", "default": False}),
        Parameter("start", "How many to pass over.", {**INTEGER, "default": 0}),
        Parameter("limit", "How many at most.", {**INTEGER, "maximum": LIMIT_MAX, "default": LIMIT}),
    ),
    answer=TopicsAnswer,
    errors=(*ALWAYS, ErrorKind.NAMESPACE_NOT_FOUND, ErrorKind.INVALID_NAME),
)
async def topics(caller: Caller, services: object, params: Params) -> Any:
    broker = caller.context.broker
    namespace = NamespaceName.parse(params.text("namespace") or "public/default")
    await broker.topics.learn_names(namespace)
    caller.may_list(namespace)
    broker.namespaces.policies(namespace)
    search, sort = (params.text("search") or "").lower(), params.choice("sort")
    seen = await chosen(broker.topics.names(namespace), caller.sees)
    matched = await chosen(seen, lambda name: search in name.local.lower()) if search else seen
    if sort != "name":
        figures = await _figures(broker.topics.open_topics)
        none = TopicRow("", 0)
        matched.sort(key=lambda name: getattr(figures.get(name, none), sort))
    if params.flag("descending"):
        matched.reverse()
    start = params.number("start") or 0
    limit = params.number("limit", most=LIMIT_MAX)
    page = matched[start : start + (LIMIT if limit is None else limit)]
    rows = await each(partial(_row, caller), page, ROWS_AT_ONCE)
    return TopicsAnswer(len(seen), len(matched), [row for row in rows if row is not None])


async def _figures(logs: Iterable[Topic]) -> Mapping[TopicName, TopicRow]:
    """The figures of open topics, those of partitions together."""
    found: dict[TopicName, tuple[TopicRow, set[str]]] = {}
    slices = Slices()
    for log in list(logs):
        await slices.step()
        row, subscriptions = found.setdefault(log.name.base, (TopicRow("", 0), set()))
        row.add(log, subscriptions)
    return {name: row for name, (row, _) in found.items()}


async def _row(caller: Caller, name: TopicName) -> TopicRow | None:
    """A topic's figures; None if it does not exist any more. Raises UNAVAILABLE."""
    try:
        return await _figures_of(caller, name)
    except PenstockError as error:
        if error.kind is not ErrorKind.TOPIC_NOT_FOUND:
            raise
        return None


async def _figures_of(caller: Caller, name: TopicName) -> TopicRow | None:
    broker = caller.context.broker
    await broker.topics.learn(name, whole=True)
    row = TopicRow(str(name), broker.topics.partitions(name))
    cluster = broker.cluster
    if cluster is not None and cluster.traits.administered:
        return row if await _ask_cluster(cluster, name, row) else None
    if cluster is not None:
        said = msgspec.convert(await service_stats(broker, name), _Stats)
        row.messages, row.last_publish = said.messages, said.lastPublishTimestamp
        _fill(row, said)
        return row
    subscriptions = set[str]()
    for log in await broker.topics.all_of(name, create=False):
        row.add(log, subscriptions)
    return row


class _Stats(msgspec.Struct):
    """What Pulsar's admin API says of a topic, or of a subscription."""

    msgRateIn: float = 0.0  # noqa: N815 - Pulsar's JSON
    msgRateOut: float = 0.0  # noqa: N815
    msgThroughputIn: float = 0.0  # noqa: N815
    storageSize: int = 0  # noqa: N815
    msgBacklog: int = 0  # noqa: N815
    publishers: list[Any] = []
    consumers: list[Any] = []
    subscriptions: dict[str, "_Stats"] = {}
    messages: int = 0  # Penstock's own, as the next
    lastPublishTimestamp: int = 0  # noqa: N815


async def _ask_cluster(cluster: Cluster, name: TopicName, row: TopicRow) -> bool:
    """Fill in what a cluster of Pulsar says of a topic over all its brokers; False if it is not there."""
    if row.partitions:
        target = Target.of_topic(name, "partitioned-stats")
        answer = await cluster.request("GET", target, [("perPartition", "false")])
    else:
        answer = await cluster.request("GET", Target.of_topic(name, "stats"))
    if answer.status == 404:
        return False
    if answer.status != 200:
        raise PenstockError(
            ErrorKind.UNAVAILABLE, f"the cluster answered {answer.status} for the figures of {name}"
        )
    row.messages = None
    _fill(row, msgspec.json.decode(answer.body, type=_Stats))
    return True


def _fill(row: TopicRow, said: _Stats) -> None:
    row.size_bytes = said.storageSize
    row.rate_in, row.rate_out, row.throughput_in = said.msgRateIn, said.msgRateOut, said.msgThroughputIn
    row.producers = len(said.publishers)
    row.subscriptions = len(said.subscriptions)
    row.backlog = sum(each.msgBacklog for each in said.subscriptions.values())
    row.consumers = sum(len(each.consumers) for each in said.subscriptions.values())


class TopicAnswer(msgspec.Struct):
    """One topic, with all its partitions. `messages` is null where the engine's cluster does not count them."""

    name: str
    partitions: int
    terminated: bool
    properties: dict[str, str]
    messages: int | None
    storageSize: int  # noqa: N815 - as the admin API has it
    schemaType: str | None  # noqa: N815
    schemaVersion: int | None  # noqa: N815


@table.on(
    "GET",
    "/topic",
    summary="What there is to say of one topic, on every engine.",
    parameters=(Parameter("topic", "Its whole name."),),
    answer=TopicAnswer,
    errors=(*ALWAYS, ErrorKind.INVALID_NAME, ErrorKind.TOPIC_NOT_FOUND),
)
async def topic(caller: Caller, services: object, params: Params) -> Any:
    broker = caller.context.broker
    name = TopicName.parse(params.text("topic") or "")
    await broker.topics.learn(name)
    caller.may_look(name)
    await broker.topics.learn(name, whole=True)
    document = broker.topics.document(name)
    row = None if document is None else await _row(caller, name)
    if document is None or row is None:
        raise broker.topics.missing(name)
    latest = broker.schemas.latest(name)
    return TopicAnswer(
        name=str(name),
        partitions=row.partitions,
        terminated=document.terminated,
        properties=document.properties,
        messages=row.messages,
        storageSize=row.size_bytes,
        schemaType=None if latest is None else latest.schema.type.name,
        schemaVersion=None if latest is None else latest.version,
    )
