"""What a stream holds is the same with runs and without them."""

import struct
from io import BytesIO

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.entry import Entry, EntryRun, RecordRun, Stretch
from penstock.pipeline.rows.entries import read_frames
from penstock.wire.runs import ENTRY, RECORDS, RUN, Frames

ALL = 1 << 40

# How far ids and offsets are from what would follow, how many messages an entry has, whether it begins a ledger, its data.
placed = st.tuples(
    st.sampled_from([0, 0, 0, 0, 1]), st.sampled_from([1, 1, 1, 2]), st.booleans(), st.binary(max_size=5)
)


def entries(drawn: list[tuple[int, int, bool, bytes]]) -> list[Entry]:
    found, ledger, entry_id, offset = [], 7, 3, 10
    for gap, count, another, data in drawn:
        if another and gap:
            ledger, entry_id = ledger + 1, -gap
        entry_id, offset = entry_id + gap, offset + gap
        found.append(Entry(ledger, entry_id, offset, count, 0, 0, data))
        entry_id, offset = entry_id + 1, offset + count
    return found


def stored(some: list[Entry]) -> list[Stretch]:
    """As a store has them that keeps runs of up to three."""
    made: list[Stretch] = []
    for at, entry in enumerate(some):
        last = made[-1] if made else None
        if (
            isinstance(last, EntryRun)
            and last.count < 3
            and entry.count == 1
            and (last.ledger, last.next_entry, last.end) == (entry.ledger, entry.entry_id, entry.offset)
        ):
            sizes = last.sizes + struct.pack("<I", len(entry.data))
            made[-1] = EntryRun(last.ledger, last.entry_id, last.offset, sizes, last.data + entry.data)
        elif entry.count == 1 and at % 4:
            sizes = struct.pack("<I", len(entry.data))
            made.append(EntryRun(entry.ledger, entry.entry_id, entry.offset, sizes, entry.data))
        else:
            made.append(entry)
    return made


def sent(found: list[Stretch], ledger: int, end: int = ALL, *, runs: bool = True) -> list[Entry]:
    """What a client reads of the frames."""
    read = []
    for frame in read_frames(BytesIO(Frames(ledger, runs=runs).block(found, end)).read):
        of = ledger if frame.ledger < 0 else frame.ledger
        if frame.kind == ENTRY:
            read.append(Entry(of, frame.entry_id, frame.offset, frame.count, 0, 0, frame.data))
            continue
        assert frame.kind == RUN
        sizes = struct.unpack_from(f"<{frame.count}I", frame.data)
        at = 4 * frame.count
        for n, size in enumerate(sizes):
            data = frame.data[at : at + size]
            read.append(Entry(of, frame.entry_id + n, frame.offset + n, 1, 0, 0, data))
            at += size
        assert at == len(frame.data)
    return read


@given(st.lists(placed, max_size=20), st.booleans(), st.integers(5, 40))
def test_runs_have_the_entries(drawn: list[tuple[int, int, bool, bytes]], many: bool, end: int) -> None:
    some = entries(drawn if many else [(*one[:2], False, one[3]) for one in drawn])
    ledger = -1 if many else 7
    before = [entry for entry in some if entry.offset < end]
    assert sent([*some], ledger, end, runs=False) == before
    assert sent([*some], ledger, end) == before
    assert [entry for entry in sent(stored(some), ledger, end) if entry.offset < end] == before


def test_a_run_is_one_frame() -> None:
    some = entries([(0, 1, False, b"x")] * 500)
    for found in ([*some], stored(some)):
        (frame,) = read_frames(BytesIO(Frames(7, runs=True).block(found, ALL)).read)
        assert (frame.kind, frame.offset, frame.count, frame.entry_id) == (RUN, 10, 500, 3)


def test_records_are_columns() -> None:
    run = RecordRun(7, 5, 5, [1, 2], [None, 3], [b"k", None], [None, b"value"])
    (frame,) = read_frames(BytesIO(Frames(7, runs=True).block([run], ALL)).read)
    assert (frame.kind, frame.offset, frame.count, frame.entry_id) == (RECORDS, 5, 2, 5)
    assert struct.unpack_from("<4q4i", frame.data) == (1, 2, -1, 3, 1, -1, -1, 5)
    assert frame.data[48:] == b"kvalue"
