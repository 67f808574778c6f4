"""What the other processes of a service say of a topic, and are told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.unit.engines.kafka.serving.test_others_asked import Answer

from penstock.broker.acting import FOR_PROCESS
from penstock.broker.fleet import ForwardedRequest, ProcessGoneError
from penstock.engines.kafka.serving import others as module
from penstock.engines.kafka.serving.others import SILENT_MS, OtherProcesses
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.target import Target
from penstock.protocols.http.answers import error_body
from penstock.testing.clock import ManualClock

TOPIC = TopicName.parse("t")
IDLE: dict[str, Any] = {"publishers": [], "subscriptions": {"s": {"consumers": []}}}


class Fleet:
    """Processes by what each answers; None: it never does."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.requests: list[tuple[str, bytes, bytes]] = []

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        return dict.fromkeys(self.answers, (0, 0))

    @asynccontextmanager
    async def send(self, process: str, request: ForwardedRequest, head_s: float) -> AsyncIterator[Answer]:
        assert request.caller.process
        self.requests.append((process, request.method, request.target))
        answer = self.answers[process]
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        yield Answer(answer[0], answer[1])


def made(fleet: Fleet, clock: ManualClock | None = None) -> OtherProcesses:
    any_fleet: Any = fleet
    return OtherProcesses(any_fleet, clock or ManualClock(), 0.01)


def said(figures: Any) -> tuple[int, bytes]:
    return 200, msgspec.json.encode(figures)


MISSING = 404, error_body(ErrorKind.TOPIC_NOT_FOUND, "missing")
AWAY = PenstockError(ErrorKind.UNAVAILABLE, "connection refused")


async def test_all_are_asked_and_those_that_do_not_answer_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STATS_S", 0.01)
    fleet = Fleet(a=said(IDLE), b=MISSING, c=ProcessGoneError("ended"), d=AWAY, e=None)
    clock = ManualClock()
    others = made(fleet, clock)
    found = await others.stats(TOPIC)
    assert found.stats == [IDLE]
    assert [one.split(":")[0] for one in found.unanswered] == ["process d", "process e"]
    assert {target for _, _, target in fleet.requests} == {b"/admin/v2/persistent/public/default/t/stats"}
    fleet.requests.clear()
    assert await others.stats(TOPIC) == found
    assert [process for process, _, _ in fleet.requests] == ["a", "b", "c"], "not again at once"
    fleet.answers["d"] = said(IDLE)
    await clock.advance(SILENT_MS)
    found = await others.stats(TOPIC)
    assert (len(found.stats), len(found.unanswered)) == (2, 1)


async def test_a_process_that_serves_another_one_asks_nobody() -> None:
    fleet = Fleet(a=said(IDLE))
    token = FOR_PROCESS.set(True)
    try:
        assert (await made(fleet).stats(TOPIC)).stats == []
    finally:
        FOR_PROCESS.reset(token)
    assert fleet.requests == []


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (said({**IDLE, "publishers": [{}]}), ErrorKind.TOPIC_IN_USE),
        (said({**IDLE, "subscriptions": {"s": {"consumers": [{}]}}}), ErrorKind.TOPIC_IN_USE),
        (AWAY, ErrorKind.UNAVAILABLE),
        (None, ErrorKind.UNAVAILABLE),
        (said(IDLE), None),
        (MISSING, None),
        (ProcessGoneError("ended"), None),
    ],
)
async def test_a_topic_is_in_use_at_any_process(answer: Any, kind: ErrorKind | None) -> None:
    others = made(Fleet(a=said(IDLE), b=answer))
    if kind is None:
        await others.check_unused(TOPIC)
        return
    with pytest.raises(PenstockError) as caught:
        await others.check_unused(TOPIC)
    assert caught.value.kind is kind


async def test_all_are_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    fleet = Fleet(a=(204, b""), b=AWAY)
    await made(fleet).tell("DELETE", Target.of_topic(TOPIC), force="true")
    path = b"/admin/v2/persistent/public/default/t?force=true"
    assert fleet.requests == [("a", b"DELETE", path), ("b", b"DELETE", path)]
    assert "connection refused" in caplog.text
