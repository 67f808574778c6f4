"""Administration and lookups of the cluster behind the server: requests are passed on to it, and its answers back.

`cluster_operations` decides whether the caller may send a request; if the cluster is reached for callers, it decides too. The
forwarded path is built from the checked segments: no text of a request becomes a path.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote_to_bytes

from penstock.broker.acting import ACTING
from penstock.broker.cluster import Cluster, ClusterAnswer
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.model.target import Target, encoded_once, problem_of
from penstock.protocols.caller import Caller
from penstock.protocols.context import ServerContext
from penstock.protocols.http.answers import JSON_TYPE, Dialect, ExactName, Header, error_body, not_allowed
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.failure import fail
from penstock.protocols.http.paths import raw_path

from .cluster_operations import LOCAL, TOPICS, TWICE, MatchedOperation, Right, match_operation
from .error_pages import kind_of, reason_in

Endpoint = Callable[[Exchange], Awaitable[None]]

OWN: Final = "/admin/v2/proxy-stats"  # the server's own statistics
_READING: Final = ("GET", "HEAD")
# TRACE would answer the server's own credentials, CONNECT open a tunnel to a broker.
_METHODS: Final = (*_READING, "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
_MISSING: Final = (ErrorKind.NAMESPACE_NOT_FOUND, ErrorKind.TOPIC_NOT_FOUND, ErrorKind.NOT_FOUND)
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_PARAMETERS_MAX: Final = 100
_SHOWN_MAX: Final = 200  # characters of a path in an error


class CheckedRequest(NamedTuple):
    """A checked request: its target and query as forwarded, and its operation."""

    target: Target
    operation: MatchedOperation
    query: list[tuple[str, str]]


def forwarding(context: ServerContext, cluster: Cluster, own: Endpoint) -> Endpoint:
    """Serves `/admin` and `/lookup` of the cluster, and by `own` the server's own paths there."""

    async def serve(exchange: Exchange) -> None:
        path = raw_path(exchange.scope).decode("ascii", "replace")
        if path == OWN or path.startswith(f"{OWN}/"):
            await own(exchange)
            return
        try:
            await _forward(context, cluster, exchange)
        except Exception as error:
            await fail(exchange, error, context, Dialect.PULSAR)

    return serve


async def _forward(context: ServerContext, cluster: Cluster, exchange: Exchange) -> None:
    scope = exchange.scope
    caller = await Caller.admit(context, exchange.authorization, scope)
    request = check_request(exchange.method, raw_path(scope), scope["query_string"])
    await _check(context, caller, exchange.method, request)
    body = await exchange.body(context.limits.max_request_bytes)
    answer = await cluster.request(
        exchange.method, request.target, request.query, scope["headers"], body, caller=ACTING.get()
    )
    if exchange.method not in _READING:
        context.audit.changed(caller.role, scope, answer.status, proxy=caller.proxy)
    headers, content = _answered(answer)
    await exchange.whole(answer.status, headers, None if answer.status == 204 else content)


def check_request(method: str, path: bytes, query: bytes) -> CheckedRequest:
    """Check a request line; raises BAD_PARAMETER for a path or query that is ambiguous."""
    try:
        text = path.decode("ascii")
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_PARAMETERS_MAX,
        )
    except ValueError:
        raise _bad("the path and the query have to be ASCII, percent-encoded UTF-8") from None
    if not text.startswith("/"):
        raise _bad("the path does not begin with a slash")
    raw = text[1:].split("/")
    matched = match_operation(method, raw)
    local = {place for name, place in matched.places.items() if name in LOCAL}
    segments = [_checked(segment, local=place in local) for place, segment in enumerate(raw)]
    for name, place in matched.places.items():
        if name in LOCAL:
            meant = matched.names[name]
            if problem := problem_of(meant) or _separator(meant):
                raise _bad(problem)
            segments[place] = encoded_once(meant) if name in TWICE else meant
    # A token in the query is for this server only: brokers would write it to their logs.
    return CheckedRequest(Target.of(*segments), matched, [one for one in pairs if one[0].lower() != "token"])


def _checked(raw: str, *, local: bool) -> str:
    """Decode a segment; raises BAD_PARAMETER."""
    if _BROKEN_ESCAPE.search(raw):
        raise _bad(f"the path has a % without two hexadecimal digits: {raw[:_SHOWN_MAX]!r}")
    try:
        segment = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise _bad("the path is not UTF-8") from None
    if problem := problem_of(segment) or _separator(segment):
        raise _bad(problem)
    if not local and "/" in segment:
        raise _bad(f"the path has a slash within a segment: {raw[:_SHOWN_MAX]!r}")
    if not local and _ESCAPE.search(segment):
        raise _bad(f"the path has a segment that is encoded twice: {raw[:_SHOWN_MAX]!r}")
    return segment


def _separator(segment: str) -> str:
    """The error if a segment has a separator; empty if it has none."""
    found = next((one for one in ";\\" if one in segment), None)
    return "" if found is None else f"the path has {found!r} in a segment: {segment[:_SHOWN_MAX]!r}"


async def _check(context: ServerContext, caller: Caller, method: str, request: CheckedRequest) -> None:
    """Raise FORBIDDEN unless the caller has the right that the operation needs; METHOD_NOT_ALLOWED, INVALID_NAME."""
    allowed = _READING if request.target.segments[0] == "lookup" else _METHODS
    if method not in allowed:
        raise not_allowed(method, allowed)
    if caller.is_super:
        return
    right, names = request.operation.right, request.operation.names
    if right is Right.SUPER:
        caller.may_administer()
        return
    # Learning any namespace of a tenant, even a missing one, learns the tenant.
    namespace = NamespaceName.of(names["tenant"], names.get("namespace", "default"))
    if right is Right.TENANT:
        try:
            await context.broker.topics.learn_names(namespace)
        except PenstockError as error:
            if error.kind not in _MISSING:
                raise
        caller.may_administer_tenant(namespace.tenant)
        return
    local = next(names[name] for name in TOPICS if name in names)
    topic = TopicName.of(names.get("domain", "persistent"), namespace.tenant, namespace.namespace, local)
    await context.broker.topics.learn(topic)
    if right is Right.PRODUCE:
        caller.may_produce(topic)
    else:
        caller.may_look(topic)


def _answered(answer: ClusterAnswer) -> tuple[list[Header], bytes]:
    """The headers and the body of an answer; an error that is an HTML page, or has no body, becomes JSON with its reason."""
    kind = next((value for name, value in answer.headers if name.lower() == b"content-type"), b"")
    if answer.status >= 400 and not kind.lower().startswith(b"application/json"):
        body = error_body(kind_of(answer.status), reason_in(answer.status, answer.body), Dialect.PULSAR)
        kept = [(name, value) for name, value in answer.headers if name.lower() != b"content-type"]
        return [*((_name(name), value) for name, value in kept), JSON_TYPE], body
    return [(_name(name), value) for name, value in answer.headers], answer.body


def _name(name: bytes) -> bytes:
    """Names of message headers keep their case, which the Java admin client relies on."""
    return ExactName(name.decode("latin-1")).encode() if name.startswith(b"X-Pulsar-") else name


def _bad(what: str) -> PenstockError:
    return PenstockError(ErrorKind.BAD_PARAMETER, what)
