"""What the console asks beyond the public endpoints: the server, its history, figures of many topics, pipelines.

Each is an operation like all others: it is in the OpenAPI document, and asks for the same permissions.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from penstock import __version__
from penstock.model.errors import ErrorKind
from penstock.model.names import NamespaceName, TopicName
from penstock.protocols.caller import Caller
from penstock.protocols.http.operations import ALWAYS, Table
from penstock.protocols.http.params import Parameter, Params
from penstock.server.metrics.pipelines import TOPIC as PIPELINES_TOPIC
from penstock.server.metrics.pipelines import Pipelines

from . import topics
from .history import History

table = Table("console", topics.BASE)

FAILURES_MAX: Final = 100  # shown


class FailureAnswer(msgspec.Struct):
    """Failing background work: the last error, its start (ms since the epoch), and the failed attempts since then."""

    kind: str
    subject: str
    message: str
    since_ms: int
    count: int


class ServerAnswer(msgspec.Struct):
    """What the server is, and what the caller is to it. `engine`: `embedded`, `pulsar` or `kafka`.

    `cluster` is its URL, and `failures` the failing background work: both for superusers.
    `administered`: the namespaces that the caller may make topics in.
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
    failures: list[FailureAnswer]


class PipelinesAnswer(msgspec.Struct):
    """The last event of each reporting pipeline; `topic` is the topic of the events."""

    topic: str
    pipelines: list[dict[str, Any]]


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
        engine="embedded" if cluster is None else cluster.traits.kind,
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
        problem=None if cluster is None else cluster.figures().problem,
        failures=_failures(caller) if caller.is_super else [],
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


def _failures(caller: Caller) -> list[FailureAnswer]:
    ongoing = caller.context.broker.failures.ongoing[:FAILURES_MAX]
    return [
        FailureAnswer(one.kind.value, one.subject, one.message, one.since_ms, one.count) for one in ongoing
    ]


def _limits(caller: Caller) -> dict[str, Any]:
    """The use of the limits that a server reaches first."""
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
    parameters=(Parameter("since", "Only samples after this time, in ms since the epoch.", topics.INTEGER),),
    answer=dict[str, list[float | None]],
    errors=ALWAYS,
)
async def history(caller: Caller, services: Services, params: Params) -> Any:
    caller.may_administer()
    return services.history.columns(params.number("since") or 0)


@table.on(
    "GET",
    "/permissions",
    summary="What the caller may do with a topic.",
    parameters=(Parameter("topic", "Its whole name."),),
    answer=dict[str, bool],
    errors=(*ALWAYS, ErrorKind.INVALID_NAME),
)
async def permissions(caller: Caller, services: Services, params: Params) -> Any:
    name = TopicName.parse(params.text("topic") or "")
    await caller.context.broker.topics.learn(name)
    return caller.allowed(name)


@table.on(
    "GET",
    "/pipelines",
    summary="What the pipelines of this server said last.",
    answer=PipelinesAnswer,
    errors=ALWAYS,
)
async def pipelines(caller: Caller, services: Services, params: Params) -> Any:
    await caller.context.broker.topics.learn(PIPELINES_TOPIC)
    caller.may_consume(PIPELINES_TOPIC)
    await services.pipelines.refresh()
    last = sorted(services.pipelines.last.items())
    return PipelinesAnswer(str(PIPELINES_TOPIC), [msgspec.to_builtins(event) for _, event in last])


OPERATIONS: Final = (*table, *topics.table)

Handler = Callable[[Caller, Services, Params], Awaitable[Any]]
