"""Confluent's framing: taken from values whose ids are known, put before those that are published."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.engines.kafka.test_records import Read

from penstock.engines.kafka.driver.record import Header, NewRecord
from penstock.engines.kafka.framing import BY_ID, DOCUMENTS, Framing, UnknownSchemas, UnknownVersion
from penstock.engines.kafka.records import entries_of, record_of, records_of
from penstock.model.message import Message, OutMessage
from penstock.model.names import TopicName
from penstock.testing.clock import ManualClock
from penstock.wire.entry import WireFormat, admit
from penstock.wire.plain import read_plain

TOPIC = TopicName.parse("t")


def framing(clock: ManualClock | None = None) -> Framing:
    made = Framing(TOPIC, clock or ManualClock())
    made.know(258, 3)
    return made


def read(by: Framing, *records: NewRecord) -> list[Message]:
    entries = entries_of([Read(n, 7, one) for n, one in enumerate(records)], 0, 1, by)
    return [message for entry in entries for message in WireFormat().decode(entry)]


def test_a_version_is_framed_by_its_id() -> None:
    record = record_of(OutMessage(payload=b"x", schema_version=3), "", numbered=False, framing=framing())
    assert (record.value, record.headers) == (b"\0\0\0\1\2x", None)
    (found,) = read(framing(), record)
    assert (found.payload, found.schema_version) == (b"x", 3)


@given(
    st.none() | st.binary(max_size=8).map(lambda rest: b"\0" + rest) | st.binary(max_size=8),
    st.sampled_from([None, 3, BY_ID + 258, DOCUMENTS, DOCUMENTS + 5]),
    st.dictionaries(st.text("ab", min_size=1), st.text("ab"), max_size=2),
)
def test_what_is_published_is_read(
    value: bytes | None, version: int | None, properties: dict[str, str]
) -> None:
    message = OutMessage(
        payload=value or b"", null_value=value is None, schema_version=version, properties=properties
    )
    by = framing()
    by.know(259, BY_ID + 259)
    (found,) = read(by, record_of(message, "", numbered=False, framing=by))
    assert (found.payload, found.null_value, found.properties) == (value or b"", value is None, properties)
    expected = {BY_ID + 258: 3}.get(version or 0, version)
    assert found.schema_version == (None if value is None else expected)


def test_entries_of_clients_are_framed() -> None:
    messages = [OutMessage(payload=b"x"), OutMessage(payload=b"y", key="k")]
    for some in (messages[:1], messages):
        entry = WireFormat().encode(some, producer="p", sequence_id=1, publish_time=5, schema_version=3)
        found = [one.value for one in records_of(entry, numbered=False, framing=framing())]
        assert found == [b"\0\0\0\1\2" + one.payload for one in some]


def test_what_is_not_known_is_reported_and_nothing_is_changed() -> None:
    by = framing()
    values: list[bytes | None] = [b"\0\0\0\1\2x", b"\0\0\0\0\1y"]
    with pytest.raises(UnknownSchemas) as unknown:
        by.open(values, [None, None])
    assert unknown.value.ids == {b"\0\0\0\1"}
    assert values == [b"\0\0\0\1\2x", b"\0\0\0\0\1y"]
    with pytest.raises(UnknownVersion) as missing:
        by.frame(b"x", 9)
    assert missing.value.version == 9


async def test_a_guess_ends() -> None:
    clock = ManualClock()
    by = framing(clock)
    by.guess(b"\0\0\0\1", None, 1000)
    record = NewRecord(b"\0\0\0\0\1y")
    assert read(by, record)[0].payload == record.value
    await clock.advance(1000)
    with pytest.raises(UnknownSchemas):
        read(by, record)
    by.know(1, 4)
    assert (read(by, record)[0].payload, read(by, record)[0].schema_version) == (b"y", 4)


@pytest.mark.parametrize("said", [b"%d" % (2**63 - 1), b"-1", b"none", b"x", None])
def test_headers_of_others_do_no_harm(said: bytes | None) -> None:
    headers: list[Header] = [("penstock-schema-version", said)]
    (found,) = read(framing(), NewRecord(b"\0\0\0\1\2x", None, headers))
    assert (found.payload, found.schema_version) == (b"\0\0\0\1\2x", None)


def test_a_framed_value_is_read_by_the_fast_way() -> None:
    (entry,) = entries_of([Read(300, 1_700_000_000_000, NewRecord(b"\0\0\0\1\2x"))], 300, 1, framing())
    size = int.from_bytes(entry.data[6:10], "big")
    plain = read_plain(entry.data[6:], 4, 4 + size)
    assert plain is not None
    assert plain[:3] == ("", 300, 1_700_000_000_000)
    assert entry.data.endswith(b"x")
    assert admit(entry.data) is not None
