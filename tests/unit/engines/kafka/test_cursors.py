"""What a commit says of a cursor is what the cursor was, as far as it fits."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.commits import METADATA_MAX, committed_cursor

from penstock.engines.kafka.cursors import DELETED, MAGIC, Cursor, cursor_of
from penstock.engines.kafka.driver.groups import Committed
from penstock.engines.subscription.offsets import OffsetSet
from penstock.model.policy import SubscriptionType


def made(mark: int, ranges: list[tuple[int, int]]) -> OffsetSet:
    """A set by gaps and lengths beyond its mark."""
    found, at = OffsetSet(mark), mark
    for skip, count in ranges:
        found.add_range(at + skip, at + skip + count)
        at += skip + count
    return found


RANGES = st.lists(st.tuples(st.integers(1, 2**20), st.integers(1, 2**20)), max_size=40)


@given(mark=st.integers(0, 2**60), ranges=RANGES, kind=st.sampled_from([None, *SubscriptionType]))
def test_a_cursor_comes_back(mark: int, ranges: list[tuple[int, int]], kind: SubscriptionType | None) -> None:
    cursor = made(mark, ranges)
    committed, left = committed_cursor(cursor, kind)
    assert left == 0
    assert committed.offset == cursor.mark
    assert cursor_of(committed) == Cursor(cursor.mark, tuple(cursor.ranges()))


@given(
    mark=st.integers(0, 2**40),
    pattern=st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=1, max_size=30),
    times=st.integers(1, 400),
)
def test_what_does_not_fit_is_left_out_from_the_far_end(
    mark: int, pattern: list[tuple[int, int]], times: int
) -> None:
    cursor = made(mark, pattern * times)
    committed, left = committed_cursor(cursor, SubscriptionType.SHARED)
    assert len(committed.metadata) <= METADATA_MAX
    found = cursor_of(committed)
    assert found is not None
    kept = [offset for first, last in found.ranges for offset in range(first, last + 1)]
    assert len(kept) == cursor.beyond - left
    every = [offset for first, last in cursor.ranges() for offset in range(first, last + 1)]
    assert every[: len(kept)] == kept


def test_every_second_message_of_many_fits_as_bits() -> None:
    cursor = made(0, [(1, 1)] * 12_000)
    committed, left = committed_cursor(cursor, None)
    assert left == 0
    assert len(committed.metadata) <= METADATA_MAX


@pytest.mark.parametrize(
    "metadata",
    [
        "",
        "of another program",
        MAGIC,
        MAGIC + "Sr!",
        MAGIC + "Sr" + b64encode(b"\xff").decode(),
        MAGIC + "Sr" + b64encode(b"\x01").decode(),
        MAGIC + "Sr" + b64encode(b"\x01\x00").decode(),
    ],
)
def test_of_other_metadata_the_offset_counts_alone(metadata: str) -> None:
    found = cursor_of(Committed(7, metadata))
    assert found is not None
    assert (found.mark, found.ranges) == (7, ())


def test_a_deleted_subscription_has_no_cursor() -> None:
    assert cursor_of(Committed(7, DELETED)) is None
