"""Messages written by columns are what each message is, written by itself."""

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.wire.messages import PAYLOAD, SEQUENCE, TEXT, out_messages

from penstock.broker.broker import Broker
from penstock.broker.capability import Capability
from penstock.broker.log import Log
from penstock.broker.schemas import Schemas
from penstock.model.entry import Entry, NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.model.schema import STRING_SCHEMA, SchemaInfo, SchemaType
from penstock.protocols.rest.encoding import Encoding, id_in
from penstock.protocols.rest.messages import ReadMessage, show, show_closed
from penstock.protocols.rest.parts import Decoding, Part
from penstock.protocols.values import Form, Values
from penstock.wire import entry as wire

JSON = SchemaInfo(SchemaType.JSON)
AVRO = SchemaInfo(SchemaType.AVRO, b'{"type":"record","name":"r","fields":[{"name":"s","type":"string"}]}')
LATIN = SchemaInfo(SchemaType.STRING, properties={"__charset": "ISO-8859-1"})
PAIR = SchemaInfo(SchemaType.KEY_VALUE, b"\0\0\0\0\0\0\0\0", properties={"kv.encoding.type": "INLINE"})
SCHEMAS = [STRING_SCHEMA, JSON, AVRO, LATIN, SchemaInfo(SchemaType.INT32), SchemaInfo(SchemaType.BYTES), PAIR]
UNKNOWN = len(SCHEMAS)  # the version of a schema that was deleted

PAYLOADS = st.one_of(
    PAYLOAD,
    st.text(max_size=130).map(str.encode),
    st.sampled_from(
        [b"7", b'{"a":"\\n\\" \\u00e9"}', b"\x08abcd", b'"\\ud800"', b"1" * 30, b"NaN", b"\0\0\0\7"]
    ),
)
FORMS = st.sampled_from(("json", "json", "base64", "text"))
VERSIONS = st.none() | st.integers(0, UNKNOWN)


class Known:
    """The schemas of every topic."""

    def version(self, topic: TopicName, number: int) -> Any:
        if number >= UNKNOWN:
            raise PenstockError(ErrorKind.SCHEMA_NOT_FOUND, f"there is no schema {number}")
        return SimpleNamespace(schema=SCHEMAS[number])


class Engine(msgspec.Struct):
    """What can be done with the entries."""

    capabilities: frozenset[Capability]


class FakeLog:
    """As much of a log as a message shows."""

    def __init__(self, ledger: int, partition: int) -> None:
        self.ledger = ledger
        self.partition = max(0, partition)
        self.name = TopicName.parse("t") if partition < 0 else TopicName.parse("t").of_partition(partition)

    def id_of(self, entry: Entry, index: int) -> MessageId:
        if index < 0:
            return MessageId(entry.ledger, entry.entry_id, self.name.partition)
        return MessageId(entry.ledger, entry.entry_id, self.name.partition, index, entry.count)


@st.composite
def entries(draw: st.DrawFn) -> list[Entry]:
    """Entries in a row: plain ones alone and in batches, any others, and broken ones."""
    producer = draw(TEXT)
    entry_id, offset = draw(st.integers(0, 2**40)), draw(SEQUENCE)
    found: list[Entry] = []
    ledger = 1
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):  # the log of a cluster has many
            ledger, entry_id = ledger + 1, 0
        version, time = draw(VERSIONS), draw(st.sampled_from([0, 1_700_000_000_000, 2**62]))
        given: dict[str, Any] = {
            "producer": draw(st.just(producer) | TEXT),
            "sequence_id": draw(st.integers(0, 3) | SEQUENCE),
            "publish_time": time,
            "schema_version": version,
        }
        made: NewEntry
        if draw(st.integers(0, 3)):
            payloads = draw(st.lists(PAYLOADS, min_size=1, max_size=draw(st.sampled_from([1, 9]))))
            made = wire.encode_plain(payloads, **given)
        else:
            messages: list[OutMessage] = draw(st.lists(out_messages(delayed=False), min_size=1, max_size=4))
            made = wire.encode(messages, **given)
        data = made.data
        if not draw(st.integers(0, 9)):
            data = data[:-1] + bytes((data[-1] ^ 1,))
        found.append(Entry(ledger, entry_id, offset, made.count, made.publish_time, made.deliver_at, data))
        entry_id += 1
        offset += made.count
    return found


def one_by_one(values: Values, log: FakeLog, part: Part, mask: int, *, numbered: bool) -> list[ReadMessage]:
    """The messages of a part without any columns."""
    entry, count = part.entry, part.entry.count
    places = [place for place in range(count) if mask >> place & 1]
    try:
        messages = wire.decode(entry)
    except PenstockError as error:
        return [
            show_closed(
                log.partition,
                str(log.id_of(entry, place if count > 1 else -1)),
                entry,
                place,
                part.redeliveries,
                error,
                numbered=numbered,
            )
            for place in places
        ]
    return [
        show(
            values,
            log.partition,
            str(log.id_of(entry, messages[n].index)),
            messages[n],
            part.redeliveries,
            numbered=numbered,
        )
        for n in places
    ]


def written(message: ReadMessage) -> str:
    try:
        return msgspec.json.encode(message).decode()
    except (ValueError, OverflowError, TypeError):
        message.key = message.value = None
        message.error_code, message.error = 1, "value: JSON cannot hold it"
        return msgspec.json.encode(message).decode()


@given(st.data(), entries(), FORMS, st.integers(-1, 300), st.none() | st.integers(0, 2))
def test_columns_write_what_each_message_is(
    data: st.DataObject, stored: list[Entry], form: Form, partition: int, redeliveries: int | None
) -> None:
    log = FakeLog(1, partition)
    numbered = data.draw(st.booleans())
    engine = Engine(frozenset(Capability) if numbered else frozenset())
    decoding = Decoding(cast(Broker, engine))
    values = Values(cast(Schemas, Known()), log.name, form=form)
    expected: list[ReadMessage] = []
    parts: list[Part] = []
    sizes: list[int] = []
    for entry in stored:
        mask = data.draw(st.just((1 << entry.count) - 1) | st.integers(1, (1 << entry.count) - 1))
        part = decoding.part(cast(Log, log), entry, mask, redeliveries)
        assert part.mask == mask
        parts.append(part)
        sizes += part.sizes
        expected += one_by_one(values, log, part, mask, numbered=numbered)
    shown = Encoding(decoding, values).encode(parts)
    assert [id_in(text) for text in shown.texts] == [one.message_id for one in expected]
    assert shown.texts == [written(one) for one in expected]
    assert shown.versions == {one.schema_version for one in expected}
    assert len(sizes) == len(expected)


def test_messages_alone_of_one_producer_are_written_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One look at the schema, and one call of the JSON encoder, for all of them."""
    log = FakeLog(1, -1)
    decoding = Decoding()
    values = Values(cast(Schemas, Known()), log.name)
    calls: list[int] = []
    decode = values.decode_plain
    monkeypatch.setattr(
        values, "decode_plain", lambda some, version: calls.append(len(some)) or decode(some, version)
    )
    parts = []
    for n, name in enumerate(["a", "a", "a", "b"]):
        made = wire.encode_plain([b"x"], producer=name, sequence_id=n, publish_time=n, schema_version=0)
        parts.append(decoding.part(cast(Log, log), Entry(1, n, n, 1, n, 0, made.data), 1))
    texts = Encoding(decoding, values).encode(parts).texts
    assert [msgspec.json.decode(text)["sequenceId"] for text in texts] == [0, 1, 2, 3]
    assert calls == [3, 1]


def test_what_was_decoded_is_not_decoded_again() -> None:
    made = wire.encode_plain([b"a", b"b"], producer="p", sequence_id=0, publish_time=1, schema_version=None)
    entry = Entry(1, 0, 0, 2, 1, 0, made.data)
    decoding, log = Decoding(), cast(Log, FakeLog(1, -1))
    assert decoding.part(log, entry, 1).opened is decoding.part(log, entry, 2).opened
