"""Schemas of entries that another process delivers."""

from typing import Any

import pytest

from penstock.engines.kafka.serving.owned import DeliveredSchemas
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName

TOPIC = TopicName.parse("t")


class Stored:
    """Versions that were stored, and those that this process has read."""

    def __init__(self) -> None:
        self.stored = {0, 1}
        self.read = {0}
        self.away = False

    async def catch_up(self) -> None:
        if self.away:
            raise PenstockError(ErrorKind.UNAVAILABLE, "the cluster is away")
        self.read |= self.stored

    def version(self, topic: TopicName, number: int) -> Any:
        if number not in self.read:
            raise PenstockError(ErrorKind.SCHEMA_NOT_FOUND, "no such version")

    async def find_version(self, topic: TopicName, number: int) -> Any:
        return self.version(topic, number)


async def test_a_version_is_read_when_it_is_delivered() -> None:
    stored = Stored()
    schemas = DeliveredSchemas(stored, stored.catch_up)
    assert [schemas.knows(TOPIC, version) for version in (0, 1)] == [True, False]
    stored.away = True
    with pytest.raises(PenstockError, match="away"):
        await schemas.fetch(TOPIC, 1)
    assert not schemas.knows(TOPIC, 1)
    stored.away = False
    await schemas.fetch(TOPIC, 1)
    assert schemas.knows(TOPIC, 1)


async def test_a_version_that_does_not_exist_is_not_waited_for() -> None:
    stored = Stored()
    schemas = DeliveredSchemas(stored, stored.catch_up)
    await schemas.fetch(TOPIC, 7)
    assert schemas.knows(TOPIC, 7)
    assert not schemas.knows(TopicName.parse("other"), 7)
