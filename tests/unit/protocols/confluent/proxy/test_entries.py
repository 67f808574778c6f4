"""Entries as records: every kind of entry, from any offset on."""

from penstock.broker.groups import TopicPartition
from penstock.model.entry import Entry, NewEntry
from penstock.model.headers import properties_of
from penstock.model.message import Encryption, EncryptionKey, OutMessage
from penstock.model.names import TopicName
from penstock.protocols.confluent.proxy.entries import records_of
from penstock.wire import entry as wire

PLACE = TopicPartition(TopicName.parse("orders"), 3)


def stored(new: NewEntry, offset: int = 10) -> Entry:
    return Entry(0, 7, offset, new.count, new.publish_time, 0, new.data)


def encoded(*messages: OutMessage, schema_version: int | None = None) -> Entry:
    made = wire.encode(
        messages, producer="p", sequence_id=0, publish_time=1000, schema_version=schema_version
    )
    return stored(made)


def test_plain_messages_from_an_offset_on() -> None:
    entry = encoded(*(OutMessage(payload=b"%d" % n) for n in range(3)), schema_version=4)
    found = records_of(PLACE, entry, 11)
    assert [(one.offset, one.value, one.key, one.schema_version) for one in found] == [
        (11, b"1", None, 4),
        (12, b"2", None, 4),
    ]
    assert {(one.topic.local, one.partition, one.timestamp) for one in found} == {("orders", 3, 1000)}
    assert len(records_of(PLACE, entry, 0)) == 3


def test_keys_nulls_headers_and_times() -> None:
    headers = [("a", b"x"), ("a", None)]
    entry = encoded(
        OutMessage(payload=b"", key="k", null_value=True),
        OutMessage(payload=b"v", key="AAE=", key_is_base64=True, event_time=5),
        OutMessage(payload=b"w", key="not base64", key_is_base64=True, properties=properties_of(headers)),
    )
    first, second, third = records_of(PLACE, entry, 0)
    assert (first.key, first.value, first.timestamp) == (b"k", None, 1000)
    assert (second.key, second.value, second.timestamp) == (b"\x00\x01", b"v", 5)
    assert (third.key, list(third.headers)) == (b"not base64", headers)
    assert third.size == 10 + 1 + 3


def test_an_entry_that_cannot_be_opened_is_one_record_with_the_reason() -> None:
    whole = encoded(*(OutMessage(payload=b"x" * 50, key="k") for _ in range(3)))
    broken = Entry(0, 7, 10, 3, 1000, 0, whole.data[:-40])
    (record,) = records_of(PLACE, broken, 0)
    assert (record.offset, record.key, record.value) == (10, None, None)
    assert record.error


def test_an_encrypted_batch_is_one_record_and_only_once() -> None:
    sealed = Encryption(keys=(EncryptionKey("k", b"x"),), param=b"p", batch_size=3)
    alone = OutMessage(payload=b"sealed", encryption=sealed)
    entry = Entry(0, 7, 10, 3, 1000, 0, encoded(alone).data)
    (record,) = records_of(PLACE, entry, 10)
    assert (record.offset, record.error) == (10, "it is encrypted")
    assert records_of(PLACE, entry, 11) == []
