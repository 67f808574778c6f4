"""The admin REST of the processes that own partitions, as this process asks it for itself."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.broker.fleet import Caller, Fleet, ForwardedAnswer, ForwardedRequest, Header, ProcessGoneError
from penstock.client.admin_requests import query_text
from penstock.engines.attached.link import Moved
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.target import Target

from .links import Owners

ANSWER_BYTES_MAX: Final = 64 << 20
_KINDS: Final = {kind.codes.code: kind for kind in reversed(ErrorKind)}  # of two with one code, the first


class _Refusal(msgspec.Struct):
    """What is read of the answer to a request that failed."""

    error_code: int = ErrorKind.INTERNAL.codes.code
    message: str = ""


class OwnerAdmin:
    """`attached.Admin` of the owner of each partition. `answer_s`: for how long an answer is waited for."""

    def __init__(self, owners: Owners, fleet: Fleet | None, answer_s: float) -> None:
        self._owners = owners
        self._fleet = fleet
        self._answer_s = answer_s

    async def call(self, method: str, target: Target, *, body: Any = None, **query: object) -> Any:
        """One call about a topic without partitions, or a partition. Raises what the owner answers, `Moved` if it is not the owner
        any more, and UNAVAILABLE."""
        topic = _topic_of(target)
        process = await self._owners.peer(topic)
        if self._fleet is None:
            raise Moved(topic)
        try:
            return await ask(self._fleet, process.id, self._answer_s, method, target, body, query)
        except ProcessGoneError:
            raise Moved(topic) from None


async def ask(
    fleet: Fleet,
    process: str,
    answer_s: float,
    method: str,
    target: Target,
    body: Any = None,
    query: Mapping[str, object] | None = None,
) -> Any:
    """One call to another process. Raises what it answers, ProcessGoneError, and UNAVAILABLE if it does not answer."""
    text = query_text((key, str(value)) for key, value in (query or {}).items())
    content = b"" if body is None else msgspec.json.encode(body)
    headers: list[Header] = [(b"content-length", b"%d" % len(content))]
    if content:
        headers.append((b"content-type", b"application/json"))
    request = ForwardedRequest(
        method=method.encode(),
        target=(f"{target.path}?{text}" if text else target.path).encode(),
        headers=headers,
        body=content,
        caller=Caller(process=True),
    )
    async with fleet.send(process, request, answer_s) as answer:
        found = await _content(answer)
    if answer.status >= 400:
        raise _error(found)
    return msgspec.json.decode(found) if found else None


def _topic_of(target: Target) -> TopicName:
    _, _, domain, tenant, namespace, local, *_ = target.segments
    return TopicName.of(domain, tenant, namespace, local)


async def _content(answer: ForwardedAnswer) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := await answer.part():
        parts.append(part)
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            raise PenstockError(ErrorKind.UNAVAILABLE, "the answer of another process is too long")
    return b"".join(parts)


def _error(content: bytes) -> PenstockError:
    try:
        refusal = msgspec.json.decode(content, type=_Refusal)
    except (msgspec.DecodeError, UnicodeDecodeError):
        refusal = _Refusal(message="another process failed, and does not say why")
    return PenstockError(_KINDS.get(refusal.error_code, ErrorKind.INTERNAL), refusal.message)
