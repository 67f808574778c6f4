"""Records of the cursors' journal: those of every version are read, which of them count, and whether a cursor fits its log."""

from typing import Any

import msgspec
import pytest
from tests.support.cluster_vectors import StoredRecord, records
from tests.support.cursor_journal import Log

from penstock.engines.kafka.driver.shared_log import JournalRecord
from penstock.engines.kafka.serving.state import (
    CHUNK_BYTES,
    CLAIM,
    DONE,
    RECORD_BYTES,
    SAVE,
    Claim,
    CursorKey,
    CursorRecord,
    JournalState,
    StoredCursor,
    encode_claim,
    encode_done,
    encode_save,
    packed,
    slot_of,
)
from penstock.engines.kafka.serving.stored import Misfit, fitted
from penstock.model.errors import ErrorKind
from penstock.model.formats import CURSORS

SLOT = slot_of("orders", 0, 64)
KEY = CursorKey("orders", 0, "s")


def read(*stored: StoredRecord) -> JournalState:
    state = JournalState(64)
    for one in stored:
        state.apply(JournalRecord(one.offset(), one.key() or b"", one.value() or b"", one.headers() or ()))
    return state


def test_records_of_version_1_are_read() -> None:
    state = read(*records(1, "cursors"))
    found = state.slots[SLOT]
    assert found.claim == Claim("penstock-x", 64, "p-1", 1, {SLOT: "t0", SLOT + 1: "t1"})
    assert found.cursors == {KEY: StoredCursor("id-0", 8, {2: b"\x01"}, b'{"team":"a"}')}
    assert state.slots[SLOT + 1].cursors == {}, "it was deleted"
    assert found.begin == state.slots[SLOT + 1].begin == 0
    assert state.superseded() is None, "other slots need all records"


def test_a_record_of_a_newer_version_makes_its_slots_unreadable_if_it_counts() -> None:
    claim, save, *_ = records(1, "cursors")
    for newer in (
        save.newer(),
        msgspec.structs.replace(save, the_key=b"other"),
        save.newer(msgspec.msgpack.encode(["p-1", 2, {SLOT: "t0"}, "what it is now", "and more"])),
    ):
        state = read(claim, newer)
        found = state.slots[SLOT]
        assert found.unknown is not None
        assert found.unknown.kind is ErrorKind.NEWER_FORMAT
        assert not found.cursors
        assert state.slots[SLOT + 5].unknown is None
        assert read(newer).slots[SLOT].unknown is None, "no claim: it does not count"


def test_claims_are_read_whatever_version_they_name() -> None:
    claim = records(1, "cursors")[0]
    fields = {**msgspec.json.decode(claim.value() or b""), "new": [1]}
    state = read(claim.newer(msgspec.json.encode(fields)))
    assert (state.slots[SLOT].term, state.slots[SLOT].unknown) == ("t0", None)


def test_what_cannot_be_decoded_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    claim, save, *_ = records(1, "cursors")
    broken = [
        msgspec.structs.replace(claim, the_value=b"{"),
        msgspec.structs.replace(save, the_value=b"\xc1"),
        msgspec.structs.replace(save, the_value=msgspec.msgpack.encode(["p", 1, {SLOT: "t0"}, 5])),
    ]
    state = read(claim, *broken, save)
    assert KEY in state.slots[SLOT].cursors
    assert len(caplog.records) == 3


def journal(*rows: tuple[bytes, bytes]) -> JournalState:
    log = Log()
    for key, value in rows:
        log.append(key, value, () if key == CLAIM else CURSORS.headers())
    return log.state(0, 64)


def test_a_record_counts_only_under_the_last_claim_before_it() -> None:
    def claim(term: str) -> tuple[bytes, bytes]:
        return CLAIM, encode_claim(Claim("g", 64, "p", 1, {SLOT: term}))

    def save(term: str, mark: int) -> tuple[bytes, bytes]:
        change = CursorRecord("orders", 0, "s", "id", mark)
        return SAVE, encode_save("p", 2, {SLOT: term}, [change])

    def mark(*rows: tuple[bytes, bytes]) -> int | None:
        found = journal(*rows).slots[SLOT].cursors.get(KEY)
        return None if found is None else found.mark

    assert mark(save("", 1), save("a", 1)) is None
    assert mark(claim("a"), save("a", 1), save("b", 2)) == 1
    assert mark(claim("a"), save("a", 1), claim("b"), save("a", 2)) == 1
    assert mark(claim("a"), claim("b"), save("b", 2), save("a", 3)) == 2
    # Of another slot than the one whose term is named, it does not count either.
    other = SAVE, encode_save("p", 2, {SLOT: "a"}, [CursorRecord("orders", 1, "s", "id", 4)])
    assert journal(claim("a"), other).slots[SLOT + 1].cursors == {}
    done = DONE, encode_done("p", 3, {SLOT: "a"})
    assert journal(claim("x"), claim("a"), done).slots[SLOT].begin == 1
    assert journal(claim("a"), claim("b"), done).slots[SLOT].begin is None


def test_a_recreated_topic_leaves_nothing_of_the_old_one() -> None:
    stored = StoredCursor("old", 5, {0: b"\xff", 1: b"\x01"}, b"{}")
    stored.apply(CursorRecord("orders", 0, "s", "new", 2, {0: b"\x08"}))
    assert stored == StoredCursor("new", 2, {0: b"\x08"}, b"{}")


def test_changes_are_packed_into_records_of_a_bounded_size() -> None:
    chunks: dict[int, bytes | None] = dict.fromkeys(range(1300), b"x" * 512)
    large = CursorRecord("t", 0, "large", "id", 7, chunks, b"{}")
    small = [CursorRecord("t", 0, f"s{number}", "id", number) for number in range(3000)]
    parts = list(packed([small[0], large, *small[1:]]))
    assert 4 < len(parts) < 12
    sizes = [len(encode_save("p", 1, {0: "t"}, part)) for part in parts]
    assert max(sizes) <= RECORD_BYTES + 2 * CHUNK_BYTES
    whole: dict[int, Any] = {}
    for change in [one for part in parts for one in part if one.subscription == "large"]:
        whole |= change.chunks
        assert change.mark == 7
    assert whole == chunks
    assert sum(one.subscription != "large" for part in parts for one in part) == 3000


@pytest.mark.parametrize(
    ("stored", "begin", "end", "mark", "acked", "misfit"),
    [
        (StoredCursor("id", 5, {0: b"\x80"}), 0, 8, 5, [7], None),
        (StoredCursor("id", 5, {}), 5, 5, 5, [], None),
        (StoredCursor("other", 5, {0: b"\x80"}), 2, 100, 2, [], Misfit.RECREATED),
        (StoredCursor("id", 5, {}), 1, 4, 1, [], Misfit.BEYOND_END),
        (StoredCursor("id", 5, {0: b"\x80"}), 0, 7, 5, [], Misfit.ACKS_BEYOND_END),
        (StoredCursor("id", 5, {0: b"\x80\x02"}), 7, 12, 8, [9], Misfit.EXPIRED),
        (StoredCursor("id", 5, {}), 9, 12, 9, [], Misfit.EXPIRED),
    ],
)
def test_a_cursor_that_does_not_fit_begins_where_nothing_is_missed(
    stored: StoredCursor, begin: int, end: int, mark: int, acked: list[int], misfit: Misfit | None
) -> None:
    cursor, why = fitted(stored, "id", begin, end)
    beyond = [offset for first, last in cursor.ranges() for offset in range(first, last + 1)]
    assert (cursor.mark, beyond, why) == (mark, acked, misfit)


def test_partitions_of_a_topic_are_in_different_slots() -> None:
    assert len({slot_of("orders", partition, 64) for partition in range(64)}) == 64
