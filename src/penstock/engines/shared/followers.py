"""Followers of a log: they are called when it grew, ended or was deleted."""

import asyncio
from collections.abc import Callable


class Followers(set[Callable[[], None]]):
    """Who is called when a log grew; `first` is called as one comes."""

    def __init__(self, first: Callable[[], None]) -> None:
        super().__init__()
        self._first = first

    def add(self, follower: Callable[[], None]) -> None:
        super().add(follower)
        self._first()


async def follow_until(
    followers: set[Callable[[], None]], done: Callable[[], bool], timeout_ms: float
) -> None:
    """Follow a log until `done`, or until the time is over."""
    if done():
        return
    changed = asyncio.Event()
    followers.add(changed.set)
    try:
        async with asyncio.timeout(max(0.0, timeout_ms) / 1000):
            while not done():
                changed.clear()
                await changed.wait()
    except TimeoutError:
        pass
    finally:
        followers.discard(changed.set)
