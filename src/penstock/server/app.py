"""Builds the application: stores, broker, context, and every endpoint round them."""

import asyncio

import msgspec
from starlette.routing import Router

from penstock.broker.broker import Broker
from penstock.broker.cluster import Owner
from penstock.engines.fleet.fleet import ProcessFleet
from penstock.engines.fleet.membership import Membership
from penstock.engines.opening import open_cluster, open_embedded, open_worker
from penstock.model.secret import Secret
from penstock.model.worker import WorkerAccess
from penstock.protocols.admin.forwarding import forwarding
from penstock.protocols.admin.routes import endpoint as admin_endpoint
from penstock.protocols.auth.authenticator import authenticator
from penstock.protocols.auth.workers import Workers
from penstock.protocols.binary.endpoint import BinaryEndpoint
from penstock.protocols.confluent.proxy.endpoint import ProxyEndpoint
from penstock.protocols.confluent.registry.endpoint import RegistryEndpoint
from penstock.protocols.context import ServerContext
from penstock.protocols.kafka_rest.endpoint import KafkaRestEndpoint
from penstock.protocols.rest.endpoint import RestEndpoint
from penstock.protocols.rest.stages import StagesEndpoint
from penstock.protocols.websocket.endpoint import routes as websocket_routes
from penstock.protocols.websocket.socket import Sockets
from penstock.runtime.clock import Clock

from .config import Config
from .console.endpoint import ConsoleEndpoint
from .console.history import History
from .dispatch import Application, Endpoint, mounted
from .fleet import FleetEndpoint, open_fleet
from .metrics.page import MetricsPage
from .metrics.pipelines import Pipelines
from .metrics.requests import RequestMetrics
from .origins import Origins
from .owner import LogOwner, own_metrics, own_statistics, pages, publishing
from .pages import Pages
from .tracing import Tracing


class App(msgspec.Struct, frozen=True):
    """What every endpoint is given, the endpoints that have something to finish, and the application of all."""

    context: ServerContext
    rest: RestEndpoint
    binary: BinaryEndpoint
    kafka_rest: KafkaRestEndpoint | None  # None: another process serves it
    rest_proxy: ProxyEndpoint | None  # likewise
    sockets: Sockets
    asgi: Application
    requests: RequestMetrics
    fleet: ProcessFleet | None = None
    membership: Membership | None = None
    history: History | None = None
    tracing: Tracing | None = None
    owner: LogOwner | None = None  # of the log, if this process is a worker

    async def join(self, url: str, pulsar: Owner, peer_url: str) -> None:
        """Write the addresses of this process for the others before the cluster, and learn theirs. `peer_url` is where they reach
        Pulsar's protocol."""
        if self.membership is not None:
            await self.membership.start(url, pulsar.url, pulsar.tls_url, peer_url)

    async def drain(self) -> None:
        """Take no new work, end every wait, close every connection that lasts; completes when they are closed."""
        self.context.draining = True
        self.context.broker.drain()
        self.rest.drain()
        if self.owner is not None:
            self.owner.drain()
        if self.kafka_rest is not None:
            self.kafka_rest.drain()
        if self.rest_proxy is not None:
            self.rest_proxy.services.drain()
        await asyncio.gather(self.sockets.drain(), self.binary.drain())

    async def close(self) -> None:
        """Disconnect every client, save every cursor, close the stores."""
        if self.membership is not None:
            await self.membership.close()
        await self.rest.close()
        await self.binary.close()
        await self.context.lasting.close()
        if self.kafka_rest is not None:
            await self.kafka_rest.close()
        if self.rest_proxy is not None:
            await self.rest_proxy.services.close()
        if self.fleet is not None:
            await self.fleet.close()
        await self.context.broker.close()
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.close)


def build(
    config: Config,
    clock: Clock | None = None,
    owner: WorkerAccess | None = None,
    *,
    worker: int = 0,
    local: Secret | None = None,
) -> App:
    """Everything of one server, not yet started; raises AuthConfigError, BAD_PARAMETER. `owner`: the process that owns the log of
    several over the embedded engine: this one, unless it is a `worker`. `local`: the secret of this machine's processes, which is
    used if none is configured."""
    if owner is not None and worker:
        return build_worker(config, owner)
    fleet = open_fleet(config.fleet, local) if owner is None else ProcessFleet(owner.secret, id=owner.id)
    broker = open_broker(config, clock, fleet)
    workers = None if owner is None else Workers(owner.secret)
    context = ServerContext(broker, config.limits, authenticator(config.auth, broker), workers)
    return build_for(context, config, fleet)


def build_worker(config: Config, access: WorkerAccess) -> App:
    """The same for a worker: publishing and WebSockets, and the owner's answers for everything else."""
    broker = open_worker(access, config.broker)
    context = ServerContext(broker, config.limits, authenticator(config.auth, broker))
    owner = LogOwner(access)
    rest, sockets, binary = RestEndpoint(context, owner.answer), Sockets(), BinaryEndpoint(context)
    websocket = Router(websocket_routes(context, sockets), redirect_slashes=False)
    requests = RequestMetrics(log_access=config.log.access)

    def counts() -> tuple[int, int]:
        return len(sockets), len(binary)

    metrics = MetricsPage(context, requests, counts, None, by_topic=config.metrics.by_topic)
    tracing = Tracing(config.trace) if config.trace.otlp_endpoint else None
    endpoints: dict[str, Endpoint] = {
        **dict.fromkeys(("stages", "entries", "kafka", "registry", "rest", "lookup", "console"), owner),
        "topics": publishing(rest, owner),
        "ws": mounted(websocket),
        "admin": own_statistics(admin_endpoint(context), owner),
        "metrics": own_metrics(context, metrics, owner),
    }
    asgi = Application(
        endpoints, {"ws": websocket}, pages(context, owner), _origins(config, context), requests, tracing
    )
    return App(
        context, rest, binary, None, None, sockets, asgi, requests, owner.fleet, None, None, tracing, owner
    )


def open_broker(config: Config, clock: Clock | None = None, fleet: ProcessFleet | None = None) -> Broker:
    """The engine that the configuration means; the embedded one by `clock`, where one is given. `fleet`: the other processes of
    the service. Raises BAD_PARAMETER."""
    if config.engine.url:
        return open_cluster(config.engine, config.broker, fleet)
    return open_embedded(
        config.broker,
        folder=None if config.data.store == "memory" else config.data.folder,
        size_max_bytes=config.storage.size_max_bytes,
        reserve_bytes=config.storage.reserve_bytes,
        clock=clock,
    )


def build_for(context: ServerContext, config: Config | None = None, fleet: ProcessFleet | None = None) -> App:
    """The endpoints that share a context, as one application; `fleet` are the other processes of its service."""
    config = config or Config()
    context.fleet = fleet
    rest, sockets, admin = RestEndpoint(context), Sockets(), admin_endpoint(context)
    kafka_rest = KafkaRestEndpoint(context)
    registry = RegistryEndpoint(context)
    rest_proxy = ProxyEndpoint(context, registry.load, config.rest_proxy.url)
    cluster = context.broker.cluster
    if cluster is not None and cluster.traits.administered:
        admin = forwarding(context, cluster, admin)
    websocket = Router(websocket_routes(context, sockets), redirect_slashes=False)
    stages = StagesEndpoint(context)
    binary = BinaryEndpoint(context)
    requests = RequestMetrics(log_access=config.log.access)

    def counts() -> tuple[int, int]:
        return len(sockets), len(binary)

    pipelines = Pipelines(context.broker)
    metrics = MetricsPage(context, requests, counts, pipelines, by_topic=config.metrics.by_topic)
    origins = _origins(config, context)
    tracing = Tracing(config.trace) if config.trace.otlp_endpoint else None
    endpoints: dict[str, Endpoint] = {
        "stages": stages,
        "entries": stages,
        "topics": rest,
        "kafka": kafka_rest,
        "registry": registry,
        "rest": rest_proxy,
        "ws": mounted(websocket),
        "admin": admin,
        "lookup": admin,
        "metrics": metrics,
    }
    history = None
    if config.console.enabled:
        history = History(context, requests, counts, config.console.history_hours)
    console = ConsoleEndpoint(context, history, rest.services, pipelines, config.engine.url)
    endpoints["console"] = console
    others = None
    if fleet is not None:
        others = endpoints["fleet"] = FleetEndpoint(fleet, config.http.keep_alive_s)
    asgi = Application(
        endpoints,
        {"ws": websocket},
        Pages(context, console),
        origins,
        requests,
        tracing,
        others,
        context.workers,
    )
    membership = None
    if fleet is not None and context.broker.processes is not None:
        membership = Membership(fleet, context.broker.processes, context.broker.tasks, context.broker.clock)
    return App(
        context,
        rest,
        binary,
        kafka_rest,
        rest_proxy,
        sockets,
        asgi,
        requests,
        fleet,
        membership,
        history,
        tracing,
    )


def _origins(config: Config, context: ServerContext) -> Origins:
    own_names_only = context.auth is None and not config.auth.insecure
    return Origins(config.http.allowed_origins, context.audit, own_names_only=own_names_only)
