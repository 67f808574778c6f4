"""Message ids in columns, against those made one by one."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.model.message_id import MessageId
from penstock.pipeline.rows.ids import message_ids

unsigned = st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1))
indexes = st.one_of(st.just(-1), st.integers(0, 300), st.integers(0, 2**31 - 1))
sizes = st.one_of(st.integers(1, 300), st.integers(1, 2**31 - 1))


@given(
    unsigned,
    st.integers(-1, 2**31 - 1),
    st.lists(st.tuples(unsigned, indexes, sizes), min_size=1, max_size=9),
)
@example(0, -1, [(127, -1, 1), (128, 127, 128), (16383, 128, 127), (2**63, 0, 1), (2**64 - 1, 5, 2**31 - 1)])
def test_as_one_by_one(ledger: int, partition: int, messages: list[tuple[int, int, int]]) -> None:
    found = message_ids(
        ledger,
        partition,
        np.array([entry for entry, _, _ in messages], np.uint64).view(np.int64),
        np.array([index for _, index, _ in messages]),
        np.array([size for _, _, size in messages]),
    )
    found.validate(full=True)
    assert found.to_pylist() == [
        str(MessageId(ledger, entry, partition, index, size if index >= 0 else 0))
        for entry, index, size in messages
    ]
