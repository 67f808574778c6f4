"""What is written ahead is what would be written when it is asked for."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.protocols.rest.test_encoding import FakeLog, Known

from penstock.broker.consumer import Consumer
from penstock.broker.log import Log
from penstock.broker.schemas import Schemas
from penstock.model.entry import Entry
from penstock.protocols.rest import prepared as module
from penstock.protocols.rest.encoding import Encoding
from penstock.protocols.rest.parts import Bounds, Decoding, Part
from penstock.protocols.rest.prepared import TEXT_MESSAGES, Prepared, Preparing, write_all
from penstock.protocols.values import Values
from penstock.testing.clock import ManualClock, settle
from penstock.wire import entry as wire

LOGS = [FakeLog(1, -1), FakeLog(2, 3)]


def entries(log: FakeLog, counts: list[int]) -> list[Entry]:
    found, offset = [], 0
    for number, count in enumerate(counts):
        made = wire.encode_plain(
            [b"%d" % n for n in range(count)],
            producer="p",
            sequence_id=offset,
            publish_time=number,
            schema_version=None,
        )
        found.append(Entry(log.ledger, number, offset, count, number, 0, made.data))
        offset += count
    return found


class Upcoming:
    """A consumer of logs whose entries are all in memory."""

    def __init__(self, *sources: tuple[FakeLog, list[Entry]]) -> None:
        self.attached = [
            SimpleNamespace(topic=log, upcoming=lambda most, stored=stored: stored[:most])
            for log, stored in sources
        ]


def written(parts: list[Part], encoding: Encoding) -> bytes:
    return b"".join(b"," + text.encode() for text in encoding.encode(parts).texts)


COUNTS = st.lists(st.sampled_from([1, 2, 7, TEXT_MESSAGES, TEXT_MESSAGES + 1]), min_size=1, max_size=12)


@given(st.data(), COUNTS, COUNTS, st.integers(1, 600))
def test_a_fetch_of_anything_is_written_right(
    data: st.DataObject, first: list[int], second: list[int], most: int
) -> None:
    sources = [(log, entries(log, counts)) for log, counts in zip(LOGS, (first, second), strict=True)]
    decoding = Decoding()
    encoding = Encoding(decoding, Values(cast(Schemas, Known()), LOGS[0].name))
    prepared = Prepared("json", Bounds(most, None))

    async def prepare() -> None:
        preparing = Preparing(decoding, ManualClock())
        preparing.begin(prepared, cast(Consumer, Upcoming(*sources)), encoding)
        await settle()

    asyncio.run(prepare())
    parts: list[Part] = []
    for log, stored in data.draw(st.permutations(sources)):
        for entry in stored if data.draw(st.booleans()) else data.draw(st.permutations(stored)):
            whole = (1 << entry.count) - 1
            mask = data.draw(st.just(whole) | st.integers(1, whole))
            if data.draw(st.integers(0, 9)):
                times = data.draw(st.sampled_from([0, 0, 0, 0, 1]))
                parts.append(decoding.part(cast(Log, log), entry, mask, times))
    assert b"".join(write_all(parts, encoding, prepared)) == written(parts, encoding)
    assert b"".join(write_all(parts, encoding, None)) == written(parts, encoding)


async def test_what_is_prepared_is_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = entries(LOGS[0], [50] * 8)
    decoding = Decoding()
    encoding = Encoding(decoding, Values(cast(Schemas, Known()), LOGS[0].name))
    prepared = Prepared("json", Bounds(300, None))
    Preparing(decoding, ManualClock()).begin(prepared, cast(Consumer, Upcoming((LOGS[0], stored))), encoding)
    await settle()
    parts = [decoding.part(cast(Log, LOGS[0]), entry, (1 << 50) - 1, 0) for entry in stored]
    encoded: list[int] = []
    encode = encoding.encode
    monkeypatch.setattr(encoding, "encode", lambda some: encoded.append(len(some)) or encode(some))
    write_all(parts, encoding, prepared)
    assert sum(encoded) == 2  # of eight entries: what is beyond the bounds of the fetch


async def test_all_that_is_prepared_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest makes room, once its fetch should have come; what is ended makes room at once."""
    monkeypatch.setattr(module, "PREPARED_BYTES_MAX", 1)
    clock = ManualClock()
    stored = entries(LOGS[0], [TEXT_MESSAGES] * 3)
    decoding = Decoding()
    encoding = Encoding(decoding, Values(cast(Schemas, Known()), LOGS[0].name))
    preparing = Preparing(decoding, clock)

    async def begin() -> Prepared:
        made = Prepared("json", Bounds(1000, None))
        preparing.begin(made, cast(Consumer, Upcoming((LOGS[0], stored))), encoding)
        await settle()
        return made

    first = await begin()
    assert 0 < first.size < 2 * TEXT_MESSAGES * 300
    second = await begin()
    assert second.size == 0
    preparing.end(first)
    third = await begin()
    assert third.size
    await clock.advance(module.KEPT_MS)
    fourth = await begin()
    assert fourth.size
    assert not third.open
    parts = [decoding.part(cast(Log, LOGS[0]), stored[0], (1 << stored[0].count) - 1, 0)]
    assert fourth.find(parts, 0) is not None
    assert third.find(parts, 0) is None  # its memory is free, though its instance still has it
    assert third.size == 0
