"""Cursors in the store: what no client waits for is saved together, once a flush time."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import msgspec

from penstock.model.errors import PenstockError
from penstock.runtime.clock import Clock, Timer
from penstock.runtime.tasks import Tasks

from .offsets import OffsetSet
from .store import CursorChange, CursorWriter

log = logging.getLogger(__name__)

CLIENTS_BY_INDEX: Final = "penstock.clients-by-index"  # the name among the stored properties
CLIENTS_BY_INDEX_MAX: Final = 16  # versions of clients that a subscription remembers


class StoredCursor:
    """The part of a subscription that its store keeps, if it is durable: the cursor and the properties.

    `moved` is called when the cursor changed and needs to be saved.
    """

    def __init__(
        self,
        ledger: int,
        name: str,
        cursor: OffsetSet,
        store: CursorWriter | None,
        properties: dict[str, str],
        *,
        tasks: Tasks,
        moved: Callable[[], None],
    ) -> None:
        self.name = name
        self.cursor = cursor
        self.cursors = store
        self.durable = store is not None
        self.deleted = False
        self.properties = dict(properties)
        # Versions of clients that acknowledged part of a batch. They are stored with the properties.
        self.clients_by_index = set(filter(None, self.properties.pop(CLIENTS_BY_INDEX, "").split("\n")))
        self._ledger = ledger
        self._tasks = tasks
        self._moved = moved
        self.failures = 0  # failed saves, ever
        self.saves = 0  # how often its changes were taken to be saved
        self.saves_done = 0  # the changes of so many of the first saves are durable

    async def set_properties(self, properties: dict[str, str]) -> None:
        """Set the properties, durably before they count."""
        hidden = {CLIENTS_BY_INDEX: "\n".join(sorted(self.clients_by_index))}
        stored = properties | hidden if self.clients_by_index else properties
        await self._save(msgspec.json.encode(stored))
        self.properties = properties

    def learn_client(self, version: str) -> None:
        """A client of this version acknowledged part of a batch: from here on batches keep their indexes for it."""
        known = self.clients_by_index
        if version not in known and len(known) < CLIENTS_BY_INDEX_MAX:
            known.add(version)
            self._tasks.spawn(self._save_clients(), f"note a client of {self.name}")

    async def _save_clients(self) -> None:
        try:
            await self.set_properties(self.properties)
        except PenstockError as error:
            log.debug("a client's version is known until the next start only: %s", error)

    async def flush(self) -> None:
        await self._save()

    async def refresh(self) -> None:
        """Nothing to do: the subscription knows its position."""

    async def _save(self, properties: bytes | None = None) -> None:
        while self.cursors is not None and not self.deleted:
            change = self.take_changes()
            change.properties = properties
            save, failures = self.saves, self.failures
            try:
                await self.cursors.save_cursors((change,))
            except PenstockError:
                self.not_saved(change)
                raise
            if self.saved(save, failures):
                return

    def take_changes(self) -> CursorChange:
        """The changes to save now."""
        self.saves += 1
        return CursorChange(self._ledger, self.name, self.cursor.mark, self.cursor.take_changes())

    def saved(self, save: int, failures: int) -> bool:
        """A save succeeded, before which there were so many failures. Whether all changes up to it are durable: if not, an earlier
        save failed with changes that this one lacks."""
        if failures != self.failures:
            return False
        self.saves_done = max(self.saves_done, save)
        return True

    def not_saved(self, change: CursorChange) -> None:
        """A save failed: the next save includes its changes."""
        self.failures += 1
        self.cursor.touch(change.chunks)
        self._moved()

    async def delete_cursor(self) -> None:
        if self.cursors is not None:
            await self.cursors.delete_cursor(self._ledger, self.name)


class CursorFlusher:
    """Collects the subscriptions whose cursors changed and saves them `flush_ms` after the first change."""

    def __init__(
        self, clock: Clock, flush_ms: int, spawn: Callable[[Coroutine[Any, Any, None], str], object]
    ) -> None:
        self._clock = clock
        self._flush_ms = flush_ms
        self._spawn = spawn
        self._dirty: dict[StoredCursor, None] = {}
        self._saving: set[asyncio.Future[None]] = set()  # of each save under way: done when it ended
        self._timer: Timer | None = None

    def dirty(self, changed: StoredCursor) -> None:
        """A cursor changed."""
        if changed.durable:
            self._dirty[changed] = None
            if self._timer is None:
                self._timer = self._clock.call_later(self._flush_ms, self._due)

    def _due(self) -> None:
        self._timer = None
        self._spawn(self._save_dirty(), "save cursors")

    async def flush(self) -> None:
        """Save now; completes when everything given so far is durable, or could not be saved."""
        await self._save_dirty()
        if self._saving:  # what another call took from the dirty ones
            await asyncio.wait(self._saving)

    async def _save_dirty(self) -> None:
        for store in dict.fromkeys(one.cursors for one in self._dirty):
            changed = [one for one in self._dirty if one.cursors is store]
            for one in changed:
                del self._dirty[one]
            # Taken right before the save: a request that saves a cursor earlier saves its changes, too.
            taken = [(one, one.take_changes(), one.saves, one.failures) for one in changed if not one.deleted]
            if store is not None and taken:
                await self._save(store, taken)

    async def _save(
        self, store: CursorWriter, taken: Sequence[tuple[StoredCursor, CursorChange, int, int]]
    ) -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._saving.add(ended)
        try:
            await store.save_cursors([change for _, change, _, _ in taken])
        except PenstockError:
            for one, change, _, _ in taken:
                one.not_saved(change)
        else:
            for one, _, save, failures in taken:
                one.saved(save, failures)
        finally:
            self._saving.discard(ended)
            ended.set_result(None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
