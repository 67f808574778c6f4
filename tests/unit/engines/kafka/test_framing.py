"""Confluent's framing: taken from values whose ids are known, put before those that are published."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.engines.kafka.test_records import Read

from penstock.engines.kafka.driver.record import Header, NewRecord
from penstock.engines.kafka.framing import Framing, UnknownSchemas, UnknownVersion, encode_indexes, version_of
from penstock.engines.kafka.headers import UNVERSIONED, schema_header
from penstock.engines.kafka.records import entries_of, record_of, records_of
from penstock.engines.kafka.versions import BY_ID, DOCUMENTS, MESSAGE, pair
from penstock.model.message import Message, OutMessage
from penstock.model.names import TopicName
from penstock.testing.clock import ManualClock
from penstock.wire import entry as wire
from penstock.wire.entry import admit
from penstock.wire.plain import read_plain

TOPIC = TopicName.parse("t")


def framing(clock: ManualClock | None = None) -> Framing:
    made = Framing(TOPIC, clock or ManualClock(), keyed=False)
    made.know(258, 3)
    return made


def read(by: Framing, *records: NewRecord) -> list[Message]:
    entries = entries_of([Read(n, 7, one) for n, one in enumerate(records)], 0, 1, by)
    return [message for entry in entries for message in wire.decode(entry)]


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
        entry = wire.encode(some, producer="p", sequence_id=1, publish_time=5, schema_version=3)
        found = [one.value for one in records_of(entry, numbered=False, framing=framing())]
        assert found == [b"\0\0\0\1\2" + one.payload for one in some]


def test_what_is_not_known_is_reported_and_nothing_is_changed() -> None:
    by = framing()
    values: list[bytes | None] = [b"\0\0\0\1\2x", b"\0\0\0\0\1y"]
    with pytest.raises(UnknownSchemas) as unknown:
        by.open([None, None], values, [None, None])
    assert unknown.value.ids == {b"\0\0\0\1"}
    assert values == [b"\0\0\0\1\2x", b"\0\0\0\0\1y"]
    with pytest.raises(UnknownVersion) as missing:
        by.frame(None, b"x", 9)
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


def protobuf(clock: ManualClock | None = None) -> Framing:
    """Of a file with the messages [0], [0, 1] and [300]."""
    made = Framing(TOPIC, clock or ManualClock(), keyed=False)
    made.know(258, 3, [encode_indexes(one) for one in ((0,), (0, 1), (300,))])
    return made


# What Confluent's serializers write: confluent_kafka.schema_registry.protobuf, without the deprecated format.
@pytest.mark.parametrize(
    ("indexes", "version"),
    [
        (b"\0", 3),
        (b"\x02\0", 3),
        (b"\x04\0\x02", 3 + MESSAGE),
        (b"\x02\xd8\x04", 3 + 2 * MESSAGE),
    ],
)
def test_message_indexes(indexes: bytes, version: int) -> None:
    (found,) = read(protobuf(), NewRecord(b"\0\0\0\1\2" + indexes + b"\x08\x01"))
    assert (found.payload, found.schema_version) == (b"\x08\x01", version)
    record = record_of(found.again(), "", numbered=False, framing=protobuf())
    expected = b"\0" if indexes == b"\x02\0" else indexes
    assert record.value == b"\0\0\0\1\2" + expected + b"\x08\x01"


@pytest.mark.parametrize(
    "rest", [b"", b"\x02", b"\x02\x02", b"\x01\0", b"\xff\xff\xff\xff\xff", b"\x80", b"\x7e\0"]
)
def test_message_indexes_that_say_nothing(rest: bytes) -> None:
    """The value stays as it came."""
    value = b"\0\0\0\1\2" + rest
    (found,) = read(protobuf(), NewRecord(value))
    assert (found.payload, found.schema_version) == (value, None)


def test_an_unknown_id_beside_protobuf_is_taken_for_protobuf() -> None:
    by = protobuf()
    by.guess(b"\0\0\0\7", BY_ID + 7, 1000)
    (found,) = read(by, NewRecord(b"\0\0\0\0\7\0x"))
    assert (found.payload, found.schema_version) == (b"x", BY_ID + 7)


def test_a_message_that_the_file_does_not_have() -> None:
    for version in (3 + 3 * MESSAGE, BY_ID + 9):
        with pytest.raises(UnknownVersion):
            protobuf().frame(None, b"x", version)
    with pytest.raises(UnknownVersion):
        framing().frame(None, b"x", 3 + MESSAGE)


def keyed() -> Framing:
    made = framing()
    made.keyed = True
    made.know_key(9, 2)
    return made


VERSION = pair(2, 3) or 0
NO_VALUE = pair(2, 0) or 0


@pytest.mark.parametrize(
    ("key", "value", "version"),
    [
        (b"k", b"v", VERSION),
        (b"k", None, NO_VALUE),
        (b"k", b"plain", NO_VALUE),
        (None, b"v", 3),
        (b"", b"v", VERSION),
    ],
)
@pytest.mark.parametrize("properties", [{}, {"a": "b"}])
def test_keys_with_schemas(
    key: bytes | None, value: bytes | None, version: int, properties: dict[str, str]
) -> None:
    text = None if key is None else b64encode(key).decode()
    message = OutMessage(
        payload=value or b"",
        null_value=value is None,
        key=text,
        key_is_base64=text is not None,
        schema_version=version,
        properties=properties,
    )
    record = record_of(message, "", numbered=False, framing=keyed())
    assert record.key == (None if key is None else b"\0\0\0\0\x09" + key)
    assert record.value == (b"\0\0\0\1\2v" if value == b"v" else value)
    (found,) = read(keyed(), record)
    assert (found.key, found.key_is_base64, found.properties) == (text, text is not None, properties)
    assert (found.payload, found.null_value, found.schema_version) == (value or b"", value is None, version)


def test_keys_are_looked_at_where_they_have_schemas() -> None:
    record = NewRecord(b"v", b"\0\0\0\0\x09k")
    assert read(framing(), record)[0].schema_version is None
    unknown = Framing(TOPIC, ManualClock())
    for by, head in ((unknown, b"\0\0\0\x09"), (keyed(), b"\0\0\0\x08")):
        with pytest.raises(UnknownSchemas) as caught:
            read(by, NewRecord(b"v", b"\0" + head + b"k"))
        assert (set(caught.value.ids), set(caught.value.keys)) == (set(), {head})
    by = keyed()
    by.guess_key(b"\0\0\0\x08")
    (found,) = read(by, NewRecord(b"v", b"\0\0\0\0\x08k"))
    assert (found.key, found.schema_version) == ("\0\0\0\0\x08k", None)


def test_a_key_that_looks_framed_says_that_it_is_not() -> None:
    message = OutMessage(payload=b"v", key="\0\0\0\0\x09k")
    (found,) = read(keyed(), record_of(message, "", numbered=False, framing=keyed()))
    assert (found.key, found.schema_version) == ("\0\0\0\0\x09k", None)


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


def test_values_of_the_servers_own_registry() -> None:
    """Versions are numbers of documents; values are framed once the topic's subject is used, and only with an id."""
    made = Framing(TOPIC, ManualClock(), keyed=False, own=True)
    made.know(7, 2)
    assert made.frame(b"k", b"v", 2) == (b"k", b"v", schema_header(2))
    assert made.knows(2)
    assert made.knows(3)
    made.writes = True
    assert made.frame(b"k", b"v", 2) == (b"k", b"\0\0\0\0\x07v", [])
    assert made.frame(None, None, 2) == (None, None, [])
    assert not made.knows(3)
    made.leave_plain(3)
    assert made.knows(3)
    assert made.frame(None, b"v", 3) == (None, b"v", schema_header(3))
    assert made.frame(None, b"\0\0\0\0\x07v", None)[2] == [UNVERSIONED]
    keys: list[bytes | None] = [b"\0\0\0\0\x07k"]
    values: list[bytes | None] = [b"\0\0\0\0\x07v"]
    assert made.open(keys, values, [None]) == [2]
    assert (keys, values) == ([b"\0\0\0\0\x07k"], [b"v"])
    assert version_of(2, None, own=True) == 2
    assert version_of(None, 5, own=True) == 5
