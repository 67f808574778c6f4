"""Saving cursors: what nobody waits for goes to the store together, once a flush time."""

from collections.abc import Callable, Coroutine
from typing import Any

from penstock.engines.embedded.ports import CursorChange, CursorStore
from penstock.model.errors import PenstockError
from penstock.runtime.clock import Clock, Timer

from .subscription import Subscription


class CursorFlusher:
    """Collects the subscriptions whose cursors changed and saves them `flush_ms` after the first change."""

    def __init__(
        self, clock: Clock, flush_ms: int, spawn: Callable[[Coroutine[Any, Any, None], str], object]
    ) -> None:
        self._clock = clock
        self._flush_ms = flush_ms
        self._spawn = spawn
        self._dirty: dict[Subscription, None] = {}
        self._timer: Timer | None = None

    def dirty(self, subscription: Subscription) -> None:
        """A subscription's cursor changed."""
        if not subscription.durable:
            return
        self._dirty[subscription] = None
        if self._timer is None:
            self._timer = self._clock.call_later(self._flush_ms, self._due)

    def _due(self) -> None:
        self._timer = None
        self._spawn(self.flush(), "save cursors")

    async def flush(self) -> None:
        """Save now; completes when everything given so far is durable, or could not be saved."""
        by_store: dict[int, tuple[CursorStore, list[tuple[Subscription, CursorChange]]]] = {}
        for subscription in self._dirty:
            if not subscription.deleted:
                store = subscription.cursors
                held = by_store.setdefault(id(store), (store, []))
                held[1].append((subscription, subscription.take_changes()))
        self._dirty.clear()
        for store, saved in by_store.values():
            try:
                await store.save_cursors([change for _, change in saved])
            except PenstockError:
                for subscription, change in saved:
                    subscription.cursor.touch(change.chunks)
                    self.dirty(subscription)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
