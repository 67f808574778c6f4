"""Whose turn it is to run the subscriptions of a log, and the cursors of those that do not run yet."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple, Protocol, TypeVar

from penstock.engines.subscription.offsets import OffsetSet
from penstock.engines.subscription.store import CursorWriter
from penstock.model.errors import PenstockError

T = TypeVar("T", contravariant=True)  # the topic or partition

Held = Callable[[], bool]


class OpenedCursor(NamedTuple):
    """A durable subscription as it is stored."""

    cursor: OffsetSet
    properties: dict[str, str]


class Lease(Protocol[T]):
    """Which process runs the durable subscriptions of each log."""

    def hold(self, topic: T) -> Held:
        """Run the durable subscriptions of a topic here; raises why this process does not.

        The result says whether this process has had the topic without a break since: if not, cursors that were read before may be
        old, and nothing is delivered.
        """
        ...

    def lost(self, topic: T) -> PenstockError:
        """The error of what was begun while a topic was held, and is not held any more."""
        ...


class Cursors(Protocol[T]):
    """The cursors of durable subscriptions, in any process."""

    def writer(self, topic: T) -> CursorWriter:
        """What keeps the cursors of a topic's subscriptions while they run here."""
        ...

    def has(self, topic: T, name: str) -> bool:
        """Whether a durable subscription of this name exists."""
        ...

    def names(self, topic: T) -> Collection[str]:
        """All durable subscriptions of a topic."""
        ...

    def open(self, topic: T, name: str, *, refreshed: bool) -> Awaitable[OpenedCursor | None]:
        """The cursor of a subscription that does not run here yet, as it fits the log; None if there is none.

        The topic is held; `refreshed`: it knows where it begins and ends. Raises UNAVAILABLE, NEWER_FORMAT.
        """
        ...

    def create(self, topic: T, name: str, mark: int, properties: Mapping[str, str]) -> Awaitable[None]:
        """Keep a new subscription, everything below `mark` acknowledged; completes when it is durable. The topic is held."""
        ...
