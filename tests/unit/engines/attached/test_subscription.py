"""What the cluster says of a cursor, and how a subscription is moved by offsets."""

from typing import Any

import pytest

from penstock.broker.log import LogBounds
from penstock.engines.attached.subscription import ClusterCursor, Subscription, read_ranges
from penstock.model.entry import Entry
from penstock.model.message_id import EARLIEST, MessageId
from penstock.model.names import TopicName
from penstock.testing.clock import ManualClock


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[]", []),
        ("", []),
        ("[(3:0..3:2]]", [(MessageId(3, 0), MessageId(3, 2))]),
        (
            "[(3:-1..3:2],(3:4..4:5]]",
            [(MessageId(3, -1), MessageId(3, 2)), (MessageId(3, 4), MessageId(4, 5))],
        ),
    ],
)
def test_ranges_are_read(text: str, found: list[tuple[MessageId, MessageId]]) -> None:
    assert read_ranges(text) == found


def test_a_cursor_says_which_of_a_range_are_acknowledged() -> None:
    cursor = ClusterCursor()
    cursor.learn(10, [(12, 13), (20, 20)])
    assert cursor.beyond == 3
    assert cursor.mask(8, 6) == 0b110011
    assert cursor.mask(18, 4) == 0b0100
    assert list(cursor.ranges()) == [(12, 13), (20, 20)]


class Growing:
    """A topic whose end is known as it was a while ago. Each entry has one message."""

    def __init__(self, known: int, end: int) -> None:
        self.name, self.clock = TopicName.parse("t"), ManualClock()
        self.first_offset, self.next_offset, self._end = 0, known, end

    @property
    def bounds(self) -> LogBounds:
        return LogBounds(self.first_offset, self.next_offset, self.first_offset, self.next_offset, 0, False)

    async def refresh(self) -> None:
        self.next_offset = self._end

    async def read_at(self, offset: int, entries_max: int) -> list[Entry]:
        return [Entry(7, offset, offset, 1, 0, 0, b"")] if offset < self.next_offset else []

    def id_of(self, entry: Entry, index: int) -> MessageId:
        return MessageId(7, entry.entry_id, -1)


class Moved(Subscription):
    """Where it was sought to."""

    async def seek(self, target: MessageId, *, inclusive: bool = False) -> None:
        self.sought = target, inclusive


@pytest.mark.parametrize(
    ("offset", "known", "end", "sought"),
    [
        (3, 5, 9, (MessageId(7, 3, -1), True)),
        (7, 5, 9, (MessageId(7, 7, -1), True)),  # what is known of the end is old
        (9, 5, 9, (MessageId(7, 8, -1), False)),  # as messages may follow, not LATEST
        (99, 9, 9, (MessageId(7, 8, -1), False)),
        (0, 0, 0, (EARLIEST, False)),
    ],
)
async def test_moving_to_the_end_skips_nothing_that_is_published_meanwhile(
    offset: int, known: int, end: int, sought: tuple[MessageId, bool]
) -> None:
    topic: Any = Growing(known, end)
    nothing: Any = None
    subscription = Moved(nothing, topic, "s")
    await subscription.move(offset)
    assert subscription.sought == sought
