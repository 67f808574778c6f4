"""Administration and lookups of the cluster behind the server: requests are passed on to it, and its answers back.

The cluster answers the server; whether the caller may ask is decided here: superusers everything, administrators of a
tenant all that is the tenant's, and whoever may use a topic where it is served, how many partitions it has, and its schemas;
who may produce registers them.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from urllib.parse import unquote

from penstock.broker.cluster import Cluster
from penstock.model.errors import PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.protocols.caller import Caller
from penstock.protocols.context import ServerContext
from penstock.protocols.http.answers import Dialect, ExactName
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.failure import fail
from penstock.protocols.http.paths import raw_path

Endpoint = Callable[[Exchange], Awaitable[None]]

OWN: Final = ("/admin/v2/proxy-stats",)  # what the server says of itself
_LOOKUP: Final = "/lookup/v2/topic/"
# Where a tenant's name stands in a path, by what comes before it.
_OF_TENANTS: Final = frozenset(("persistent", "non-persistent", "namespaces", "schemas", "tenants"))


def forwarding(context: ServerContext, cluster: Cluster, own: Endpoint) -> Endpoint:
    """Serves `/admin` and `/lookup` of the cluster, and by `own` what is the server's own there."""

    async def serve(exchange: Exchange) -> None:
        path = raw_path(exchange.scope).decode("ascii", "replace")
        if path.startswith(OWN):
            await own(exchange)
            return
        try:
            await _forward(context, cluster, path, exchange)
        except Exception as error:
            await fail(exchange, error, context, Dialect.PULSAR)

    return serve


async def _forward(context: ServerContext, cluster: Cluster, path: str, exchange: Exchange) -> None:
    caller = await Caller.admit(context, exchange.authorization, exchange.scope)
    await _check(context, caller, exchange.method, path)
    body = await exchange.body(context.limits.max_request_bytes)
    answer = await cluster.request(
        exchange.method, path, exchange.scope["query_string"], exchange.scope["headers"], body
    )
    if exchange.method not in ("GET", "HEAD"):
        context.audit.changed(caller.role, exchange.scope, answer.status, proxy=caller.proxy)
    headers = [(_name(name), value) for name, value in answer.headers]
    await exchange.whole(answer.status, headers, None if answer.status == 204 else answer.body)


def _name(name: bytes) -> bytes:
    """Those of Pulsar's messages keep their case, which Java's admin client looks at."""
    return ExactName(name.decode("latin-1")).encode() if name.startswith(b"X-Pulsar-") else name


async def _check(context: ServerContext, caller: Caller, method: str, path: str) -> None:
    """Raise FORBIDDEN unless the caller may ask for what is at a path; INVALID_NAME."""
    if caller.is_super:
        return
    segments = [unquote(part) for part in path.strip("/").split("/")]
    if path.startswith(_LOOKUP) and len(segments) >= 7:
        topic = TopicName.of(segments[3], segments[4], segments[5], segments[6])
        await context.broker.topics.learn(topic)
        caller.may_look(topic)
    elif len(segments) > 3 and segments[2] in _OF_TENANTS:
        if len(segments) > 4:
            await context.broker.topics.learn_names(NamespaceName.of(segments[3], segments[4]))
        if _is_users(caller, method, segments):
            return
        caller.may_administer_tenant(segments[3])
    else:
        caller.may_administer()


def _is_users(caller: Caller, method: str, segments: Sequence[str]) -> bool:
    """Whether a request is one of those for who uses a topic, and the caller does: about its partitions or its schemas
    (POST registers one, or asks whether it may follow)."""
    if len(segments) < 7:
        return False
    of_schemas = segments[2] == "schemas"
    if method != "GET" and not (of_schemas and method == "POST"):
        return False
    if not of_schemas and segments[6:] != ["partitions"]:
        return False
    domain = "persistent" if of_schemas else segments[2]
    try:
        topic = TopicName.of(domain, segments[3], segments[4], segments[5])
        if method == "POST":
            caller.may_produce(topic)
        else:
            caller.may_look(topic)
    except PenstockError:
        return False  # administrators of the tenant may all the same
    return True
