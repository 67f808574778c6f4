"""A budget of a consumer's principal, as full as a test has it."""

from collections.abc import Callable


class StubBudget:
    """`broker.Budget`. `over` is whether it is exceeded, `room` whether more may be delivered."""

    def __init__(self, *, over: bool = False, room: bool = True) -> None:
        self.over = over
        self.room = room
        self.size = 0
        self._callbacks: list[Callable[[], None]] = []

    def send(self, size: int) -> None:
        self.size += size

    def has_room(self, size: int) -> bool:
        return self.room and not self.over

    def reserve(self, size: int) -> bool:
        if self.over:
            return False
        self.send(size)
        return True

    def call_when_room(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    @property
    def waiting(self) -> int:
        """How many wait for room."""
        return len(self._callbacks)

    def call(self) -> None:
        """Say that there may be room."""
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def free(self) -> None:
        """There is room."""
        self.over = False
        self.call()
