"""What the console asks beyond the public endpoints: the server, its history, figures of many topics, pipelines.

Each is an operation like all others: it is in the OpenAPI document, and asks for the same permissions.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from penstock import __version__
from penstock.broker.topic import Topic
from penstock.model.errors import ErrorKind
from penstock.model.names import NamespaceName, TopicName
from penstock.protocols.caller import Caller
from penstock.protocols.http.operations import ALWAYS, Table
from penstock.protocols.http.params import Parameter, Params
from penstock.runtime.tasks import Slices
from penstock.server.metrics.pipelines import TOPIC as PIPELINES_TOPIC
from penstock.server.metrics.pipelines import Pipelines

from .history import History

table = Table("console", "/console/api")

LIMIT: Final = 100
LIMIT_MAX: Final = 500

_INTEGER: Final = {"type": "integer", "minimum": 0}


class ServerAnswer(msgspec.Struct):
    """What the server is, and what the caller is to it. `engine`: `embedded`, `pulsar` or `kafka`.

    `cluster` is its URL, for superusers. `administered`: the namespaces that the caller may make topics in.
    """

    version: str
    engine: str
    cluster: str | None
    capabilities: list[str]
    authentication: bool
    role: str | None
    superuser: bool
    namespaces: list[str]
    administered: list[str]
    http_url: str
    pulsar_url: str
    storage: dict[str, Any]
    limits: dict[str, Any]
    problem: str | None


class TopicRow(msgspec.Struct):
    """A topic with all its partitions. Rates are a second, over the last minute; `backlog` is of all subscriptions."""

    topic: str
    partitions: int
    messages: int = 0
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
        rate, throughput = log.rate_in.per_second()
        self.messages += log.next_offset - log.first_offset
        self.size_bytes += log.size_bytes
        self.rate_in += rate
        self.throughput_in += throughput
        self.producers += len(log.producers)
        self.last_publish = max(self.last_publish, log.last_publish_ms)
        for name, subscription in log.subscriptions.items():
            subscriptions.add(name)
            self.rate_out += subscription.rate_out.per_second()[0]
            self.backlog += subscription.backlog
            self.consumers += len(subscription.consumers)
        self.subscriptions = len(subscriptions)


class TopicsAnswer(msgspec.Struct):
    """A page of topics; `matched` of the `total` that the caller may see pass the search."""

    total: int
    matched: int
    topics: list[TopicRow]


class PipelinesAnswer(msgspec.Struct):
    """The last event of each pipeline that said something; `topic` is where they say it."""

    topic: str
    pipelines: list[dict[str, Any]]


SORTS: Final = ("name", *TopicRow.__struct_fields__[2:])


class Services(msgspec.Struct, frozen=True):
    """What the operations work with."""

    history: History
    pipelines: Pipelines
    cluster_url: str = ""


@table.on(
    "GET",
    "/server",
    summary="What the server is, and what the caller may do.",
    answer=ServerAnswer,
    errors=ALWAYS,
)
async def server(caller: Caller, services: Services, params: Params) -> Any:
    context = caller.context
    broker = context.broker
    cluster = broker.cluster
    names = _namespaces(caller)
    return ServerAnswer(
        version=__version__,
        engine="embedded" if cluster is None else cluster.kind,
        cluster=services.cluster_url if caller.is_super and services.cluster_url else None,
        capabilities=sorted(each.name.lower() for each in broker.capabilities),
        authentication=context.auth is not None,
        role=caller.role,
        superuser=caller.is_super,
        namespaces=[str(name) for name in names],
        administered=[str(name) for name in names if caller.administers(name)],
        http_url=context.http_url,
        pulsar_url=context.pulsar_url,
        storage=_storage(caller) if caller.is_super else {},
        limits=_limits(caller) if caller.is_super else {},
        problem=None if cluster is None else cluster.problem,
    )


def _namespaces(caller: Caller) -> list[NamespaceName]:
    known = caller.context.broker.namespaces
    return sorted((name for name in known.all() if caller.knows(name)), key=str)


def _storage(caller: Caller) -> dict[str, Any]:
    storage = caller.context.broker.storage
    shown: dict[str, Any] = {"failing": storage.failing, **storage.readiness()}
    if storage.files is not None:
        shown |= msgspec.structs.asdict(storage.files())
    return shown


def _limits(caller: Caller) -> dict[str, Any]:
    """What is used of the bounds that a server meets first."""
    context = caller.context
    load, limits = context.load, context.limits
    return {
        "connections": [load.connections, limits.max_connections],
        "bytes_in_flight": [load.held + load.unwritten, limits.max_bytes_in_flight],
        "largest_share": [load.largest, limits.max_bytes_in_flight_share],
    }


@table.on(
    "GET",
    "/history",
    summary="What the server did in the last hours: a list for each figure, one element a sample.",
    parameters=(Parameter("since", "Only samples after this time, in ms since the epoch.", _INTEGER),),
    answer=dict[str, list[float | None]],
    errors=ALWAYS,
)
async def history(caller: Caller, services: Services, params: Params) -> Any:
    caller.may_administer()
    return services.history.columns(params.number("since") or 0)


@table.on(
    "GET",
    "/topics",
    summary="A page of a namespace's topics with their figures, searched and sorted.",
    description="Figures other than the name sort the topics that were in use since the server started; others count"
    " as 0.",
    parameters=(
        Parameter("namespace", "tenant/namespace."),
        Parameter("search", "Only topics whose name has this text in it, in any case."),
        Parameter("sort", "By what.", {"type": "string", "enum": list(SORTS), "default": "name"}),
        Parameter("descending", "The largest first.", {"type": "boolean", "default": False}),
        Parameter("start", "How many to pass over.", {**_INTEGER, "default": 0}),
        Parameter("limit", "How many at most.", {**_INTEGER, "maximum": LIMIT_MAX, "default": LIMIT}),
    ),
    answer=TopicsAnswer,
    errors=(*ALWAYS, ErrorKind.NAMESPACE_NOT_FOUND),
)
async def topics(caller: Caller, services: Services, params: Params) -> Any:
    broker = caller.context.broker
    namespace = NamespaceName.parse(params.text("namespace") or "public/default")
    caller.may_list(namespace)
    await broker.topics.learn_names(namespace)
    broker.namespaces.policies(namespace)
    search, sort = (params.text("search") or "").lower(), params.choice("sort")
    seen = [name for name in broker.topics.names(namespace) if caller.sees(name)]
    matched = [name for name in seen if search in name.local.lower()] if search else seen
    if sort != "name":
        figures = await _figures(broker.topics.open_topics)
        none = TopicRow("", 0)
        matched.sort(key=lambda name: getattr(figures.get(name, none), sort))
    if params.flag("descending"):
        matched.reverse()
    start = params.number("start") or 0
    limit = params.number("limit", most=LIMIT_MAX)
    rows, slices = [], Slices()
    for name in matched[start : start + (LIMIT if limit is None else limit)]:
        await slices.step()
        if broker.topics.exists(name):
            rows.append(await _row(caller, name))
    return TopicsAnswer(len(seen), len(matched), rows)


async def _figures(logs: Iterable[Topic]) -> Mapping[TopicName, TopicRow]:
    """The figures of open topics, those of partitions together."""
    found: dict[TopicName, tuple[TopicRow, set[str]]] = {}
    slices = Slices()
    for log in list(logs):
        await slices.step()
        row, subscriptions = found.setdefault(log.name.base, (TopicRow("", 0), set()))
        row.add(log, subscriptions)
    return {name: row for name, (row, _) in found.items()}


async def _row(caller: Caller, name: TopicName) -> TopicRow:
    broker = caller.context.broker
    await broker.topics.learn_whole(name)
    row, subscriptions = TopicRow(str(name), broker.topics.partitions(name)), set[str]()
    for log in await broker.topics.all_of(name, create=False):
        row.add(log, subscriptions)
    return row


@table.on(
    "GET",
    "/permissions",
    summary="What the caller may do with a topic.",
    parameters=(Parameter("topic", "Its whole name."),),
    answer=dict[str, bool],
    errors=(*ALWAYS, ErrorKind.INVALID_NAME),
)
async def permissions(caller: Caller, services: Services, params: Params) -> Any:
    return caller.allowed(TopicName.parse(params.text("topic") or ""))


@table.on(
    "GET",
    "/pipelines",
    summary="What the pipelines of this server said last.",
    answer=PipelinesAnswer,
    errors=ALWAYS,
)
async def pipelines(caller: Caller, services: Services, params: Params) -> Any:
    caller.may_consume(PIPELINES_TOPIC)
    await caller.context.broker.topics.learn(PIPELINES_TOPIC)
    await services.pipelines.refresh()
    last = sorted(services.pipelines.last.items())
    return PipelinesAnswer(str(PIPELINES_TOPIC), [msgspec.to_builtins(event) for _, event in last])


OPERATIONS: Final = tuple(table)

Handler = Callable[[Caller, Services, Params], Awaitable[Any]]
