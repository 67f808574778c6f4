"""Pages of a partition whose offsets skip."""

from typing import Any

import pytest

from penstock.model.entry import Entry
from penstock.protocols.rest.partition import Messages
from penstock.protocols.rest.parts import Bounds


class NoMessages:
    """Decodes and encodes nothing: the entry lies behind the end."""

    def encode(self, parts: list[Any]) -> Any:
        assert parts == []
        return self

    texts: tuple[str, ...] = ()


@pytest.mark.parametrize("at", [3, 5, 7])
def test_a_page_is_over_where_the_next_entry_lies_behind_its_end(at: int) -> None:
    """As where a transaction is committed between the look at the end of a log and the read: 3 and 4 are its marker and what
    was aborted."""
    nothing: Any = NoMessages()
    page = Messages(nothing, nothing, nothing, at, Bounds(None, None))
    page._encoding = nothing
    assert page.take([Entry(1, 7, 7, 1, 0, 0, b"")], 5).texts == ()
    assert page.at == max(at, 5)
