"""The answers to plain messages are, byte by byte, those that the general way gives."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.producer import Placement
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.protocols.rest import produce, shipped
from penstock.protocols.rest.publishing import Published

NUMBERS = st.integers(0, 2**40)


@pytest.mark.parametrize("dialect", [produce, shipped])
@given(
    ledger=NUMBERS,
    entry=NUMBERS,
    partition=st.integers(-1, 300),
    count=st.integers(1, 300),
    version=st.none() | st.integers(0, 300),
    batched=st.booleans(),
)
def test_a_plain_answer(
    dialect: Any, ledger: int, entry: int, partition: int, count: int, version: int | None, batched: bool
) -> None:
    name = TopicName("persistent", "a", "b", "c", partition)
    topic = SimpleNamespace(name=name, partition=max(0, partition))
    ids = [MessageId(ledger, entry, partition, index, count) for index in range(count)]
    if count == 1 or not batched:
        ids = [MessageId(ledger, entry + number, partition) for number in range(count)]
    done = Published(list(ids), [version] * count, version, False)
    placement = Placement(cast(Any, topic), ledger, entry, 0, count, batched)
    assert dialect._plain_answer(placement, version) == dialect._answer(done)
