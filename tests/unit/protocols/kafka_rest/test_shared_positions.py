"""Positions that processes before a cluster share: what one decides, all follow."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from tests.support.cluster_log import JournalOfProcess, Processes
from tests.support.cluster_vectors import VERSIONS, messages, records

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.protocols.kafka_rest import positions, shared_positions
from penstock.protocols.kafka_rest.checkpoints import Checkpoint, Checkpoints
from penstock.protocols.kafka_rest.framing import HEAD_BYTES
from penstock.protocols.kafka_rest.positions import TrimmedError
from penstock.protocols.kafka_rest.shared_positions import JOURNAL_MS
from penstock.wire.payloads import LazyEntry

STEP = 1000
FRAME = HEAD_BYTES + 4


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_positions, "STEP_BYTES", STEP)


def checkpoints(processes: Processes) -> list[Checkpoint]:
    return [msgspec.json.decode(record, type=Checkpoint) for record in processes.records]


def first_other(processes: Processes, number: int, do: Callable[[], Awaitable[object]]) -> None:
    """Have something else happen right before a process's next record is written."""
    journal = processes.positions[number]._checkpoints._journal
    append = journal.append

    async def later(record: bytes) -> None:
        journal.append = append  # type: ignore[method-assign]
        await do()
        await append(record)

    journal.append = later  # type: ignore[method-assign]


async def test_a_log_is_counted_from_its_first_message() -> None:
    processes = Processes()
    processes.log.append(b"0000", b"0001")
    processes.log.append(b"0002", skip=3)
    expected = {0: b"0000", FRAME: b"0001", 2 * FRAME: b"0002"}
    for number in (0, 1):
        assert await processes.look(number) == expected
    assert [(one.number, one.points, one.anew) for one in checkpoints(processes)] == [(0, [(0, 0)], True)]


async def test_a_log_may_end_with_offsets_that_are_no_messages() -> None:
    processes = Processes()
    expected: dict[int, bytes] = {}
    for n in range(3):
        processes.log.append(b"%04d" % n)
        for _ in range(n):
            processes.log.mark()
        expected[n * FRAME] = b"%04d" % n
        assert await processes.look(0) == expected
        assert await processes.look(0) == expected
    assert await processes.look(1) == expected
    await processes.positions[0].keep()
    processes.restart(0)
    assert await processes.look(0) == expected
    assert await processes.look(1) == expected


async def test_what_was_compacted_away_ends_reading() -> None:
    processes = Processes()
    for n in range(3):
        processes.log.append(b"%04d" % n)
    await processes.topics[0].refresh()
    assert await processes.positions[0].extend() == 3 * FRAME
    del processes.log.entries[1]
    with pytest.raises(TrimmedError):
        await processes.positions[0].frames(0, 3 * FRAME)


async def test_what_was_trimmed_before_anyone_asked_has_no_positions() -> None:
    processes = Processes()
    for n in range(5):
        processes.log.append(b"%04d" % n)
    processes.log.trim(3)
    for number in (0, 1):
        assert await processes.look(number) == {0: b"0003", FRAME: b"0004"}


async def test_of_two_that_begin_at_once_one_counts() -> None:
    processes = Processes()
    for n in range(5):
        processes.log.append(b"%04d" % n)

    async def other_begins() -> None:
        processes.log.trim(2)
        await processes.look(1)

    first_other(processes, 0, other_begins)
    found = await processes.look(0)
    assert found == await processes.look(1) == {0: b"0002", FRAME: b"0003", 2 * FRAME: b"0004"}
    assert len(processes.records) == 2


async def test_a_trim_within_what_is_known_moves_nothing() -> None:
    processes = Processes(3)
    for n in range(100):
        processes.log.append(b"%04d" % n)
    whole = await processes.look(0)
    await processes.positions[0].keep()
    processes.log.trim(60)
    for number in (1, 0, 2):
        assert await processes.look(number) == {at: p for at, p in whole.items() if p >= b"0060"}
    assert len(processes.records) == 2 + len(whole) * FRAME // STEP - 1


async def test_no_position_is_told_that_is_far_from_the_last_checkpoint() -> None:
    processes = Processes()
    for n in range(1000):
        processes.log.append(b"%04d" % n)
        if n % 100 == 50:
            await processes.look(0)
            last = checkpoints(processes)[-1].points[-1][1]
            assert processes.positions[0]._head.position - last < STEP
    processes.log.append(b"x" * 5 * STEP)  # a message that is longer than that
    await processes.look(0)
    assert checkpoints(processes)[-1].points[-1] == (1001, 1000 * FRAME + 5 * STEP + HEAD_BYTES)


async def test_behind_what_nobody_counted_positions_go_on_where_none_was_told() -> None:
    processes = Processes()
    processes.log.append(b"0000")
    told = await processes.look(0)
    processes.log.append(b"0001")
    processes.log.append(b"0002")
    processes.log.trim(2)
    processes.restart(0)
    found = await processes.look(1)
    assert found == await processes.look(0) == {STEP: b"0002"}
    assert max(told) < STEP


async def test_what_one_decides_another_follows_that_had_counted_more() -> None:
    processes = Processes()
    for n in range(4):
        processes.log.append(b"%04d" % n)
    known = await processes.look(0)
    processes.log.trim(2)
    assert await processes.look(1) == {STEP: b"0002", STEP + FRAME: b"0003"}
    assert await processes.look(0) == {at: p for at, p in known.items() if p >= b"0002"}
    processes.clock.turn(JOURNAL_MS)
    assert await processes.look(0) == await processes.look(1)
    processes.log.append(b"0004")
    assert await processes.look(0) == await processes.look(1)


async def test_a_checkpoint_of_before_a_decision_does_not_count() -> None:
    processes = Processes()
    for n in range(4):
        processes.log.append(b"%04d" % n)
    await processes.look(0)

    async def other_decides() -> None:
        processes.log.trim(2)
        await processes.look(1)

    first_other(processes, 0, other_decides)
    with pytest.raises(TrimmedError):
        await processes.positions[0].keep()
    assert await processes.look(0) == await processes.look(1) == {STEP: b"0002", STEP + FRAME: b"0003"}
    processes.restart(0)
    assert await processes.look(0) == await processes.look(1)


async def test_a_log_that_is_empty_goes_on_where_it_ended() -> None:
    processes = Processes()
    for n in range(5):
        processes.log.append(b"%04d" % n)
    await processes.look(0)
    await processes.positions[0].keep()
    processes.log.trim(5)
    assert await processes.look(0) == await processes.look(1) == {}
    assert processes.positions[1].first == await processes.positions[1].extend() == 5 * FRAME
    processes.log.append(b"0005")
    assert await processes.look(1) == await processes.look(0) == {5 * FRAME: b"0005"}
    processes.log.trim(1)
    processes.restart(0)
    ids = id_of(processes, b"0006")
    processes.restart(1)
    end = 6 * FRAME + STEP
    assert await processes.positions[1].place(*ids) == (end - FRAME, end, end)


async def test_a_topic_that_was_made_anew_begins_at_zero() -> None:
    processes = Processes()
    for n in range(5):
        processes.log.append(b"%04d" % n)
    await processes.look(0)
    await processes.positions[0].keep()
    for before in (0, 5, 9):  # fewer messages than before, as many, more
        processes.make_anew()
        for n in range(before):
            processes.log.append(b"%04d" % n, b"more")
        expected = {
            at * FRAME: p for at, p in enumerate(p for n in range(before) for p in (b"%04d" % n, b"more"))
        }
        assert await processes.look(1) == expected
        assert await processes.look(0) == expected
        await processes.positions[1].keep()


async def test_a_topic_that_was_made_anew_is_known_by_its_entries() -> None:
    processes = Processes()
    for n in range(5):
        processes.log.append(b"%04d" % n)
    processes.log.trim(3)
    await processes.look(0)  # and the checkpoint saw no entry
    processes.make_anew()
    for n in range(5):
        processes.log.append(b"%08d" % n)
    expected = {n * (FRAME + 4): b"%08d" % n for n in range(5)}
    assert await processes.look(0) == expected
    await processes.positions[0].keep()
    processes.make_anew()
    for n in range(5):
        processes.log.append(b"%04d" % n)
    assert await processes.look(0) == {n * FRAME: b"%04d" % n for n in range(5)}


async def test_a_log_of_which_this_process_knows_less_is_no_other() -> None:
    processes = Processes()
    processes.log.append(b"0000")
    await processes.look(0)
    stale = processes.positions[1]
    learn = stale._learn

    async def while_it_grows() -> None:
        await processes.topics[1].refresh()
        processes.log.append(b"0001")
        await processes.look(0)
        await processes.positions[0].keep()
        stale._learn = learn  # type: ignore[method-assign]
        await learn()

    stale._learn = while_it_grows  # type: ignore[method-assign]
    assert await processes.look(1) == {0: b"0000", FRAME: b"0001"}
    assert not any(one.anew for one in checkpoints(processes)[1:])


async def test_a_journal_that_was_deleted_begins_again() -> None:
    processes = Processes()
    for n in range(5):
        processes.log.append(b"%04d" % n)
    await processes.look(0)
    processes.log.trim(2)
    processes.records.clear()
    processes.clock.turn(JOURNAL_MS)
    assert (
        await processes.look(0) == await processes.look(1) == {0: b"0002", FRAME: b"0003", 2 * FRAME: b"0004"}
    )


async def test_checkpoints_that_cannot_be_read_are_not_written_for_ever() -> None:
    processes = Processes()
    processes.log.append(b"0000")

    async def nowhere(self: JournalOfProcess, record: bytes) -> None:
        written.append(record)

    written: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JournalOfProcess, "append", nowhere)
        with pytest.raises(PenstockError, match="cannot be read") as caught:
            await processes.look(0)
    assert caught.value.kind is ErrorKind.UNAVAILABLE
    assert len(written) == 3
    assert await processes.look(0) == {0: b"0000"}


async def test_points_stay_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "BLOCK_BYTES", 20)
    monkeypatch.setattr(shared_positions, "BLOCK_BYTES", 20)
    monkeypatch.setattr(shared_positions, "POINTS_MAX", 16)
    monkeypatch.setattr(positions, "POINTS_PER_DOCUMENT", 4)
    processes = Processes()
    expected = {}
    for n in range(300):
        processes.log.append(b"%04d" % n)
        expected[n * FRAME] = b"%04d" % n
    assert await processes.look(0) == await processes.look(1) == expected
    for one in processes.positions:
        assert len(one._entries) <= 16 + 4
        assert one._entries[0] == 0


async def test_a_restart_reads_only_what_is_behind_the_last_checkpoint() -> None:
    processes = Processes()
    for n in range(500):
        processes.log.append(b"%04d" % n)
    await processes.look(0)
    await processes.positions[0].keep()
    processes.log.append(b"0500")
    processes.restart(0)
    await processes.topics[0].refresh()
    assert await processes.positions[0].extend() == 501 * FRAME
    assert processes.topics[0].reads == 3  # two to know the log again


# -- where messages were stored


def id_of(processes: Processes, *payloads: bytes) -> tuple[list[MessageId], int]:
    entry = processes.log.append(*payloads)
    ids = [MessageId(entry.ledger, entry.entry_id, -1, index) for index in range(entry.count)]
    return ids, sum(HEAD_BYTES + len(payload) for payload in payloads)


async def test_where_messages_were_stored() -> None:
    processes = Processes()
    mine = processes.positions[0]
    assert await mine.place(*id_of(processes, b"0000")) == (0, FRAME, FRAME)
    processes.log.append(b"0001")  # another's
    assert await mine.place(*id_of(processes, b"0002", b"0003")) == (2 * FRAME, 4 * FRAME, 4 * FRAME)
    given = id_of(processes, b"0004")
    processes.log.append(b"0005")
    await processes.look(0)
    assert await mine.place(*given) == (4 * FRAME, 5 * FRAME, 6 * FRAME)


async def test_messages_of_others_between_have_no_one_place() -> None:
    processes = Processes()
    first, size = id_of(processes, b"0000")
    processes.log.append(b"0001")
    last, more = id_of(processes, b"0002")
    assert await processes.positions[0].place(first + last, size + more) is None


async def test_a_log_that_is_far_ahead_is_not_read_for_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_positions, "PLACING_MESSAGES", 10)
    monkeypatch.setattr(shared_positions, "PLACING_BYTES", 5 * FRAME)
    processes = Processes()
    for _ in range(11):
        processes.log.append(b"0000")
    assert await processes.positions[0].place(*id_of(processes, b"0000")) is None
    assert processes.positions[0]._head.entry_id == 0
    await processes.look(0)
    for _ in range(9):
        processes.log.append(b"0000")
    assert await processes.positions[0].place(*id_of(processes, b"0000")) is None
    assert (
        await processes.positions[0].place(*id_of(processes, b"0000")) is None
    )  # it is nearer, and not there yet


# -- what goes wrong


async def test_a_log_that_is_too_long_is_counted_by_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_positions, "COUNTING_S", 0)
    processes = Processes()
    processes.log.append(b"0000")
    with pytest.raises(PenstockError, match="are being counted") as caught:
        await processes.look(0)
    assert caught.value.kind is ErrorKind.UNAVAILABLE
    monkeypatch.setattr(shared_positions, "COUNTING_S", 60)
    assert await processes.look(0) == {0: b"0000"}


async def test_a_log_that_brings_nothing_is_not_asked_for_ever() -> None:
    processes = Processes()
    processes.log.append(b"0000")
    await processes.look(0)
    processes.log.next = 5  # of markers alone
    with pytest.raises((PenstockError, TrimmedError)):
        await processes.look(0)


@pytest.mark.parametrize(
    "record",
    [
        b"", b"\xff", b"[]", b"{}", b'{"number":0,"points":[]}', b'{"number":0,"points":[[0,0]]}',
        b'{"number":0,"points":[[1,1],[0,2]],"anew":true}', b'{"number":0,"points":[[-1,1]],"anew":true}',
        b'{"number":1,"points":[[0,0]],"anew":true}',
    ],
)  # fmt: skip
async def test_records_that_do_not_count(record: bytes) -> None:
    sound = Checkpoint(0, [(3, 4)], anew=True)
    journal = JournalOfProcess([record, msgspec.json.encode(sound), msgspec.json.encode(sound)])
    found = Checkpoints(journal)
    assert await found.read_on() == [sound]
    assert found.number == 1


@pytest.mark.parametrize("version", VERSIONS)
async def test_records_of_every_version_count(version: int) -> None:
    stored = [
        [one.value() or b"" for one in records(version, "journals")],
        [one.payload for one in messages(version, "journals")],
    ]
    for journal in stored:
        assert {msgspec.json.decode(one).get("version") for one in journal} == {version or None}
        found = await Checkpoints(JournalOfProcess(journal)).read_on()
        assert [one.number for one in found] == list(range(len(journal)))
        assert (found[0].points, found[0].anew) == ([(0, 0)], True)


async def test_a_record_names_its_version() -> None:
    processes = Processes()
    processes.log.append(b"0000")
    await processes.look(0)
    assert [msgspec.json.decode(one)["version"] for one in processes.records] == [1]


@pytest.mark.parametrize("version", [2, "two"])
async def test_no_position_is_given_behind_a_record_of_a_newer_version(version: object) -> None:
    processes = Processes()
    processes.log.append(b"0000")
    assert await processes.look(0) == {0: b"0000"}
    # Such a record may say anything in its fields.
    processes.records.append(msgspec.json.encode({"version": version, "number": 1, "points": "none"}))
    count = len(processes.records)
    processes.log.append(b"0001")
    processes.clock.turn(JOURNAL_MS)
    for number in (0, 1, 0):
        with pytest.raises(PenstockError, match=f"has version {version}, .* reads 1 to 1") as caught:
            await processes.positions[number].extend()
        assert caught.value.kind is ErrorKind.NEWER_FORMAT
    assert len(processes.records) == count, "nothing is written behind it"


async def test_writers_that_race_agree() -> None:
    processes = Processes(4)
    for number in range(20):
        for n in range(number):
            processes.log.append(b"%04d" % n)
        if number % 3 == 2:
            processes.log.trim(number)
        found = await asyncio.gather(*map(processes.look, range(4)), return_exceptions=True)
        processes.clock.turn(JOURNAL_MS)
        found = [await processes.look(one) for one in range(4)]
        assert all(one == found[0] for one in found)
        assert list(found[0].values()) == [
            p for entry in processes.log.entries for p in payloads_of(entry.data)
        ]


def payloads_of(data: bytes) -> list[bytes]:

    return LazyEntry(data).payloads()
