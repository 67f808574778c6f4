"""What a process asks the owner of a partition for, and what comes of the answer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.broker.fleet import ForwardedRequest, Process, ProcessGoneError
from penstock.engines.attached.link import Moved
from penstock.engines.kafka.serving.others import OwnerAdmin
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.target import Target
from penstock.protocols.http.answers import error_body

TOPIC = TopicName.parse("t").of_partition(2)


class Answer:
    """An answer in parts."""

    headers = ()

    def __init__(self, status: int, *parts: bytes) -> None:
        self.status = status
        self._parts = [*parts, b""]

    async def part(self) -> bytes:
        return self._parts.pop(0)


class Fleet:
    """Answers every request as the test says."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, ForwardedRequest]] = []
        self.answer: Answer | Exception = Answer(204)

    @asynccontextmanager
    async def send(self, process: str, request: ForwardedRequest, head_s: float) -> AsyncIterator[Answer]:
        self.requests.append((process, request))
        if isinstance(self.answer, Exception):
            raise self.answer
        yield self.answer


class Owners:
    """One process owns everything."""

    async def peer(self, topic: TopicName) -> Process:
        assert topic == TOPIC
        return Process(id="b", url="http://127.0.0.1:2")


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
def admin(fleet: Fleet) -> OwnerAdmin:
    owners: Any = Owners()
    any_fleet: Any = fleet
    return OwnerAdmin(owners, any_fleet, 30.0)


async def test_the_owner_is_asked_as_by_a_process(fleet: Fleet, admin: OwnerAdmin) -> None:
    target = Target.of_subscription(TOPIC, "a/b", "resetcursor")
    assert await admin.call("POST", target, body={"ledgerId": 1}, force="true", more="x y") is None
    fleet.answer = Answer(200, b'{"a"', b":1}")
    assert await admin.call("GET", Target.of_topic(TOPIC, "stats")) == {"a": 1}
    (process, post), (_, get) = fleet.requests
    path = b"/admin/v2/persistent/public/default/t-partition-2"
    assert (process, post.method, post.target) == (
        "b",
        b"POST",
        path + b"/subscription/a%2Fb/resetcursor?force=true&more=x%20y",
    )
    assert (post.body, dict(post.headers)) == (
        b'{"ledgerId":1}',
        {b"content-type": b"application/json", b"content-length": b"14"},
    )
    assert (get.target, get.body) == (path + b"/stats", b"")
    assert post.caller.process
    assert get.caller.process


@pytest.mark.parametrize(
    "kind", [ErrorKind.SUBSCRIPTION_NOT_FOUND, ErrorKind.SUBSCRIPTION_BUSY, ErrorKind.UNAVAILABLE]
)
async def test_an_error_of_the_owner_is_its_error(fleet: Fleet, admin: OwnerAdmin, kind: ErrorKind) -> None:
    fleet.answer = Answer(kind.codes.status, error_body(kind, "why"))
    with pytest.raises(PenstockError, match="why") as raised:
        await admin.call("GET", Target.of_topic(TOPIC, "stats"))
    assert raised.value.kind is kind


async def test_an_answer_that_is_not_of_a_process_is_an_error(fleet: Fleet, admin: OwnerAdmin) -> None:
    fleet.answer = Answer(502, b"<html>")
    with pytest.raises(PenstockError) as raised:
        await admin.call("GET", Target.of_topic(TOPIC, "stats"))
    assert raised.value.kind is ErrorKind.INTERNAL
    fleet.answer = ProcessGoneError("it has ended")
    with pytest.raises(Moved):
        await admin.call("GET", Target.of_topic(TOPIC, "stats"))
