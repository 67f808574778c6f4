"""The topics that a member of a group subscribes to by a pattern."""

from collections.abc import Callable

from penstock.model.names import DEFAULT_NAMESPACE, TopicName
from penstock.runtime.patterns import Pattern

from .topics import Topics
from .watches import WatchTopics


class PatternTopics:
    """The topics of `public/default` whose local names match, and that the caller may consume. Raises BAD_PARAMETER for a pattern that
    cannot be read. Without `watch` the topics are listed each time."""

    def __init__(
        self,
        topics: Topics,
        watch: WatchTopics | None,
        pattern: str,
        allowed: Callable[[TopicName], bool],
        changed: Callable[[], object] = lambda: None,
    ) -> None:
        """`changed` is called when such a topic came or went."""
        self._matches = Pattern(pattern)
        self._topics = topics
        self._allowed = allowed
        self._tell = changed
        self._changed = True
        self._found: list[TopicName] = []
        self._watch = None if watch is None else watch(DEFAULT_NAMESPACE, Pattern(".*"), self._note)

    def _note(self, name: TopicName) -> None:
        if not self._changed and self._matches.fullmatch(name.local):
            self._changed = True
            self._tell()

    async def names(self) -> list[TopicName]:
        """Those that there are now."""
        if self._changed:
            self._changed = self._watch is None
            await self._topics.learn_names(DEFAULT_NAMESPACE)
            names = self._topics.names(DEFAULT_NAMESPACE, "persistent")
            self._found = [name for name in names if self._matches.fullmatch(name.local)]
        return sorted(name for name in self._found if self._allowed(name))

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
