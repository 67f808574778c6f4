"""Messages become records and records messages, without loss; records of other producers are messages, whatever they hold."""

from base64 import b64decode, b64encode
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engines.kafka.driver.record import Header, NewRecord, contiguous
from penstock.engines.kafka.records import entries_of, record_of, records_of
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.headers import properties_of
from penstock.model.message import Encryption, EncryptionKey, Message, OutMessage
from penstock.wire import entry as wire
from penstock.wire.contents import compressed
from penstock.wire.entry import admit
from penstock.wire.plain import read_plain
from penstock.wire.pulsar_pb2 import LZ4

LEDGER = 77

times = st.integers(1, 2**62)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
names = texts | texts.map(lambda text: f"penstock-{text}")
raw_keys = st.binary(max_size=20)
keys = st.one_of(
    st.none(),
    texts.map(lambda text: (text, False)),
    raw_keys.map(lambda key: (b64encode(key).decode(), True)),
    texts.map(lambda text: (text, True)),  # that says it is base64, and may be none
)


class Read:
    """A record as librdkafka gives it."""

    def __init__(self, offset: int, time: int, record: NewRecord) -> None:
        self._offset, self._time, self._record = offset, time, record

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._record.key

    def value(self) -> bytes | None:
        return self._record.value

    def headers(self) -> Sequence[Header] | None:
        return self._record.headers

    def timestamp(self) -> tuple[int, int]:
        return 1, self._time

    def __len__(self) -> int:
        return len(self._record.value or b"")


def entry_of(record: NewRecord, time: int = 5, offset: int = 9) -> Entry:
    """Of one record."""
    (entry,) = entries_of([Read(offset, time, record)], offset, LEDGER)
    return entry


def message_of(record: NewRecord, time: int = 5, offset: int = 9) -> Message:
    """Of one record."""
    (message,) = wire.decode(entry_of(record, time, offset))
    return message


@st.composite
def messages(draw: st.DrawFn) -> OutMessage:
    """With any of the fields that endpoints show."""
    key = draw(keys)
    null = draw(st.booleans())
    return OutMessage(
        payload=b"" if null else draw(st.binary(max_size=50)),
        key=None if key is None else key[0],
        key_is_base64=key is not None and key[1],
        ordering_key=draw(st.none() | st.binary(max_size=10)),
        properties=draw(st.none() | st.dictionaries(names, texts, max_size=5)),
        event_time=draw(st.integers(-(2**63), 2**63 - 1)),
        deliver_at=draw(st.just(0) | times),
        sequence_id=draw(st.integers(0, 2**63 - 1)),
        schema_version=draw(st.none() | st.integers(-(2**63), 2**63 - 1)),
        replicate_to=draw(st.none() | st.lists(texts, min_size=1, max_size=3)),
        null_value=null,
    )


@given(messages(), texts, times, st.integers(0, 2**60))
def test_a_message_comes_back_from_its_record(
    message: OutMessage, producer: str, time: int, offset: int
) -> None:
    record = record_of(message, producer, numbered=True)
    entry = entry_of(record, time, offset)
    found = message_of(record, time, offset)
    assert found == Message(
        payload=message.payload,
        offset=offset,
        key=message.key,
        key_is_base64=message.key_is_base64,
        ordering_key=message.ordering_key,
        properties=message.properties or {},
        publish_time=time,
        event_time=message.event_time,
        deliver_at=message.deliver_at,
        producer_name=producer,
        sequence_id=message.sequence_id or 0,
        schema_version=message.schema_version,
        replicate_to=message.replicate_to,
        null_value=message.null_value,
    )
    assert entry == Entry(LEDGER, offset, offset, 1, time, message.deliver_at, entry.data)


@given(
    st.none() | raw_keys,
    st.none() | st.binary(max_size=50),
    st.none() | st.lists(st.tuples(names, st.none() | st.binary(max_size=10)), max_size=5),
    st.integers(-1, 2**63 - 1),
    st.integers(0, 2**60),
)
def test_any_record_is_a_message(
    key: bytes | None, value: bytes | None, headers: list[Header] | None, time: int, offset: int
) -> None:
    found = message_of(NewRecord(value, key, headers), time, offset)
    assert found.payload == (value or b"")
    assert found.null_value == (value is None)
    assert found.publish_time == max(0, time)
    if key is None:
        assert found.key is None
    else:
        assert found.key is not None
        assert (b64decode(found.key) if found.key_is_base64 else found.key.encode()) == key


@given(st.lists(st.tuples(st.none() | raw_keys, st.none() | st.binary(max_size=20)), min_size=1, max_size=8))
def test_records_together_are_what_they_are_alone(pairs: list[tuple[bytes | None, bytes | None]]) -> None:
    records = [NewRecord(value, key) for key, value in pairs]
    together = entries_of([Read(40 + n, 7 + n % 2, one) for n, one in enumerate(records)], 40, LEDGER)
    assert together == [entry_of(one, 7 + n % 2, 40 + n) for n, one in enumerate(records)]
    with_headers = [*records, NewRecord(b"last", None, [("a", b"b")])]
    some = entries_of([Read(40 + n, 7 + n % 2, one) for n, one in enumerate(with_headers)], 40, LEDGER)
    assert some[: len(records)] == together


def test_a_plain_record_is_read_by_the_fast_way() -> None:
    entry = entry_of(NewRecord(b"value"), 1_700_000_000_000, 300)
    size = int.from_bytes(entry.data[6:10], "big")
    assert read_plain(entry.data[6:], 4, 4 + size) == ("", 300, 1_700_000_000_000, 0, None, None)


@pytest.mark.parametrize(
    ("headers", "properties"),
    [
        ([("a", None)], {"a": ""}),
        ([("a", b"1"), ("a", b"2")], {"a": "2"}),
        ([("a", b"\xff")], {"a": "/w=="}),
        ([("penstock-unknown", b"x")], {"penstock-unknown": "x"}),
        ([("penstock-event-time", b"soon")], {"penstock-event-time": "soon"}),
        ([("penstock-deliver-at", b"-1")], {"penstock-deliver-at": "-1"}),
        ([("penstock-deliver-at", b"9" * 19)], {"penstock-deliver-at": "9" * 19}),
        ([("penstock-key", b"hex")], {"penstock-key": "hex"}),
        ([("penstock-producer", None)], {"penstock-producer": ""}),
    ],
)
def test_headers_of_others_are_properties(headers: list[Header], properties: dict[str, str]) -> None:
    assert message_of(NewRecord(b"", None, headers)).properties == properties


def test_headers_that_properties_do_not_say_are_headers() -> None:
    headers = [("a", b"x"), ("a", None), ("b", b"\xff"), ("penstock-x", b"y")]
    record = record_of(OutMessage(payload=b"", properties=properties_of(headers)), "", numbered=False)
    assert record.headers == [*headers[:3], ("penstock-property-penstock-x", b"y")]
    assert message_of(record).properties == {"a": "", "b": "/w==", "penstock-x": "y"}


def test_a_bad_kept_entry_is_a_message_of_its_value() -> None:
    assert message_of(NewRecord(b"value", None, [("penstock-entry", b"\xff")])).payload == b"value"


def test_what_has_no_bytes_is_refused() -> None:
    for message in (
        OutMessage(payload=b"", key="\ud800"),
        OutMessage(payload=b"", properties={"a": "\ud800"}),
    ):
        with pytest.raises(PenstockError) as caught:
            record_of(message, "", numbered=False)
        assert caught.value.kind is ErrorKind.BAD_ENCODING


@given(st.lists(messages(), min_size=1, max_size=4), st.booleans(), st.booleans())
def test_entries_of_clients_become_records_of_their_messages(
    outs: list[OutMessage], compress: bool, numbered: bool
) -> None:
    for out in outs:
        out.replicate_to = None
        if len(outs) > 1:
            out.deliver_at = 0
    entry = wire.encode(outs, producer="p", sequence_id=0, publish_time=50, schema_version=3)
    if compress:
        entry = admit(compressed(entry.data, LZ4))
    given_messages = wire.decode(Entry(0, 0, 0, entry.count, 50, 0, entry.data))
    records = records_of(entry, numbered=numbered)
    assert [record.timestamp for record in records] == [50] * len(outs)
    for offset, (record, before) in enumerate(zip(records, given_messages, strict=True)):
        found = message_of(record, 50, offset)
        before = msgspec.structs.replace(before, index=-1, offset=offset)
        if not numbered:
            before = msgspec.structs.replace(before, producer_name="", sequence_id=offset)
        assert found == before


def test_an_entry_that_only_its_receiver_can_open_comes_back_as_it_is() -> None:
    encryption = Encryption((EncryptionKey("owner", b"key"),), b"param", "", "LZ4", 100, 2)
    message = OutMessage(
        payload=b"secret", encryption=encryption, key="k", properties={"a": "b"}, deliver_at=99
    )
    entry = wire.encode([message], producer="p", sequence_id=1, publish_time=5, schema_version=2)
    (record,) = records_of(entry, numbered=False)
    assert (record.value, record.key) == (b"secret", b"k")
    back = entry_of(record)
    assert back.data == entry.data
    assert back.deliver_at == 99
    # The same message of an endpoint that encodes none.
    found = message_of(record_of(message, "p", numbered=True))
    assert (found.encryption, found.payload, found.key) == (
        msgspec.structs.replace(encryption, batch_size=0),
        b"secret",
        "k",
    )


def test_contiguous_counts_up_to_the_first_gap() -> None:
    def at(*offsets: int) -> list[Read]:
        return [Read(offset, 0, NewRecord(b"")) for offset in offsets]

    assert contiguous(at(3, 4, 5), 3) == 3
    assert contiguous(at(3, 4, 6), 3) == 2
    assert contiguous(at(3, 5, 6), 3) == 1


@given(
    st.none() | texts,
    st.none() | st.binary(max_size=20),
    st.dictionaries(texts, texts),
    st.integers(0, 2**60),
)
def test_the_fast_ways_write_what_the_entry_format_writes(
    key: str | None, value: bytes | None, properties: dict[str, str], offset: int
) -> None:
    message = OutMessage(payload=value or b"", key=key, properties=properties, null_value=value is None)
    record = NewRecord(
        value,
        None if key is None else key.encode(),
        [(name, text.encode()) for name, text in properties.items()] or None,
    )
    entry = wire.encode([message], producer="", sequence_id=offset, publish_time=7, schema_version=None)
    assert entry_of(record, 7, offset).data == entry.data
