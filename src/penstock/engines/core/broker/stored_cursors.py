"""The cursors of a store that one process has: all subscriptions of a topic run while it is open."""

import logging
from collections.abc import Collection, Mapping

import msgspec

from penstock.engines.core.ports import CursorChange, Held, OpenedCursor
from penstock.engines.core.topic.topic import Topic
from penstock.engines.subscription.offsets import OffsetSet
from penstock.engines.subscription.store import CursorWriter
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import check_subscription

log = logging.getLogger(__name__)


def _always() -> bool:
    return True


class StoredCursors:
    """`Lease` and `Cursors`. `load` comes before anything else of a topic."""

    def __init__(self) -> None:
        self._loaded: dict[int, dict[str, OpenedCursor]] = {}  # by ledger: what `open` has not returned yet

    async def load(self, topic: Topic) -> None:
        """Read the cursors of a topic that is being opened."""
        loaded: dict[str, OpenedCursor] = {}
        for saved in await topic.store.load_cursors(topic.ledger):
            try:
                check_subscription(saved.subscription)
            except PenstockError as error:
                log.warning(
                    "a subscription of %s stays in the store and is not served: %s", topic.name, error
                )
                continue
            cursor = OffsetSet.load(max(saved.mark, topic.first_offset), saved.chunks)
            properties = msgspec.json.decode(saved.properties or b"{}", type=dict[str, str])
            loaded[saved.subscription] = OpenedCursor(cursor, properties)
        if loaded:
            self._loaded[topic.ledger] = loaded

    def hold(self, topic: Topic) -> Held:
        """The process has all topics."""
        return _always

    def lost(self, topic: Topic) -> PenstockError:
        return PenstockError(ErrorKind.UNAVAILABLE, f"another process has {topic.name}")

    def writer(self, topic: Topic) -> CursorWriter:
        return topic.store

    def has(self, topic: Topic, name: str) -> bool:
        return name in topic.served or name in self._loaded.get(topic.ledger, ())

    def names(self, topic: Topic) -> Collection[str]:
        return [*topic.served, *self._loaded.get(topic.ledger, ())]

    async def open(self, topic: Topic, name: str, *, refreshed: bool) -> OpenedCursor | None:
        loaded = self._loaded.get(topic.ledger)
        found = None if loaded is None else loaded.pop(name, None)
        if not loaded:
            self._loaded.pop(topic.ledger, None)
        return found

    async def create(self, topic: Topic, name: str, mark: int, properties: Mapping[str, str]) -> None:
        kept = msgspec.json.encode(properties)
        await topic.store.save_cursors([CursorChange(topic.ledger, name, mark, {}, kept)])
