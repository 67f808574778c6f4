"""Where partitions begin and end, asked of consumers that the test makes."""

from collections import deque
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.engines.kafka.driver.positions import END, Offsets

PLACE = ("orders", 0)


class Consumer:
    """Gives the answers in turn: an offset, or an error."""

    def __init__(self, answers: deque[int | KafkaError]) -> None:
        self._answers = answers
        self.polls = 0

    def offsets_for_times(self, wanted: Sequence[Any], timeout: float) -> list[Any]:
        answer = self._answers.popleft()
        if isinstance(answer, KafkaError):
            raise KafkaException(answer)
        return [SimpleNamespace(topic=one.topic, partition=0, error=None, offset=answer) for one in wanted]

    def poll(self, timeout: float) -> None:
        self.polls += 1


class Clients:
    """Makes those consumers."""

    generation = 0

    def __init__(self, *answers: int | KafkaError) -> None:
        self.made: list[Consumer] = []
        self._answers = deque(answers)

    def consumer(self, kind: str, own: object) -> Consumer:
        self.made.append(Consumer(self._answers))
        return self.made[-1]


def offsets_of(clients: Clients) -> Offsets:
    made: Any = clients
    return Offsets(made, 1.0, committed=True)


def test_a_lookup_that_succeeds_waits_for_no_poll() -> None:
    clients = Clients(7, KafkaError(KafkaError.LEADER_NOT_AVAILABLE), 8)
    offsets = offsets_of(clients)
    assert offsets.at([PLACE], END) == {PLACE: 7}
    assert [one.polls for one in clients.made] == [0]
    with pytest.raises(KafkaException):
        offsets.at([PLACE], END)
    assert [one.polls for one in clients.made] == [1]  # its errors are reported
    assert offsets.at([PLACE], END) == {PLACE: 8}
    assert [one.polls for one in clients.made] == [1]


def test_both_bounds_are_asked_for_by_one_consumer() -> None:
    clients = Clients(3, 8)
    assert offsets_of(clients).bounds([PLACE]) == {PLACE: (3, 8)}
    assert len(clients.made) == 1


@pytest.mark.parametrize(
    "failure", [KafkaError(KafkaError._TRANSPORT), -1], ids=["raised", "without an offset"]
)
def test_a_consumer_that_reached_no_broker_is_used_no_more(failure: int | KafkaError) -> None:
    clients = Clients(failure, 8)
    offsets = offsets_of(clients)
    with pytest.raises(KafkaException):
        offsets.at([PLACE], END)
    assert offsets.at([PLACE], END) == {PLACE: 8}
    assert [one.polls for one in clients.made] == [1, 0]


def test_after_a_change_of_credentials_another_consumer_asks() -> None:
    clients = Clients(7, 8, 9)
    offsets = offsets_of(clients)
    offsets.at([PLACE], END)
    clients.generation += 1
    offsets.at([PLACE], END)
    offsets.at([PLACE], END)
    assert len(clients.made) == 2
