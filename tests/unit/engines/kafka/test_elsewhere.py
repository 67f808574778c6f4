"""Consumers that other processes look for: documents, as long as their process is in the group."""

import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec
import pytest

from penstock.engines.kafka import elsewhere
from penstock.engines.kafka.driver.groups import Group, Member
from penstock.engines.kafka.elsewhere import KIND, ShownConsumers
from penstock.engines.kafka.naming import Naming
from penstock.engines.shared.documents import DocumentReader
from penstock.model.names import TopicName

TOPIC = TopicName.parse("orders")
URL = {"penstock-url": "http://one"}


class Documents:
    """`kafka.documents.Documents` of several processes, which hear of each other at once."""

    def __init__(self) -> None:
        self.reader = DocumentReader()
        self.listeners: defaultdict[str, list[Callable[[str, bytes | None], None]]] = defaultdict(list)
        self.stored: dict[str, bytes] = {}

    async def load_meta(self, kind: str) -> dict[str, bytes]:
        assert kind == KIND
        return dict(self.stored)

    async def save_meta(self, documents: Sequence[tuple[str, str, bytes | None]]) -> None:
        for kind, key, value in documents:
            if value is None:
                self.stored.pop(key, None)
            else:
                self.stored[key] = value
            for listener in self.listeners[kind]:
                listener(key, value)

    async def catch_up(self) -> None:
        """Everything is known."""


class Groups:
    """The processes in the group, each with its partitions."""

    def __init__(self) -> None:
        self.members: dict[str, set[int]] = {}

    async def describe(self, group: str) -> Group | None:
        assert group == "p.s"
        return Group(
            "stable",
            tuple(
                Member(f"{name}-1", name, "", frozenset(("orders", one) for one in partitions))
                for name, partitions in self.members.items()
            ),
        )


class Cluster:
    """What processes share."""

    def __init__(self) -> None:
        self.documents = Documents()
        self.groups = Groups()
        self.work: list[Coroutine[Any, Any, None]] = []

    def process(self, name: str) -> ShownConsumers:
        return ShownConsumers(
            self.documents,  # type: ignore[arg-type]
            self.groups,
            name,
            "p.",
            Naming({}),
            lambda work, what: self.work.append(work),
        )


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


async def test_a_consumer_is_seen_while_its_process_is_in_the_group(cluster: Cluster) -> None:
    one, other = cluster.process("one"), cluster.process("other")
    await one.load()
    await other.load()
    await one.show("c", [TOPIC], "s", {**URL, "own": "1"})
    assert await other.of(TOPIC, "s") == []
    cluster.groups.members["one"] = {0}
    assert await other.of(TOPIC, "s") == await one.of(TOPIC, "s") == [URL]
    assert await other.of(TOPIC, "t") == []
    one.hide("c", [TOPIC], "s")
    one.hide("never shown", [TOPIC], "s")
    (removing,) = cluster.work
    await removing
    assert (await other.of(TOPIC, "s"), cluster.documents.stored) == ([], {})


async def test_who_says_nothing_to_others_is_not_stored(cluster: Cluster) -> None:
    one = cluster.process("one")
    await one.show("c", [TOPIC], "s", {"own": "1"})
    assert cluster.documents.stored == {}


async def test_the_process_of_the_partition_comes_first(cluster: Cluster) -> None:
    looking = cluster.process("looking")
    await looking.load()
    for number in range(3):
        cluster.groups.members[f"p{number}"] = {number}
        await cluster.process(f"p{number}").show("c", [TOPIC], "s", {"penstock-url": str(number)})
    for number in range(3):
        found = await looking.of(TopicName.parse(f"orders-partition-{number}"), "s")
        assert found[0] == {"penstock-url": str(number)}
        assert len(found) == 3


async def test_what_processes_left_that_are_gone_is_removed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.groups.members["lives"] = {0}
    for name in ("lives", "gone"):
        await cluster.process(name).show("c", [TOPIC], "s", URL)
    monkeypatch.setattr(elsewhere, "LEFT_MS", -1000)
    started = cluster.process("started")
    await started.load()
    (removing,) = cluster.work
    await removing
    (left,) = cluster.documents.stored.values()
    assert msgspec.json.decode(left)["client_id"] == "lives"
    assert msgspec.json.decode(left)["created_ms"] <= time.time_ns() // 1_000_000


async def test_a_process_that_ends_takes_its_own_along(cluster: Cluster) -> None:
    one, other = cluster.process("one"), cluster.process("other")
    for process in (one, other):
        await process.load()
        await process.show("c", [TOPIC], "s", URL)
    await one.close()
    assert len(cluster.documents.stored) == 1
