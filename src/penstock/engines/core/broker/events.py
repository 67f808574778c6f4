"""Events of topics, and the parts of the broker that act on them."""

from collections.abc import Awaitable, Callable

from penstock.broker.topics import TopicObserver
from penstock.engines.core.topic.topic import Topic

Act = Callable[[Topic], None]
Work = Callable[[Topic], Awaitable[object]]


class TopicEvents:
    """`TopicListener` of every topic: calls the parts that were added, in their order, then the endpoints' observers."""

    def __init__(self) -> None:
        self.observers: list[TopicObserver] = []
        self._opened: list[Work] = []
        self._appended: list[Act] = []
        self._over_quota: list[Act] = []
        self._deleted: list[Work] = []

    def add(
        self,
        *,
        opened: Work | None = None,
        appended: Act | None = None,
        over_quota: Act | None = None,
        deleted: Work | None = None,
    ) -> None:
        """Have a part called; see `TopicListener` for what each call means."""
        self._opened += [] if opened is None else [opened]
        self._appended += [] if appended is None else [appended]
        self._over_quota += [] if over_quota is None else [over_quota]
        self._deleted += [] if deleted is None else [deleted]

    async def opened(self, topic: Topic) -> None:
        for call in self._opened:
            await call(topic)
        for observer in self.observers:
            observer.opened(topic)

    def appended(self, topic: Topic) -> None:
        for call in self._appended:
            call(topic)

    def over_quota(self, topic: Topic) -> None:
        for call in self._over_quota:
            call(topic)

    async def trimming(self, topic: Topic, before_entry: int) -> None:
        for observer in self.observers:
            await observer.trimming(topic, before_entry)

    async def deleted(self, topic: Topic) -> None:
        for call in self._deleted:
            await call(topic)
        for observer in self.observers:
            await observer.deleted(topic)
