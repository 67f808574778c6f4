"""What is learned of a cluster's topics: when it is asked, which differences a listing makes, and how much work that is."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.engines.shared import catalog, name_list
from penstock.engines.shared.catalog import Catalog, Described
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, NamespaceName, TopicName
from penstock.model.policy import AutoTopics
from penstock.runtime import tasks
from penstock.testing.clock import ManualClock

ORDERS, NEW, OTHER = (TopicName.parse(name) for name in ("orders", "new", "other"))
LEARNED_MS = 100
MANY = 10_000


class Log:
    """A log that was opened."""

    def __init__(self, name: TopicName, clock: ManualClock) -> None:
        self.name = name
        self.used_ms = clock.monotonic_ms()
        self.in_use = self.deleted = False
        self.ended: bool | None = None  # with `deleted`

    def sweep(self) -> None:
        """Nothing is read."""

    def end(self, *, deleted: bool) -> None:
        self.ended = self.deleted = deleted


class Topics(Catalog[Any]):
    """Of a cluster that lists the topics of each namespace; counts what it is asked, and each name that is worked on."""

    unpartitioned = 0
    lists_all = False

    def __init__(self) -> None:
        self.clock = ManualClock()
        namespaces: Any = SimpleNamespace(exists=lambda name: True)
        super().__init__(namespaces, self.clock, LEARNED_MS)
        self.there: dict[str, Described] = {}
        self.asked = self.listings = self.worked = 0
        self.more: list[TopicName] = []
        self.away = False
        self.while_listing = lambda: None
        self.changed: list[TopicName] = []
        self.listeners.add(self.changed.append)

    def have(self, name: TopicName, id_: str, partitions: int = 0) -> None:
        self.there[str(name)] = Described(id_, partitions)

    def pass_time(self) -> None:
        self.clock.turn(LEARNED_MS)

    async def _describe(self, name: TopicName) -> Described | None:
        self.asked += 1
        self._check()
        return self.there.get(str(name))

    async def _list(self, namespace: NamespaceName | None) -> Mapping[str, int]:
        self.listings += 1
        self._check()
        listed = {
            text: one.partitions
            for text, one in self.there.items()
            if TopicName.parse(text).namespace_name == namespace
        }
        self.while_listing()
        return listed

    def _check(self) -> None:
        if self.away:
            raise PenstockError(ErrorKind.UNAVAILABLE, "away")

    def _name_of(self, text: str) -> TopicName | None:
        self.worked += 1
        return None if "hidden" in text else TopicName.parse(text)

    async def _learn_more(self, name: TopicName) -> None:
        self.more.append(name)

    async def _new(self, name: TopicName) -> Log:
        return Log(name, self.clock)

    def auto(self, name: TopicName) -> AutoTopics:
        return AutoTopics(False)

    async def create(
        self, name: TopicName, partitions: int, properties: dict[str, str] | None = None
    ) -> None:
        """Nothing is created."""


@pytest.fixture
def topics() -> Topics:
    return Topics()


async def test_a_topic_is_asked_for_once_in_a_while(topics: Topics) -> None:
    await topics.learn(ORDERS)
    assert not topics.exists(ORDERS)
    topics.have(ORDERS, "a")
    await topics.learn(ORDERS)
    assert (topics.asked, topics.exists(ORDERS), topics.more) == (1, False, [])
    topics.pass_time()
    await topics.learn(ORDERS)
    assert (topics.exists(ORDERS), topics.more) == (True, [ORDERS])


async def test_what_became_of_a_topic_is_told_and_ends_its_log(topics: Topics) -> None:
    topics.have(ORDERS, "a", 2)
    await topics.learn(ORDERS)
    assert topics.changed == []  # nothing was known of it
    ended: list[bool | None] = []
    for there, ends, changes in (
        (Described("a", 3), None, 1),  # it grew
        (Described("b", 3), True, 2),  # made again
        (Described("b", 3), None, 2),  # the same
        (None, True, 3),
    ):
        (log, *_) = await topics.all_of(ORDERS, create=False)
        topics.there.pop(str(ORDERS))
        if there is not None:
            topics.there[str(ORDERS)] = there
        topics.pass_time()
        await topics.learn(ORDERS)
        assert (log.ended, len(topics.changed)) == (ends, changes)
        ended.append(log.ended)
    assert not topics.exists(ORDERS)
    assert len(topics.open_topics) == 0


async def test_the_last_answer_counts_while_the_cluster_is_away(topics: Topics) -> None:
    topics.have(ORDERS, "a", 2)
    await topics.learn(ORDERS)
    topics.pass_time()
    topics.away = True
    await topics.learn(ORDERS)
    assert topics.partitions(ORDERS) == 2
    with pytest.raises(PenstockError) as caught:
        await topics.learn(OTHER)
    assert caught.value.kind is ErrorKind.UNAVAILABLE


async def test_a_listing_tells_of_topics_that_came_grew_and_went(topics: Topics) -> None:
    topics.have(ORDERS, "a")
    topics.have(OTHER, "o")
    await topics.learn_names(DEFAULT_NAMESPACE)
    assert topics.names(DEFAULT_NAMESPACE) == [ORDERS, OTHER]
    assert topics.changed == []  # there were no others to compare with
    await topics.learn_names(DEFAULT_NAMESPACE)
    assert topics.listings == 1
    topics.have(ORDERS, "a", 3)
    topics.have(NEW, "n")
    del topics.there[str(OTHER)]
    topics.pass_time()
    await topics.learn_names(DEFAULT_NAMESPACE)
    assert sorted(topics.changed) == [NEW, ORDERS, OTHER]
    assert topics.names(DEFAULT_NAMESPACE) == [NEW, ORDERS]
    assert (topics.partitions(ORDERS), topics.exists(OTHER)) == (3, False)
    assert sum(len(topics.logs(name)) for name in topics.names(DEFAULT_NAMESPACE)) == 4


async def test_an_open_topic_that_is_not_listed_is_asked_for_before_it_is_gone(topics: Topics) -> None:
    topics.have(ORDERS, "a")
    log = await topics.get(ORDERS)
    await topics.learn_names(DEFAULT_NAMESPACE)
    del topics.there[str(ORDERS)]
    topics.pass_time()
    await topics.learn_names(DEFAULT_NAMESPACE)
    assert (topics.names(DEFAULT_NAMESPACE), topics.exists(ORDERS), log.ended) == ([], True, None)
    await topics.learn(ORDERS)
    assert (topics.exists(ORDERS), log.ended) == (False, True)
    topics.have(ORDERS, "b")
    topics.pass_time()
    await topics.learn_names(DEFAULT_NAMESPACE)
    assert topics.names(DEFAULT_NAMESPACE) == [ORDERS]


async def test_an_answer_counts_more_than_a_listing_that_began_before(topics: Topics) -> None:
    topics.have(ORDERS, "a")
    await topics.learn_names(DEFAULT_NAMESPACE)
    topics.pass_time()

    def change() -> None:
        topics.put(ORDERS, None)
        topics.put(NEW, Described("n", 0))

    topics.while_listing = change
    await topics.learn_names(DEFAULT_NAMESPACE)
    assert topics.names(DEFAULT_NAMESPACE) == [NEW]
    topics.while_listing = lambda: None
    topics.pass_time()
    await topics.learn_names(DEFAULT_NAMESPACE)
    assert topics.names(DEFAULT_NAMESPACE) == [ORDERS]  # it was made again


async def test_names_by_domain_in_order(topics: Topics) -> None:
    names = [TopicName.parse(f"{domain}://public/default/{local}") for domain in ("persistent", "non-persistent") for local in ("b", "a")]  # fmt: skip
    for name in names:
        topics.have(name, "")
    await topics.learn_names(DEFAULT_NAMESPACE)
    assert topics.names(DEFAULT_NAMESPACE) == sorted(names)
    assert [one.local for one in topics.names(DEFAULT_NAMESPACE, "persistent")] == ["a", "b"]
    assert {one.domain for one in topics.names(DEFAULT_NAMESPACE, "non-persistent")} == {"non-persistent"}


async def test_a_topic_without_clients_is_closed_after_a_while(topics: Topics) -> None:
    topics.have(ORDERS, "a")
    topics.have(OTHER, "o")
    unused, used = await topics.get(ORDERS), await topics.get(OTHER)
    used.in_use = True
    topics.clock.turn(catalog.UNUSED_MS + 1)
    await topics.sweep()
    assert (topics.open_topics, unused.ended) == ([used], False)


async def test_work_follows_changes_and_not_the_number_of_topics(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = 0
    order = name_list._ORDER

    def counting(name: TopicName) -> Any:
        nonlocal compared
        compared += 1
        return order(name)

    monkeypatch.setattr(name_list, "_ORDER", counting)
    for number in range(MANY):
        topics.there[f"persistent://public/default/t{number * 7919 % MANY:05}"] = Described("", 0)
        topics.there[f"persistent://public/default/hidden{number}"] = Described("", 0)
    await topics.learn_names(DEFAULT_NAMESPACE)
    assert topics.worked == 2 * MANY
    assert compared < 20 * MANY  # log2(MANY) is 13.3
    names = topics.names(DEFAULT_NAMESPACE)
    assert names == sorted(names)
    assert len(names) == MANY
    # Listed again with two changes; then changes of this process, after which nothing is listed again.
    topics.worked = compared = 0
    topics.have(NEW, "n")
    del topics.there[str(names[0])]
    topics.pass_time()
    await topics.learn_names(DEFAULT_NAMESPACE)
    topics.put(ORDERS, Described("o", 0))
    topics.put(names[1], None)
    await topics.learn_names(DEFAULT_NAMESPACE)
    assert topics.worked < 10
    assert compared < 100
    assert topics.listings == 2
    assert topics.names(DEFAULT_NAMESPACE) == sorted([NEW, ORDERS, *names[2:]])


async def test_the_loop_goes_on_between_the_topics_of_a_listing(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "SLICE_S", 0.0)  # each step uses it up
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    for number in range(100):
        topics.there[f"persistent://public/default/t{number}"] = Described("", 0)
    counting = tasks.Tasks()
    counting.spawn(count(), "count")
    await topics.learn_names(DEFAULT_NAMESPACE)
    await counting.close()
    assert turns > 90


async def test_a_namespace_is_listed_once_for_all_that_wait(topics: Topics) -> None:
    topics.have(ORDERS, "a")
    await asyncio.gather(*(topics.learn_names(DEFAULT_NAMESPACE) for _ in range(5)))
    assert topics.listings == 1
