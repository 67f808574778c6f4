"""Ids written by their parts are those written whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.message_id import MessageId
from penstock.protocols.rest.batch_ids import id_parts, split, tails


@given(
    ledger=st.integers(0, 2**40),
    entry=st.integers(0, 2**40),
    partition=st.integers(-1, 500),
    count=st.integers(1, 300),
)
def test_parts_make_the_ids(ledger: int, entry: int, partition: int, count: int) -> None:
    expected = [str(MessageId(ledger, entry, partition, index, count)) for index in range(count)]
    start, ends = id_parts(ledger, entry, partition, count)
    assert [start + end for end in ends] == expected
    head, ending = split(ledger, entry, partition, count)
    assert [(head + tail).decode() for tail in tails(ending)] == expected


@pytest.mark.parametrize("entry", [127, 128, 16_383, 16_384, 2_097_151])
def test_where_a_number_grows_by_a_byte(entry: int) -> None:
    start, ends = id_parts(0, entry, -1, 2)
    assert start + ends[1] == str(MessageId(0, entry, -1, 1, 2))
