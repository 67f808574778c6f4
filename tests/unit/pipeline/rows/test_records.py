"""Records that a task reads itself become the rows that the server's entries of them become."""

from collections.abc import Iterator, Sequence
from io import BytesIO

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.engines.kafka.test_framing import framing
from tests.unit.engines.kafka.test_records import Read

from penstock.engines.kafka.driver.record import Header, NewRecord, contiguous
from penstock.engines.kafka.framing import Framing
from penstock.engines.kafka.records import entries_of, runs_of
from penstock.pipeline.rows.columns import INCLUDABLE
from penstock.pipeline.rows.entries import Frame, read_frames
from penstock.pipeline.rows.place import Place
from penstock.pipeline.rows.records import BLOCK_ROWS, blocks, record_rows
from penstock.pipeline.rows.rows import decode
from penstock.wire.runs import Frames

PLACE = Place("persistent://public/default/t", 3, 2**40 + 3)
INCLUDE = tuple(INCLUDABLE)

contents = st.none() | st.sampled_from([b"", b"\0\0\0\1\2x", b"\0\0\0\1\2", b"\xff"]) | st.binary(max_size=6)
NAMES = ("p", "q", "event-time", "schema-version", "sequence-id", "producer", "ordering-key")
NAMES += ("key", "deliver-at", "property-p", "entry", "version")
headers = st.lists(
    st.tuples(
        st.sampled_from(
            [name if name in ("p", "q") else f"penstock-{name}" for name in NAMES],
        ),
        st.none() | st.sampled_from([b"1", b"7", b"none", b"base64", b"text", b"\xff", b""]),
    ),
    max_size=3,
)
records = st.tuples(contents, contents, st.none() | headers, st.integers(-1, 2**42), st.integers(1, 3))


def entries(some: Sequence[Read], by: Framing | None) -> Iterator[Frame]:
    for one in some:
        for entry in entries_of([one], one.offset(), PLACE.ledger, by):
            yield Frame(entry.offset, entry.count, entry.entry_id, entry.data)


def streamed(some: Sequence[Read], by: Framing | None) -> list[pa.RecordBatch]:
    """By a server, whose reads end at gaps."""
    frames = Frames(PLACE.ledger, runs=True)
    stream, rest = b"", some
    while rest:
        first = rest[0].offset()
        count = contiguous(rest, first)
        stream += frames.block(runs_of(rest[:count], first, PLACE.ledger, by), 2**62)
        rest = rest[count:]
    return list(decode(PLACE, read_frames(BytesIO(stream).read), 0, 2**62, INCLUDE))


def known() -> Framing:
    made = framing()
    for head in range(256):  # what the examples may name, so that nothing is left to learn
        for tail in (b"\0\0\0", b"\0\0\1"):
            made.guess_none(tail + bytes((head,)))
    made.know(258, 3)
    return made


KNOWN = known()


@given(st.lists(records, min_size=1, max_size=8), st.booleans())
@example([(b"k", b"v", None, 5, 1), (None, None, [("p", b"1")], 6, 2), (b"\xff", b"", None, -1, 1)], False)
@example([(None, b"\0\0\0\1\2x", None, 5, 1), (b"k", b"\0\0\0\1\2y", [("p", None)], 6, 1)], True)
def test_rows_are_those_of_the_entries(
    drawn: list[tuple[bytes | None, bytes | None, list[Header] | None, int, int]], registry: bool
) -> None:
    offset = 0
    some = []
    for key, value, headed, time, step in drawn:
        offset += step
        if registry and value is not None and value[:1] == b"\0" and len(value) >= 5:
            value = b"\0\0\0\1\2" + value[5:]
        some.append(Read(offset, time, NewRecord(value, key, headed or None)))
    by = KNOWN if registry else None
    expected = list(decode(PLACE, entries(some, by), 0, 2**62, INCLUDE))
    found = record_rows(PLACE, INCLUDE, some, by)
    assert pa.Table.from_batches([found]).equals(pa.Table.from_batches(expected))
    assert pa.Table.from_batches(streamed(some, by)).equals(pa.Table.from_batches(expected))


def test_records_gather_in_blocks() -> None:
    def chunks() -> Iterator[list[Read]]:
        for first in range(0, 5 * BLOCK_ROWS // 2, 100):
            yield [Read(n, 0, NewRecord(b"x")) for n in range(first, first + 100)]

    found = list(blocks(chunks()))
    assert len(found) == 3
    offsets = [one.offset() for block in found for one in block]
    assert offsets == list(range(len(offsets)))
    assert list(blocks([])) == []
