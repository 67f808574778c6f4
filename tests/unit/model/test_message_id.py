"""Message ids and their bytes; Pulsar's own client is asked where it has an opinion."""

import pickle

import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import (
    EARLIEST,
    LATEST,
    IdWriter,
    MessageId,
    id_texts,
    run_texts,
    varint,
)

_INT63 = st.integers(0, 2**63 - 1)
_INDEX = st.integers(-1, 2**31 - 1)


@st.composite
def message_ids(draw: st.DrawFn) -> MessageId:
    index = draw(_INDEX)
    size = draw(st.integers(0, 2**31 - 1)) if index >= 0 else 0
    return MessageId(draw(_INT63), draw(_INT63), draw(_INDEX), index, size)


@given(message_ids())
def test_bytes_round_trip(id: MessageId) -> None:
    assert MessageId.from_bytes(id.to_bytes()) == id
    assert MessageId.parse(str(id)) == id
    assert pickle.loads(pickle.dumps(id)) == id


@given(_INT63, _INT63, _INDEX, _INDEX)
def test_bytes_are_those_of_the_official_client(ledger: int, entry: int, partition: int, index: int) -> None:
    theirs = pulsar.MessageId(partition, ledger, entry, index)
    ours = MessageId(ledger, entry, partition, index)
    assert ours.to_bytes() == theirs.serialize()
    back = pulsar.MessageId.deserialize(ours.to_bytes())
    assert (back.ledger_id(), back.entry_id()) == (ledger, entry)
    assert (back.partition(), back.batch_index()) == (partition, index)


@given(
    st.lists(st.integers(0, 2**22) | st.integers(2**27, 2**29) | _INT63, min_size=5, max_size=5),
    st.integers(0, 3),
    st.binary(max_size=2),
)
def test_the_usual_form_is_read_as_any_other(numbers: list[int], left_out: int, rest: bytes) -> None:
    """An unknown field after it makes the same id another form."""
    tags = (b"\x08", b"\x10", b"\x18", b"\x20", b"\x30")
    fields = [tag + varint(number) for tag, number in zip(tags, numbers, strict=True)]
    data = b"".join(fields[: 5 - left_out] if left_out < 3 else fields[:2] + fields[3:])
    assert MessageId.from_bytes(data) == MessageId.from_bytes(data + b"\x38\x00")
    try:
        found = MessageId.from_bytes(data + rest)
    except ValueError:
        return
    assert found == MessageId.from_bytes(data + rest + b"\x38\x00")


def test_earliest_and_latest() -> None:
    assert EARLIEST.to_bytes() == pulsar.MessageId.earliest.serialize()
    assert LATEST.to_bytes() == pulsar.MessageId.latest.serialize()
    assert MessageId.from_bytes(EARLIEST.to_bytes()) == EARLIEST
    assert MessageId.parse("earliest") == EARLIEST
    assert MessageId.parse("latest") == LATEST
    assert EARLIEST < MessageId(0, 0) < MessageId(0, 1) < MessageId(1, 0) < LATEST


def test_the_documented_example() -> None:
    assert MessageId.parse("CAAQAw==") == MessageId(0, 3)
    assert str(MessageId(0, 3)) == "CAAQAw=="


def test_javas_empty_fields_mean_none() -> None:
    assert MessageId.parse("CAMQADAA") == MessageId(3, 0)
    minus_one = b"\xff" * 9 + b"\x01"
    data = b"\x08\x03\x10\x00\x18" + minus_one + b"\x20" + minus_one + b"\x30\x05"
    assert MessageId.from_bytes(data) == MessageId(3, 0)


def test_unknown_fields_are_passed_over() -> None:
    extra = b"\x28\x0d" + b"\x3a\x02\x08\x01" + b"\x41" + b"x" * 8 + b"\x4d" + b"y" * 4
    assert MessageId.from_bytes(b"\x08\x07" + extra + b"\x10\x09") == MessageId(7, 9)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x08\x01",  # no entry
        b"\x10\x01",  # no ledger
        b"\x08",  # cut short
        b"\x08\x01\x10\x02\x3a\x05a",  # a field longer than the rest
        b"\x08\x01\x10\x02\x41\x00",  # the same, of fixed size
        b"\x08\x01\x10\x02\x00\x01",  # field 0
        b"\x08\x01\x10\x02\x0b",  # a group
        b"\x0a\x01a\x12\x01b",  # ledger and entry as bytes
    ],
)
def test_bytes_that_are_no_id(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"message id|varint"):
        MessageId.from_bytes(data)


@pytest.mark.parametrize("text", ["", "x", "CAAQAw", "CAAQAw=", "été", "Earliest", "CAAQ Aw==", "AAAA"])
def test_texts_that_are_no_id(text: str) -> None:
    with pytest.raises(PenstockError) as error:
        MessageId.parse(text)
    assert error.value.kind is ErrorKind.BAD_PARAMETER


@given(st.binary(max_size=40))
def test_any_bytes_are_an_id_or_refused(data: bytes) -> None:
    try:
        found = MessageId.from_bytes(data)
    except ValueError:
        return
    assert MessageId.from_bytes(found.to_bytes()) == found


@given(st.lists(message_ids() | st.sampled_from([EARLIEST, LATEST]), max_size=6))
def test_texts_of_many(ids: list[MessageId]) -> None:
    assert id_texts(ids) == [str(one).encode() for one in ids]
    assert list(map(IdWriter().write, ids)) == id_texts(ids)


@pytest.mark.parametrize("first", [0, 125, 2**14 - 2, 2**21 - 2, 2**63 - 5])
@pytest.mark.parametrize("partition", [-1, 0, 300])
def test_texts_of_neighbours(first: int, partition: int) -> None:
    ids = [MessageId(3, first + at, partition) for at in range(4)]
    ids += [MessageId(3, first + 4, partition, at, 200) for at in (0, 1, 130)]
    assert id_texts(ids) == [str(one).encode() for one in ids]
    assert list(map(IdWriter().write, ids)) == id_texts(ids)


RUNS = st.tuples(
    st.integers(0, 300) | st.integers(2**14 - 200, 2**14 + 200) | st.integers(0, 2**62), st.integers(0, 300)
)


@given(st.integers(0, 2**23), st.integers(-1, 300), RUNS)
def test_texts_of_a_run(ledger: int, partition: int, run: tuple[int, int]) -> None:
    first, count = run
    ids = [MessageId(ledger, first + at, partition) for at in range(count)]
    assert run_texts(ledger, partition, first, count) == [str(one).encode() for one in ids]


def test_numbers_of_more_than_31_bits_are_read_as_java_reads_them() -> None:
    head = b"\x08\x01\x10\x02"
    assert MessageId.from_bytes(head + b"\x18" + varint(2**32 - 1)) == MessageId(1, 2)
    assert MessageId.from_bytes(head + b"\x18" + varint(2**32 + 3)) == MessageId(1, 2, 3)
    assert MessageId.from_bytes(head + b"\x20\x05\x30" + varint(2**31)) == MessageId(1, 2, -1, 5, 0)
    assert MessageId.from_bytes(b"\x08" + varint(2**64 - 1) + b"\x10\x02") == MessageId(-1, 2)
