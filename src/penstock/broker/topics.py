"""Which topics there are, and how they are opened and changed."""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from penstock.broker.topic_listeners import TopicListeners
from penstock.model.errors import PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.model.policy import AutoTopics

from .topic import Topic


class TopicDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored properties of a topic. No partitions (0): the topic is one log itself."""

    partitions: int = 0
    terminated: bool = False
    properties: dict[str, str] = {}


class TopicObserver(Protocol):
    """What an endpoint that keeps something about each log does as logs come, shrink and go."""

    def opened(self, topic: Topic) -> None:
        """The topic is about to be used for the first time since the start."""

    async def trimming(self, topic: Topic, before_entry: int) -> None:
        """The entries before `before_entry` are deleted once this completes."""

    async def deleted(self, topic: Topic) -> None:
        """The topic and its log are deleted."""


class Topics(Protocol):
    """Which topics there are, as far as the engine knows at once or has learned. They are opened when they are first used."""

    listeners: TopicListeners
    observers: list[TopicObserver]

    @property
    def open_topics(self) -> Sequence[Topic]: ...
    @property
    def tail_bytes(self) -> int:
        """What the newest entries take in memory, all topics together."""

    async def get(self, name: TopicName, *, create: bool | None = None) -> Topic:
        """The one log of `name`: a topic without partitions, or a partition; created as configured unless `create`.

        Raises TOPIC_NOT_FOUND, PARTITION_NOT_FOUND; BAD_PARAMETER for a partitioned topic as a whole.
        """

    async def all_of(self, name: TopicName, *, create: bool | None = None) -> Sequence[Topic]:
        """Every log of a topic, in the order of the partitions; creates it as `get` does."""

    async def create(
        self, name: TopicName, partitions: int, properties: dict[str, str] | None = None
    ) -> None:
        """Create a topic; raises ALREADY_EXISTS, BAD_PARAMETER, TOO_MANY_TOPICS, NAMESPACE_NOT_FOUND."""

    async def set_properties(
        self, name: TopicName, change: Callable[[dict[str, str]], dict[str, str]]
    ) -> None:
        """Set the properties of a topic by what they are now, durably; raises TOPIC_NOT_FOUND."""

    async def terminate(self, name: TopicName) -> Sequence[Topic]:
        """Let no message follow; returns the topic's logs. A partition ends with its whole topic."""

    def document(self, name: TopicName) -> TopicDocument | None:
        """The stored properties of a topic (of its base, for a partition)."""

    def exists(self, name: TopicName) -> bool:
        """Whether there is such a topic or partition."""

    def missing(self, name: TopicName) -> PenstockError:
        """The error of a topic that does not exist."""

    def partitions(self, name: TopicName) -> int:
        """The number of partitions, 0 for a topic without; raises TOPIC_NOT_FOUND."""

    def names(self, namespace: NamespaceName, domain: str | None = None) -> list[TopicName]:
        """The topics of a namespace, partitioned ones by their own name, sorted."""

    def logs(self, name: TopicName) -> list[TopicName]:
        """The names of a topic's logs: its partitions', or its own; raises TOPIC_NOT_FOUND."""

    def auto(self, name: TopicName) -> AutoTopics:
        """Whether a topic that does not exist is created when it is first used, in a namespace that exists; a
        partition never is."""

    async def learn(self, name: TopicName, *, whole: bool = False) -> None:
        """Learn what the cluster knows of a topic: whether it is there, its partitions, its newest schema and policies; the
        `whole`: also the present bounds of its logs, and its subscriptions, as administrators see them.

        At most once in a short while, and nothing if the engine is its own cluster. A topic that is not there is
        no error here. Raises UNAVAILABLE while the cluster cannot be asked, and what it refuses.
        """

    async def learn_names(self, namespace: NamespaceName) -> None:
        """Learn from the cluster which topics a namespace has."""
