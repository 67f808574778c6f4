"""Which process has a consumer instance: by ids that only the service makes, and what the cluster's clients say is not trusted."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from penstock.broker.fleet import ProcessGoneError
from penstock.engines.fleet.fleet import ProcessFleet
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.secret import Secret
from penstock.protocols import remote_instances as module
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.remote_instances import INSTANCE, RemoteInstances

SECRET = Secret("a secret of sixteen bytes")
TARGET = TopicName.parse("orders"), "s"


class Process:
    """One of several; the cluster shows the properties of some consumers."""

    def __init__(self, secret: Secret | None = SECRET, *shown: Mapping[str, str]) -> None:
        self.broker = self.cluster = self.topics = self
        self.fleet = None if secret is None else ProcessFleet(secret)
        self._shown = shown
        self.remote = RemoteInstances(cast(Any, self))

    def exists(self, name: TopicName) -> bool:
        return False

    async def consumers(self, log: TopicName, subscription: str) -> Sequence[Mapping[str, str]]:
        return self._shown


class Request(Exchange):
    def __init__(self, *headers: tuple[bytes, bytes]) -> None:
        super().__init__({"method": "GET", "path": "/", "headers": list(headers)})


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The processes that requests were passed on to."""
    found: list[str] = []

    async def forward(fleet: object, process: str, *request: object, **more: object) -> None:
        found.append(process)

    monkeypatch.setattr(module, "forward", forward)
    return found


async def test_an_instance_is_found_by_its_id(sent: list[str]) -> None:
    one, other = Process(), Process()
    id_ = one.remote.new_id()
    assert await other.remote.answered(id_, Request())
    assert not await one.remote.answered(id_, Request())
    for unknown in ("x", "", id_[:-1], Process(Secret("another secret, as long")).remote.new_id()):
        assert not await other.remote.answered(unknown, Request())
    assert one.fleet is not None
    assert sent == [one.fleet.id]


async def test_a_request_that_was_passed_on_stays(sent: list[str]) -> None:
    one, other = Process(), Process()
    request = Request((b"penstock-forwarded", b"x"))
    assert not await other.remote.answered(one.remote.new_id(), request)
    assert not await Process(SECRET, one.remote.properties()).remote.answered_by_any(*TARGET, request, b"")
    assert sent == []


async def test_what_clients_of_the_cluster_say_leads_nowhere(sent: list[str]) -> None:
    one = Process()
    assert one.fleet is not None
    other = Process(
        SECRET,
        {},
        {"penstock-url": "http://attacker.example"},
        {INSTANCE: "http://attacker.example"},
        {INSTANCE: ProcessFleet(Secret("another secret, as long")).new_id()},
    )
    assert not await other.remote.answered_by_any(*TARGET, Request(), b"")
    assert sent == []
    copied = Process(SECRET, one.remote.properties())
    assert await copied.remote.answered_by_any(*TARGET, Request(), b"")
    assert sent == [one.fleet.id]


async def test_a_lone_process_has_its_instances_itself(sent: list[str]) -> None:
    one = Process(None)
    assert one.remote.properties() == {}
    for made in (one.remote.new_id(), Process().remote.new_id()):
        assert not await one.remote.answered(made, Request())
    assert sent == []


async def test_a_name_whose_process_has_ended_may_be_that_of_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended, holder, asked = Process(), Process(), Process()
    assert ended.fleet is not None
    assert holder.fleet is not None
    found = []

    async def forward(fleet: object, process: str, *request: object, **more: object) -> None:
        if process == ended.fleet.id:  # type: ignore[union-attr]
            raise ProcessGoneError("it has ended")
        found.append(process)

    async def holder_of(path: str) -> str | None:
        return holder.fleet.id if path == "/mine" else None  # type: ignore[union-attr]

    monkeypatch.setattr(module, "forward", forward)
    monkeypatch.setattr(asked.remote, "holder", holder_of)
    id_ = ended.remote.new_id()
    assert await asked.remote.answered(id_, Request(), path="/mine")
    assert found == [holder.fleet.id]
    for path in ("", "/other"):
        with pytest.raises(PenstockError) as gone:
            await asked.remote.answered(id_, Request(), path=path)
        assert gone.value.kind is ErrorKind.CONSUMER_NOT_FOUND
