"""Requests that a configured registry answers: the caller's rights are checked here, and answers show what the caller may see."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.registry import OtherRegistry, RegistryAnswer
from penstock.model.confluent import ConfluentError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.subjects import NOT_PERMITTED, SCHEMA_NOT_FOUND
from penstock.protocols.confluent.content import NOT_FOUND, NOT_FOUND_TEXT
from penstock.protocols.context import ServerContext
from penstock.protocols.http.answers import Answer, to_json
from penstock.protocols.http.paths import segments

from . import operations
from .call import RegistryCall

_PASSED: Final[tuple[str, ...]] = (
    "content-type",
    "accept",
    "confluent-accept-unknown-properties",
    "confluent-client-version",
)


async def pass_on(
    other: OtherRegistry, context: ServerContext, call: RegistryCall, handler: Callable[..., Awaitable[Any]]
) -> Answer:
    """What the configured registry answers, of what the caller may see. Raises UNAVAILABLE, ConfluentError."""
    exchange = call.exchange
    parts = segments(exchange.scope)[1:]
    if any(part in (".", "..") for part in parts):  # such a path would be another one there
        raise ConfluentError(NOT_FOUND, NOT_FOUND_TEXT)
    path = "".join("/" + quote(part, safe="") for part in parts)
    query: str = exchange.scope["query_string"].decode("latin-1")
    headers = {name: exchange.headers[name] for name in _PASSED if name in exchange.headers}
    body = call.body if exchange.method in ("POST", "PUT") else None

    async def asked(method: str, target: str, content: bytes | None) -> RegistryAnswer:
        return await ask(other, method, target, headers, content)

    if context.auth is not None and "id" in call.names:
        await _check_seen(call, asked)
    if handler is operations.register and not (call.administers or updates(context.broker, call.topic)):
        found = await asked("POST", f"/subjects/{quote(call.subject, safe='')}", body)
        if found.status != 200:
            raise ConfluentError(NOT_PERMITTED, "Schema not found and schema auto updating is disabled.")
    found = await asked(exchange.method, f"{path}?{query}" if query else path, body)
    content = found.body
    if context.auth is not None and found.status == 200 and handler in _SHOWN:
        seen = _SHOWN[handler]
        content = to_json([one for one in _list(content) if call.sees(seen(one))])
    return Answer(status=found.status, raw=content, headers={"content-type": found.content_type})


async def ask(
    other: OtherRegistry, method: str, target: str, headers: Mapping[str, str], content: bytes | None
) -> RegistryAnswer:
    """What the configured registry answers. Raises UNAVAILABLE, FORBIDDEN."""
    found = await other.pass_on(method, target, headers, content)
    if found.status == 401:  # the server's credentials are refused, not the caller's
        raise PenstockError(ErrorKind.FORBIDDEN, "the configured schema registry refuses this server")
    return found


def _list(body: bytes) -> list[Any]:
    try:
        return msgspec.json.decode(body, type=list[Any])
    except (msgspec.DecodeError, RecursionError):
        raise unexpected() from None


def _subject(one: Any) -> str:
    """The subject that an item of a list names."""
    try:
        return str(one["subject"])
    except (KeyError, TypeError):
        raise unexpected() from None


def unexpected() -> PenstockError:
    """The error of an answer that does not have the shape of what was asked for."""
    return PenstockError(
        ErrorKind.UNAVAILABLE, "the schema registry answers with something else than asked for"
    )


def updates(broker: Broker, topic: TopicName | None) -> bool:
    """Whether producers may register schemas of a topic, or (None) of a subject of none."""
    policies = None if topic is None else broker.namespaces.find(topic.namespace_name)
    return policies is None or policies.schema_auto_update


async def _check_seen(
    call: RegistryCall, asked: Callable[[str, str, bytes | None], Awaitable[RegistryAnswer]]
) -> None:
    """Raise SCHEMA_NOT_FOUND for the id of a schema of subjects that the caller may not see."""
    context = f"/contexts/{quote(call.context, safe='')}" if "context" in call.names else ""
    subject = call.text("subject")  # it may name another context
    named = f"&subject={quote(subject, safe='')}" if subject else ""
    found = await asked("GET", f"{context}/schemas/ids/{call.id}/versions?deleted=true{named}", None)
    if found.status == 404:  # which it answers for the request, too
        return
    if found.status != 200:
        raise PenstockError(
            ErrorKind.UNAVAILABLE, f"the configured schema registry answers with status {found.status}"
        )
    if not any(call.sees(_subject(one)) for one in _list(found.body)):
        raise ConfluentError(SCHEMA_NOT_FOUND, f"Schema {call.id} not found")


_SHOWN: Final[dict[Callable[..., Awaitable[Any]], Callable[[Any], str]]] = {
    operations.subjects: lambda one: str(one),
    operations.subjects_of: lambda one: str(one),
    operations.schemas: _subject,
    operations.versions_of: _subject,
}
