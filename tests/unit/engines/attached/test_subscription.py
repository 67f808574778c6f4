"""What the cluster says of a cursor."""

import pytest

from penstock.engines.attached.subscription import ClusterCursor, read_ranges
from penstock.model.message_id import MessageId


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
