"""How far a number of bytes goes in a log whose ids skip, as Kafka's do."""

from typing import Any

import pytest

from penstock.broker.log import LogBounds
from penstock.model.entry import Entry
from penstock.protocols.rest.logs import Size, _size

BYTES = 100  # of each entry


class Skipping:
    """Entries 0 to 9 and 20 to 29 of one message each; sizes are estimated by ids."""

    ledger = 7
    bounds = LogBounds(0, 30, 0, 30, 3000, terminated=False)

    async def entry_at(self, offset: int) -> int:
        return offset

    async def size_since(self, entry_id: int) -> int:
        return (30 - entry_id) * BYTES

    async def find_size(self, size_bytes: int) -> Entry | None:
        found = await self.read(30 - size_bytes // BYTES, 1)
        return found[0] if found else None

    async def entry(self, entry_id: int) -> Entry:
        (found,) = [one for one in await self.read(entry_id, 1) if one.entry_id == entry_id]
        return found

    async def read(self, entry_id: int, entries_max: int) -> list[Entry]:
        ids = [n for n in (*range(10), *range(20, 30)) if n >= entry_id]
        return [Entry(7, n, n, 1, 0, 0, b"") for n in ids[:entries_max]]


@pytest.mark.parametrize(
    ("wanted", "end"), [(550, 5), (1550, 20), (2050, 20), (2250, 22), (50, 1), (9999, 30)]
)
async def test_a_size_never_ends_at_an_id_that_is_none_s(wanted: int, end: int) -> None:
    topic: Any = Skipping()
    found = await _size(topic, Size(topic="t", partition=0, offset=0, bytes=wanted))
    assert found.end == end
