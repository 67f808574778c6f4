"""Who wants to know when a log grows."""

from collections.abc import Callable


class Followers(set[Callable[[], None]]):
    """Who is called when a log grew; `first` is called as one comes."""

    def __init__(self, first: Callable[[], None]) -> None:
        super().__init__()
        self._first = first

    def add(self, follower: Callable[[], None]) -> None:
        super().add(follower)
        self._first()
