"""The table of what is out: how many messages it has is known without looking at the parts."""

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.unit.engines.core.brokers import bench

from penstock.engines.subscription.pending import Pending, PendingTable

ENTRIES, COUNT = 4, 5
masks = st.integers(0, (1 << COUNT) - 1)
nobody: Any = None


@given(
    st.lists(
        st.tuples(st.just("add"), st.integers(0, ENTRIES - 1), masks)
        | st.tuples(st.just("release"), st.integers(0), masks)
        | st.tuples(st.just("clear"), st.just(0), st.just(0))
    )
)
def test_the_number_of_messages_is_that_of_all_parts(steps: list[tuple[str, int, int]]) -> None:
    table = PendingTable()
    for step, number, mask in steps:
        held = table.all()
        new = mask & ~table.mask(number)
        if step == "add" and new:
            table.add([Pending(number, number * COUNT, COUNT, new, nobody, None)])
        elif step == "release" and held:
            part = held[number % len(held)]
            table.release(part, mask)  # also messages that it does not have
        elif step == "clear":
            table.clear()
        assert all(part.mask for part in table.all())
        assert table.messages == sum(part.mask.bit_count() for part in table.all())


async def test_figures_look_at_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench() as b:
        ids = await b.publish(b"1", b"2", b"3", batch=False)
        consumer = await b.consumer()
        await b.taken(consumer)
        await consumer.acknowledge(ids[1])
        monkeypatch.delattr(PendingTable, "all")
        (subscription,) = consumer.attached
        assert subscription.figures().unacked == 2
        monkeypatch.undo()
