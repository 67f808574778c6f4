"""Reading a compacted topic: an error is said, and the rows after it count."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import Any, ClassVar

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException

from penstock.engines.kafka.driver import shared_log
from penstock.engines.kafka.driver.errors import ClientErrors
from penstock.engines.kafka.driver.record import At
from penstock.engines.kafka.driver.shared_log import CompactedTopic, Row
from penstock.model.formats import Format


class _Record:
    def __init__(self, offset: int, key: bytes = b"", code: int | None = None) -> None:
        self._offset, self._key, self._code = offset, key, code

    def error(self) -> KafkaError | None:
        return None if self._code is None else KafkaError(self._code)

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes:
        return b"value"

    def headers(self) -> None:
        """It has none."""


class _Consumer:
    """A client that gives what the test wants; an exception is raised."""

    given: ClassVar[deque[Any]] = deque()
    begun: ClassVar[list[int]] = []

    def assign(self, places: list[Any]) -> None:
        self.begun.append(places[0].offset)

    def poll(self, timeout_s: float) -> Any:
        if not self.given:
            return None
        one = self.given.popleft()
        if isinstance(one, Exception):
            raise one
        return one

    def consume(self, count: int, timeout_s: float) -> list[Any]:
        return []

    def close(self) -> None:
        """Nothing is open."""


class _Clients:
    """Makes those clients."""

    generation = 0
    timeout_s = 30.0

    def __init__(self) -> None:
        self.clients = self
        self.errors = ClientErrors()

    def producer(self, kind: str, own: object) -> None:
        """Nothing is written."""

    def consumer(self, kind: str, own: object) -> _Consumer:
        return _Consumer()

    def poll_in_background(self, client: Any) -> Any:
        return client

    async def ends(self, places: Sequence[At]) -> dict[At, int]:
        """As an administrator: the log has three records."""
        return {places[0]: 3}

    async def wait_unless_refused(self, waiting: Awaitable[Any]) -> Any:
        return await waiting


async def test_errors_are_said_and_reading_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clients: Any = _Clients()
    monkeypatch.setattr(shared_log, "RETRY_S", 0.001)
    rows: list[Row] = []
    said: list[str | None] = []
    _Consumer.begun.clear()
    _Consumer.given = deque(
        [
            _Record(0, b"a"),
            _Record(0, code=KafkaError.TOPIC_AUTHORIZATION_FAILED),
            _Record(1, b"b"),
            KafkaException(KafkaError(KafkaError._FATAL)),
            _Record(2, b"c"),
        ]
    )
    topic = CompactedTopic(clients, "t", rows.extend, Format, failing=said.append)
    await topic.start()
    await topic.close()
    await asyncio.sleep(0)
    assert [key for key, _ in rows] == ["a", "b", "c"]
    assert [one is None for one in said] == [True, False, True, False, True]
    assert "authorization" in str(said[1]).lower()
    assert _Consumer.begun == [OFFSET_BEGINNING, 2]  # a new client goes on where the first ended
