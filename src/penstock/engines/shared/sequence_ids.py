"""The sequence ids of a producer's messages."""

from collections.abc import Sequence
from typing import Final

from penstock.model.message import OutMessage

# Sequence ids of clients from here on do not raise those that the server gives, which so always fit into 63 bits.
RAISING_MAX: Final = 2**62


class Numbers:
    """The sequence ids of one producer over all its partitions, or of all producers of this process that share a name.

    They rise, and are above those that clients chose, if these are below `RAISING_MAX`.
    """

    __slots__ = ("__weakref__", "next")

    def __init__(self) -> None:
        self.next = 0

    def give(self, message: OutMessage) -> int:
        """Give a message the next one, unless it has one; returns it."""
        number = message.sequence_id
        if number is None:
            number = message.sequence_id = self.next
            self.next = number + 1
        elif self.next <= number < RAISING_MAX:
            self.next = number + 1
        return number

    def give_all(self, messages: Sequence[OutMessage]) -> bool:
        """The same for several; whether one of them had one."""
        given, following = False, self.next
        for message in messages:
            number = message.sequence_id
            if number is None:
                message.sequence_id = following
                following += 1
            else:
                given = True
                if following <= number < RAISING_MAX:
                    following = number + 1
        self.next = following
        return given

    def follow(self, last: int) -> None:
        """Go on after the last one that is known."""
        self.next = max(self.next, min(last + 1, RAISING_MAX))

    def take(self, count: int) -> int:
        """Take the next `count`; returns the first of them."""
        first, self.next = self.next, self.next + count
        return first
