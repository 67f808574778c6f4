"""Whether a cluster is reached is asked over a new client after one had no answer: clients that the test makes."""

import asyncio
import gc
import weakref
from collections import deque
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.support.waiting import until_async

from penstock.broker.settings import ClusterSettings
from penstock.engines.kafka.cluster import KafkaCluster
from penstock.engines.kafka.driver.admin import KafkaAdmin
from penstock.model.errors import ErrorKind, PenstockError

NO_ANSWER = KafkaError(KafkaError._TIMED_OUT)


class Fake:
    """An administrator of librdkafka, which gives the same answer for ever: brokers, or an error."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def list_topics(self, topic: str, timeout: float) -> Any:
        if isinstance(self._answer, KafkaError):
            raise KafkaException(self._answer)
        return SimpleNamespace(brokers=self._answer, topics={})

    def describe_cluster(self, **options: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        if isinstance(self._answer, KafkaError):
            future.set_exception(KafkaException(self._answer))
        else:
            nodes = [SimpleNamespace(host="127.0.0.1", port=one) for one in self._answer]
            future.set_result(SimpleNamespace(cluster_id="c", nodes=nodes))
        return future

    def poll(self, timeout_s: float) -> int:
        return 0


@pytest.fixture
async def cluster() -> KafkaCluster:
    return KafkaCluster(ClusterSettings(url="kafka://127.0.0.1:1"))


def gives(cluster: KafkaCluster, *answers: Any) -> deque[weakref.ref[Fake]]:
    """Let the cluster's clients give these answers, one each; returns the clients, as far as they were made."""
    made: deque[weakref.ref[Fake]] = deque()
    left = deque(answers)

    def make(kind: str, on_error: Any = None) -> Any:
        one = Fake(left.popleft())
        made.append(weakref.ref(one))
        return cluster.clients.poll_in_background(one)

    cluster.clients.admin = make  # type: ignore[method-assign]
    return made


@pytest.mark.parametrize("first", [NO_ANSWER, {}], ids=["no answer", "no brokers"])
async def test_after_a_failure_another_client_asks(cluster: KafkaCluster, first: Any) -> None:
    made = gives(cluster, first, {1: "broker"})
    await cluster.look()
    assert cluster.problem is not None
    await cluster.look()
    await cluster.look()
    assert cluster.problem is None
    assert len(made) == 2


async def test_a_client_that_was_left_ends_once_its_requests_have(cluster: KafkaCluster) -> None:
    made = gives(cluster, NO_ANSWER, {1: "broker"})
    admin = KafkaAdmin(cluster.clients, 0.01)
    with pytest.raises(PenstockError) as caught:
        await admin.check_reachable(0.01)
    assert caught.value.kind is ErrorKind.UNAVAILABLE
    del caught

    def ended() -> bool:
        gc.collect()
        return made[0]() is None

    await until_async(ended)
    await admin.check_reachable(10)
    assert made[1]() is not None


async def test_a_call_that_finds_no_thread_is_given_up(
    cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    gives(cluster, {1: "broker"})
    monkeypatch.setattr(
        "penstock.engines.kafka.driver.admin.in_thread",
        lambda *_: asyncio.get_running_loop().create_future(),
    )
    with pytest.raises(PenstockError, match="does not answer") as caught:
        await cluster.admin.check_reachable(0.01)
    assert caught.value.kind is ErrorKind.UNAVAILABLE
