"""What the reader of ends of logs tells their followers of events."""

from typing import Any

import pytest
from confluent_kafka import KafkaError
from tests.support.kafka_clients import FakeClients

from penstock.engines.kafka.driver.tail import TailReader


class Event:
    """An end or an error, or a record."""

    def __init__(self, code: int | None = None) -> None:
        self._code = code

    def error(self) -> KafkaError | None:
        return None if self._code is None else KafkaError(self._code)

    def offset(self) -> int:
        return 7


class Follower:
    def __init__(self) -> None:
        self.said: list[str] = []

    def arrived(self, records: list[Any]) -> None:
        self.said.append(f"{len(records)} records")

    def reached(self, offset: int) -> None:
        self.said.append(f"end {offset}")

    def truncated(self) -> None:
        self.said.append("truncated")

    def lost(self) -> None:
        self.said.append("lost")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (KafkaError._PARTITION_EOF, ["end 7"]),
        (KafkaError._TRANSPORT, []),
        (KafkaError._AUTO_OFFSET_RESET, ["lost"]),
        (KafkaError._LOG_TRUNCATION, ["truncated", "lost"]),
    ],
)
async def test_events_between_records(code: int, said: list[str]) -> None:
    clients: Any = FakeClients(None)
    follower = Follower()
    messages: list[Any] = [Event(), Event(), Event(code), Event()]
    TailReader(clients)._hand(follower, messages)
    assert follower.said == ["2 records", *said, "1 records"]
