"""What is learned of a registry, and that nobody waits for one that is away."""

from typing import Any, cast

import pytest
from tests.support.waiting import until_async

from penstock.engines.kafka.framing import UnknownSchemas
from penstock.engines.kafka.schema_registry.client import Definition, Registered, RegistryClient
from penstock.engines.kafka.schema_registry.learning import Learning
from penstock.engines.kafka.schema_registry.topic import SubjectNames
from penstock.engines.kafka.versions import BY_ID
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.schema import Compatibility
from penstock.runtime.failures import Failures
from penstock.runtime.tasks import Tasks
from penstock.testing.clock import ManualClock

TOPIC = TopicName.parse("t")
AVRO = Definition("AVRO", '{"type":"record","name":"R","fields":[]}')


class Registry:
    """One with subjects of equal versions, which may be away."""

    def __init__(self, **subjects: list[Definition]) -> None:
        self.subjects = {name.replace("_", "-"): held for name, held in subjects.items()}
        self.error: PenstockError | None = None
        self.asked: list[str] = []

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.error is not None:
            raise self.error

    async def answers(self) -> None:
        self._ask("answers")

    async def latest(self, subject: str) -> Registered | None:
        self._ask(f"latest {subject}")
        held = self.subjects.get(subject, [])
        return Registered(100 + len(held), len(held), held[-1]) if held else None

    async def versions(self, subject: str) -> list[int]:
        self._ask(f"versions {subject}")
        return list(range(1, len(self.subjects[subject]) + 1))

    async def version(self, subject: str, number: int) -> Registered | None:
        self._ask(f"version {number} {subject}")
        held = self.subjects.get(subject, [])
        return Registered(100 + number, number, held[number - 1]) if 0 < number <= len(held) else None

    async def strategy(self, subject: str) -> Compatibility:
        self._ask(f"strategy {subject}")
        return Compatibility.FULL

    async def by_id(self, number: int, subject: str) -> Definition | None:
        self._ask(f"id {number}")
        return AVRO if number == 101 else None

    async def versions_of_id(self, number: int) -> dict[str, int]:
        self._ask(f"versions of id {number}")
        return {"t-value": 1}


def learning(registry: Registry) -> Learning:
    names = SubjectNames("topic", lambda topic: topic.local)
    return Learning(
        cast(RegistryClient, cast(Any, registry)), names, ManualClock(), Tasks(), Failures(ManualClock())
    )


async def test_a_version_is_asked_for_once() -> None:
    registry = Registry(t_value=[AVRO, AVRO])
    of = learning(registry)
    await of.learn(TOPIC)
    held = of.topic(TOPIC)
    assert (held.live, held.strategy, held.framing.keyed) == ([1, 2], Compatibility.FULL, False)
    assert held.newest is not None
    assert held.newest.version == 2
    newest, registry.asked = held.newest, []
    await of.learn(TOPIC)
    assert sorted(registry.asked) == ["latest t-key", "latest t-value", "strategy t-value"]
    assert held.newest is newest


async def test_what_is_not_understood_is_asked_for_once(caplog: pytest.LogCaptureFixture) -> None:
    registry = Registry(t_value=[AVRO, Definition("XML", "<a/>")], t_key=[Definition("XML", "<a/>")])
    of = learning(registry)
    await of.learn(TOPIC)
    assert of.topic(TOPIC).live == [1]
    told, registry.asked = len(caplog.records), []
    await of.learn(TOPIC)
    assert len(registry.asked) == 3
    assert len(caplog.records) == told > 0


async def test_pairs_of_key_and_value() -> None:
    of = learning(Registry(t_value=[AVRO], t_key=[AVRO]))
    await of.learn(TOPIC)
    newest = of.topic(TOPIC).newest
    assert newest is not None
    assert newest.schema.type.name == "KEY_VALUE"
    assert of.topic(TOPIC).find(newest.schema) == newest.version


async def test_nobody_waits_for_a_registry_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engines.kafka.schema_registry.learning.AWAY_MS", 5)
    registry = Registry(t_value=[AVRO])
    of = learning(registry)
    await of.learn(TOPIC)
    registry.error = PenstockError(ErrorKind.UNAVAILABLE, "away")
    await of.learn(TOPIC)
    registry.asked.clear()
    await of.learn(TOPIC)
    await of.learn_ids(of.topic(TOPIC), UnknownSchemas([(101).to_bytes(4, "big"), (7).to_bytes(4, "big")]))
    assert set(registry.asked) <= {"answers"}
    values: list[bytes | None] = [b"\0\0\0\0\x07x"]
    assert of.topic(TOPIC).framing.open([None], values, [None]) == [BY_ID + 7]
    with pytest.raises(PenstockError) as caught:
        await of.find(of.topic(TOPIC), BY_ID + 9)
    assert caught.value.kind is ErrorKind.UNAVAILABLE
    registry.error = None
    await until_async(lambda: "id 101" in registry.asked and "id 7" in registry.asked and not of.away)
    await of.learn(TOPIC)
    assert of.topic(TOPIC).known(BY_ID + 101) is not None


async def test_a_refusal_is_not_being_away() -> None:
    registry = Registry()
    registry.error = PenstockError(ErrorKind.FORBIDDEN, "no")
    of = learning(registry)
    await of.learn(TOPIC)
    assert not of.away
    assert of.topic(TOPIC).newest is None


@pytest.mark.parametrize("version", [-1, 1 << 33, 1 << 35, (1 << 35) + (1 << 33), (1 << 53) - 1, 1 << 62])
async def test_numbers_that_are_no_versions(version: int) -> None:
    of = learning(Registry(t_value=[AVRO]))
    await of.learn(TOPIC)
    await of.find(of.topic(TOPIC), version)
    assert of.topic(TOPIC).known(version) is None
