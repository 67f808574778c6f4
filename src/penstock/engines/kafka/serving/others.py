"""The other processes of the service, asked over their admin REST: the owner of a partition, or all about a topic."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.broker.acting import FOR_PROCESS
from penstock.broker.cluster import Elsewhere
from penstock.broker.fleet import Caller, Fleet, ForwardedAnswer, ForwardedRequest, Header, ProcessGoneError
from penstock.client.admin_requests import query_text
from penstock.engines.attached.link import Moved
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.target import Target
from penstock.runtime.clock import Clock

from .links import Owners

log = logging.getLogger(__name__)

ANSWER_BYTES_MAX: Final = 64 << 20
_KINDS: Final = {kind.codes.code: kind for kind in reversed(ErrorKind)}  # of two with one code, the first
AT_ONCE: Final = 16  # requests of this process
STATS_S: Final = 3.0  # for the figures of a process: without them those of the journal are shown
SILENT_MS: Final = 10_000  # for so long a process is not asked again for figures after it did not answer
_MISSING: Final = (ErrorKind.TOPIC_NOT_FOUND, ErrorKind.PARTITION_NOT_FOUND, ErrorKind.NAMESPACE_NOT_FOUND)


class _Refusal(msgspec.Struct):
    """The used part of the answer to a failed request."""

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


class OtherProcesses:
    """`fleet` knows them; None: this process knows no others. `answer_s`: for how long an answer is waited for."""

    def __init__(self, fleet: Fleet | None, clock: Clock, answer_s: float) -> None:
        self._fleet = fleet
        self._clock = clock
        self._answer_s = answer_s
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._silent: dict[str, tuple[int, str]] = {}  # by process: when it did not answer, and why

    async def stats(self, topic: TopicName) -> Elsewhere:
        """The figures of a topic that the others count."""
        return await self._stats(topic, STATS_S, again=False)

    async def check_unused(self, topic: TopicName) -> None:
        """Raise TOPIC_IN_USE if a process has producers or consumers of a topic, and UNAVAILABLE if one does not answer."""
        found = await self._stats(topic, self._answer_s, again=True)
        for said in found.stats:
            consumers = any(one.get("consumers") for one in said.get("subscriptions", {}).values())
            if said.get("publishers") or consumers:
                raise PenstockError(
                    ErrorKind.TOPIC_IN_USE,
                    f"{topic} has active producers or consumers at another process; delete it with force",
                )
        if found.unanswered:
            raise PenstockError(
                ErrorKind.UNAVAILABLE,
                f"whether {topic} has producers or consumers is not known ({found.unanswered[0]}); "
                "repeat the request, or delete it with force",
            )

    async def tell(self, method: str, target: Target, **query: object) -> None:
        """Have every other process do the same; one that does not answer is logged."""
        _, unanswered = await self._ask_all(method, target, query, self._answer_s, again=True)
        for reason in unanswered:
            log.info("%s %s did not reach all processes: %s", method, target.path, reason)

    async def _stats(self, topic: TopicName, answer_s: float, *, again: bool) -> Elsewhere:
        return Elsewhere(
            *await self._ask_all("GET", Target.of_topic(topic, "stats"), {}, answer_s, again=again)
        )

    async def _ask_all(
        self, method: str, target: Target, query: Mapping[str, object], answer_s: float, *, again: bool
    ) -> tuple[list[Any], list[str]]:
        """The answers, and why some processes gave none. `again`: ask also those that did not answer lately."""
        fleet = self._fleet
        if fleet is None or FOR_PROCESS.get():
            return [], []
        processes = list(fleet.counts)
        self._silent = {one: said for one, said in self._silent.items() if one in fleet.counts}
        results = await asyncio.gather(
            *(self._ask(fleet, one, method, target, query, answer_s, again=again) for one in processes)
        )
        answers = [one for one in results if one is not None and not isinstance(one, str)]
        return answers, [one for one in results if isinstance(one, str)]

    async def _ask(
        self,
        fleet: Fleet,
        process: str,
        method: str,
        target: Target,
        query: Mapping[str, object],
        answer_s: float,
        *,
        again: bool,
    ) -> Any:
        """The answer, or the reason of a failure as text; None if the process has ended, or has nothing of that topic."""
        now = self._clock.monotonic_ms()
        since, reason = self._silent.get(process, (now - SILENT_MS, ""))
        if now - since < SILENT_MS and not again:
            return reason
        try:
            async with self._slots, asyncio.timeout(answer_s):
                found = await ask(fleet, process, answer_s, method, target, query=query)
        except ProcessGoneError:
            return None
        except (PenstockError, TimeoutError) as error:
            if isinstance(error, PenstockError) and error.kind in _MISSING:
                return None
            what = error.message if isinstance(error, PenstockError) else f"no answer within {answer_s:g} s"
            reason = f"process {process}: {what}"
            self._silent[process] = now, reason
            return reason
        self._silent.pop(process, None)
        return found
