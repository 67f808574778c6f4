"""Watches of a namespace's topics that are created, grow and are deleted, by a pattern over their names.

A change is matched against each pattern once, however many watch by it, and nothing but the changed name is matched:
the work of a change does not grow with the topics that there are. It is done in slices of time, by one task.
"""

import logging
from collections.abc import Callable

from penstock.broker.names import matched_name
from penstock.broker.watches import Watch
from penstock.model.names import NamespaceName, TopicName
from penstock.runtime.patterns import Pattern
from penstock.runtime.tasks import Slices, Tasks

log = logging.getLogger(__name__)


class Watches:
    """All of a broker."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        # In the order of their beginning; groups that are empty go.
        self._groups: dict[NamespaceName, dict[str, dict[Watch, None]]] = {}
        self._changed: dict[TopicName, None] = {}  # still to be matched, each once
        self._busy = False

    def add(self, namespace: NamespaceName, pattern: Pattern, callback: Callable[[TopicName], None]) -> Watch:
        """As `broker.WatchTopics`."""
        watch = Watch(namespace, pattern, callback, self._remove)
        self._groups.setdefault(namespace, {}).setdefault(pattern.text, {})[watch] = None
        return watch

    def _remove(self, watch: Watch) -> None:
        groups = self._groups[watch.namespace]
        group = groups[watch.pattern.text]
        del group[watch]
        if not group:
            del groups[watch.pattern.text]
        if not groups:
            del self._groups[watch.namespace]

    def changed(self, name: TopicName) -> None:
        """A topic came, grew or went."""
        if name.namespace_name not in self._groups:
            return
        self._changed[name] = None
        if not self._busy:
            self._busy = True
            self._tasks.spawn(self._tell(), "tell of changed topics")

    async def _tell(self) -> None:
        slices = Slices()
        try:
            while self._changed:
                name = next(iter(self._changed))
                del self._changed[name]
                text = matched_name(name)
                for group in list(self._groups.get(name.namespace_name, {}).values()):
                    await slices.step()
                    if group and next(iter(group)).pattern.fullmatch(text):
                        await self._tell_group(group, name, slices)
        finally:
            self._busy = False

    async def _tell_group(self, group: dict[Watch, None], name: TopicName, slices: Slices) -> None:
        for watch in list(group):
            await slices.step()
            if not watch.active:  # since it was listed
                continue
            try:
                watch.callback(name)
            except Exception:
                log.exception("a watch of topics failed")
