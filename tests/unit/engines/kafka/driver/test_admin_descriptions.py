"""Which topics share a request for their descriptions, with requests that the test answers."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future

import pytest
from tests.support.waiting import until_async

from penstock.engines.kafka.driver import admin as module
from penstock.engines.kafka.driver.admin import Descriptions


class Cluster:
    """Requests in order: futures by topic. A request with `bad` among its topics cannot be sent."""

    def __init__(self) -> None:
        self.requests: list[Mapping[str, Future[str]]] = []

    def ask(self, topics: Sequence[str]) -> Mapping[str, Future[str]]:
        if "bad" in topics:
            raise ValueError("bad")
        self.requests.append({topic: Future() for topic in topics})
        return self.requests[-1]

    @property
    def topics(self) -> list[list[str]]:
        return [list(request) for request in self.requests]

    def answer(self, number: int) -> None:
        for topic, future in self.requests[number].items():
            future.set_result(f"{topic} in {number}")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


async def test_topics_that_are_asked_for_during_a_request_share_the_next_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GATHER_S", 3600)
    found = Descriptions(cluster.ask)
    first = [found.find("a"), found.find("b")]
    await until_async(lambda: cluster.requests)
    assert cluster.topics == [["a", "b"]]
    later = [found.find("a"), found.find("c"), found.find("c")]
    cluster.answer(0)
    assert await asyncio.gather(*first) == ["a in 0", "b in 0"]
    await until_async(lambda: len(cluster.requests) > 1)
    assert cluster.topics[1:] == [["a", "c"]]
    cluster.answer(1)
    assert await asyncio.gather(*later) == ["a in 1", "c in 1", "c in 1"]


async def test_a_request_without_an_answer_holds_up_the_next_one_for_a_moment_only(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GATHER_S", 0.001)
    found = Descriptions(cluster.ask)
    found.find("a")
    await until_async(lambda: cluster.requests)
    second = found.find("b")
    await until_async(lambda: len(cluster.requests) > 1)
    cluster.answer(1)
    assert await second == "b in 1"


async def test_a_topic_that_cannot_be_asked_for_leaves_the_others_alone(cluster: Cluster) -> None:
    found = Descriptions(cluster.ask)
    good, bad, other = found.find("good"), found.find("bad"), found.find("other")
    with pytest.raises(ValueError, match="bad"):
        await bad
    for number, request in enumerate(cluster.requests):
        for future in request.values():
            if "other" in request:
                future.set_exception(LookupError(number))
            else:
                future.set_result("found")
    assert await good == "found"
    with pytest.raises(LookupError):
        await other
