"""Listeners of topics: those of all topics, and those of a few."""

from penstock.broker.topic_listeners import TopicListeners
from penstock.model.names import TopicName

ONE, OTHER = TopicName.parse("one"), TopicName.parse("other")


def test_a_listener_is_told_of_its_topics_alone() -> None:
    listeners = TopicListeners()
    every: list[TopicName] = []
    some: list[TopicName] = []
    listeners.add(every.append)
    listeners.add(some.append, (ONE,))
    for name in (ONE, OTHER):
        listeners.tell(name)
    assert (every, some) == ([ONE, OTHER], [ONE])
    for _ in range(2):
        listeners.discard(some.append, (ONE, OTHER))
        listeners.discard(every.append)
    listeners.tell(ONE)
    assert (every, some) == ([ONE, OTHER], [ONE])


def test_a_listener_may_leave_as_it_is_told() -> None:
    listeners = TopicListeners()
    told: list[TopicName] = []

    def once(name: TopicName) -> None:
        told.append(name)
        listeners.discard(once, (ONE,))

    listeners.add(once, (ONE,))
    listeners.add(told.append, (ONE,))
    listeners.tell(ONE)
    listeners.tell(ONE)
    assert told == [ONE, ONE, ONE]
