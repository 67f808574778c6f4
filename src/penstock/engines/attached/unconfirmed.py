"""Acknowledgements that were given to a link and are not confirmed yet, and which flushes fail if they are lost."""

from collections.abc import Awaitable, Callable

from penstock.model.errors import PenstockError


class Unconfirmed:
    """The acknowledgements of one link, by their numbers.

    A `flush` answers for the acknowledgements since the one before it began, or for the same as that one if there are no newer ones,
    and fails if one of them is lost. Without newer ones, at most as many fail as acknowledgements were lost.
    """

    def __init__(self) -> None:
        self._given = self._confirmed = 0  # acknowledgements, and those that are durable or lost
        self._flushed = (0, 0)  # the last flush answers for those after the first number, up to the second
        self._lost_up_to = 0  # the last one that is lost
        self._refusals = 0  # how many flushes those that are lost still fail

    @property
    def any(self) -> bool:
        """Whether there are some."""
        return self._given > self._confirmed

    def give(self) -> None:
        """An acknowledgement is about to be given."""
        self._given += 1

    def lose(self) -> None:
        """Those that are not confirmed are lost, or may be."""
        count = self._given - self._confirmed
        if count:
            self._lost_up_to = self._confirmed = self._given
            self._refusals += count

    async def flush(self, store: Callable[[], Awaitable[None]], lost: Callable[[], PenstockError]) -> None:
        """Confirm what was given so far by `store`. Raises what `store` raises, and `lost()`."""
        given, before = self._given, self._lost_up_to
        after, up_to = self._flushed
        if given > up_to:
            after = up_to
            self._flushed = after, given
        if before <= after:
            self._refusals = 0  # those of earlier flushes
        elif self._refusals:
            self._refuse()
            raise lost()
        try:
            await store()
        except PenstockError:
            if self._lost_up_to > before:
                self._refuse()
            raise
        if self._lost_up_to > before:
            self._refuse()
            raise lost()
        self._confirmed = max(self._confirmed, given)

    def _refuse(self) -> None:
        """One fewer flush is to fail."""
        self._refusals = max(0, self._refusals - 1)
