"""The embedded log shown as a cluster, and the consumers of a group."""

import asyncio
from typing import Any

import pytest
from tests.unit.engines.core.brokers import TOPIC, bench

from penstock.broker.cluster_view import Group, Member
from penstock.protocols.confluent.proxy.broker_view import BrokerView
from penstock.protocols.context import ServerContext


async def test_requests_that_come_first_together_get_one_id(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench() as made:
        documents = made.broker.own_documents
        assert documents is not None
        load = documents.load_meta

        async def slow(kind: str) -> Any:
            found = await load(kind)
            await asyncio.sleep(0)
            return found

        monkeypatch.setattr(documents, "load_meta", slow)
        view = BrokerView(ServerContext(made.broker))
        found = await asyncio.gather(*(view.nodes() for _ in range(5)))
        assert len({one.cluster for one in found}) == 1
        assert (await view.nodes()).cluster == found[0].cluster


def test_the_consumers_of_all_partitions_are_found_in_one_pass() -> None:
    class Once(list):  # type: ignore[type-arg]
        def __contains__(self, place: object) -> bool:
            raise AssertionError("it is searched")

    first = Member("a", partitions=Once([(TOPIC, 0), (TOPIC, 2)]))
    second = Member("b", partitions=Once([(TOPIC, 1), (TOPIC, 2)]))
    owners = Group("g", "STABLE", "CLASSIC", members=[first, second]).owners()
    assert owners == {(TOPIC, 0): first, (TOPIC, 1): second, (TOPIC, 2): first}
