"""Records become entries, and messages become records. One record is one message, and one entry of one message.

An entry's bytes are Pulsar's, made of the record: of a record that is nothing but a value, or a key and a value, by columns.
A record that no producer of ours numbered has its offset as sequence id, so that Key_Shared spreads messages without keys.
"""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from itertools import repeat
from typing import Final, NamedTuple

from penstock.model.entry import Entry, NewEntry, RecordRun, Stretch
from penstock.model.errors import PenstockError
from penstock.model.message import OutMessage
from penstock.model.message_id import run_varints
from penstock.wire.columns import plain_messages
from penstock.wire.contents import METADATA_AT, is_sealed, join, join_each, open_body
from penstock.wire.messages import read_messages
from penstock.wire.metadata import (
    Memo,
    integer,
    message_metadata,
    parse_metadata,
    properties,
    read_text,
    schema_version_bytes,
    signed,
    sized,
)

from .driver.record import Header, NewRecord, Record
from .framing import Framing, framed, version_of
from .headers import (
    ENTRY,
    KEY,
    KEY_BASE64,
    KEY_TEXT,
    Said,
    no_bytes,
    properties_and_version,
    read_headers,
    read_properties,
    write_headers,
)
from .versions import PAIR

_BEGIN: Final = b"\x0a\x00\x10"  # a producer without a name, and the tag of the sequence id
_TIME_MAX: Final = 2**63 - 1
_NULL_VALUE: Final = b"\xc8\x01\x01"
_TIMES: Final[Memo[int, bytes]] = Memo(lambda time: b"\x18" + integer(min(max(0, time), _TIME_MAX)))


def _key_field(key: bytes) -> bytes:
    text, is_base64 = _read_key(key, None)
    return b"\x32" + sized(text.encode()) + (b"\x88\x01\x01" if is_base64 else b"")


_KEYS: Final[Memo[bytes, bytes]] = Memo(_key_field)
# Of keys that have a schema: they are base64, as Pulsar's are.
_PAIR_KEYS: Final[Memo[bytes, bytes]] = Memo(lambda key: b"\x32" + sized(b64encode(key)) + b"\x88\x01\x01")
_VERSIONS: Final[Memo[int, bytes]] = Memo(lambda version: b"\x82\x01" + sized(schema_version_bytes(version)))


# -- records in


def entries_of(
    records: Sequence[Record], first: int, ledger: int, framing: Framing | None = None
) -> list[Entry]:
    """The entries of records with the offsets `first`, `first + 1`, …; `framing` is that of a topic with a schema registry.

    Raises nothing but UnknownSchemas, if there is a framing.
    """
    times = [record.timestamp()[1] for record in records]
    values = [record.value() for record in records]
    keys = [record.key() for record in records]
    headers = [record.headers() for record in records]
    versions = None if framing is None else framing.open(keys, values, headers)
    if any(headers):
        data, delays = _data_of_each(first, times, keys, values, headers, versions, framing)
    else:
        data, delays = _plain_data(first, times, keys, values, versions), None
    if delays is None:
        return [
            Entry(ledger, offset, offset, 1, time, 0, content)
            for offset, (time, content) in enumerate(zip(times, data, strict=True), first)
        ]
    return [
        Entry(ledger, offset, offset, 1, time, deliver_at, content)
        for offset, (time, content, deliver_at) in enumerate(zip(times, data, delays, strict=True), first)
    ]


class Columns(NamedTuple):
    """Records with these fields only; `properties` are None if none of them has any."""

    times: Sequence[int]
    versions: Sequence[int | None]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    properties: Sequence[dict[str, str]] | None


def columns_of(records: Sequence[Record], framing: Framing | None = None) -> Columns | None:
    """The records by columns; None if the headers of one may say more. Raises as `entries_of`."""
    headers = [record.headers() for record in records]
    versions: Sequence[int | None] = [None] * len(records)
    properties: list[dict[str, str]] = []
    if any(headers):
        said = [properties_and_version(some or ()) for some in headers]
        if None in said:
            return None
        properties = [one[0] for one in said if one]
        versions = [one[1] for one in said if one]
    values = [record.value() for record in records]
    keys = [record.key() for record in records]
    if framing is not None:
        found = framing.open(keys, values, headers) or repeat(None)
        versions = [
            version_of(one, other, own=framing.own) for one, other in zip(versions, found, strict=False)
        ]
    times = [record.timestamp()[1] for record in records]
    if min(times) < 0:
        times = [max(0, time) for time in times]
    return Columns(times, versions, keys, values, properties if any(properties) else None)


def runs_of(
    records: Sequence[Record], first: int, ledger: int, framing: Framing | None = None
) -> list[Stretch]:
    """The same as `entries_of` by columns; entries if one of the records has properties, or may say more. Raises as that does."""
    found = columns_of(records, framing)
    if found is None or found.properties is not None:
        return list[Stretch](entries_of(records, first, ledger, framing))
    return [RecordRun(ledger, first, first, *found[:4])]


def _plain_data(
    first: int,
    times: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    versions: Sequence[int | None] | None = None,
) -> list[bytes]:
    """Of records without headers."""
    heads = [
        _BEGIN + number + _TIMES[time]
        for number, time in zip(run_varints(first, len(times)), times, strict=True)
    ]
    if keys.count(None) < len(keys):
        pairs = repeat(False) if versions is None else map(_is_pair, versions)
        heads = [
            head if key is None else head + (_PAIR_KEYS if of_pair else _KEYS)[key]
            for head, key, of_pair in zip(heads, keys, pairs, strict=False)
        ]
    if versions is not None:
        heads = [
            head if version is None else head + _VERSIONS[version]
            for head, version in zip(heads, versions, strict=True)
        ]
    payloads = values
    if None in values:
        heads = [
            head + _NULL_VALUE if value is None else head for head, value in zip(heads, values, strict=True)
        ]
        payloads = [value or b"" for value in values]
    return join_each(heads, payloads)  # type: ignore[arg-type] # none of them is None


def _data_of_each(
    first: int,
    times: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Sequence[Header] | None],
    versions: Sequence[int | None] | None,
    framing: Framing | None,
) -> tuple[list[bytes], list[int]]:
    """The data of records, some with headers, and their delivery times; `versions` are those of their framing."""
    made: list[bytes] = []
    delays: list[int] = []
    for offset, (time, key, value, some) in enumerate(zip(times, keys, values, headers, strict=True), first):
        given = read_properties(some) if some else None
        version = None if versions is None else versions[offset - first]
        if given is not None or not some:
            made.append(_data_of(offset, time, key, value, given, version))
            delays.append(0)
            continue
        said = read_headers(some)
        if framing is not None:
            said.message.schema_version = version_of(said.message.schema_version, version, own=framing.own)
        kept = None if said.entry is None else _kept_entry(said.entry, value)
        data, deliver_at = kept or _described(said, offset, time, key, value)
        made.append(data)
        delays.append(deliver_at)
    return made, delays


def _data_of(
    offset: int,
    time: int,
    key: bytes | None,
    value: bytes | None,
    given: dict[str, str] | None,
    version: int | None,
) -> bytes:
    """Of one record, whose headers are properties only."""
    head = _BEGIN + integer(offset) + _TIMES[time]
    if given:
        head += properties(b"\x22", given)
    if key is not None:
        head += (_PAIR_KEYS if _is_pair(version) else _KEYS)[key]
    if version is not None:
        head += _VERSIONS[version]
    if value is None:
        return join(head + _NULL_VALUE, b"")
    return join(head, value)


def _described(
    said: Said, offset: int, time: int, key: bytes | None, value: bytes | None
) -> tuple[bytes, int]:
    message = said.message
    if key is not None:
        of_pair = _is_pair(message.schema_version)
        message.key, message.key_is_base64 = (
            (b64encode(key).decode(), True) if of_pair else _read_key(key, said.key_form)
        )
    message.null_value = value is None
    number = offset if message.sequence_id is None else message.sequence_id
    metadata = message_metadata(
        message, said.producer, number, min(max(0, time), _TIME_MAX), message.schema_version
    )
    return join(metadata, value or b""), message.deliver_at


def _kept_entry(head: bytes, payload: bytes | None) -> tuple[bytes, int] | None:
    """An entry that was stored unchanged, and its delivery time; None if it cannot be read."""
    try:
        metadata = parse_metadata(head)
    except PenstockError:
        return None
    return join(head, payload or b""), max(0, signed(metadata.deliver_at_time))


def _is_pair(version: int | None) -> bool:
    """Whether a message's key has a schema, too."""
    return version is not None and version >= PAIR


def _read_key(key: bytes, form: bytes | None) -> tuple[str, bool]:
    """A key as a message has it, and whether that is base64."""
    try:
        if form == KEY_TEXT:
            return key.decode(), True
        if form is None:
            return key.decode(), False
    except UnicodeDecodeError:
        pass
    return b64encode(key).decode(), True


# -- messages out


def record_of(
    message: OutMessage, producer: str, *, numbered: bool, framing: Framing | None = None
) -> NewRecord:
    """The record of a message; `producer` is the name that is kept in it, "" for none, and `numbered`: its sequence id, too.

    Raises BAD_ENCODING for texts that have no bytes, and numbers beyond 64 bits; SCHEMA_NOT_FOUND if `framing`, that of a
    topic with a schema registry, does not know its schema.
    """
    try:
        if message.encryption is not None:
            metadata = message_metadata(
                message, producer, message.sequence_id or 0, 0, message.schema_version
            )
            return NewRecord(message.payload, _write_key(message)[0], [(ENTRY, metadata)])
        key, form = (None, None) if message.key is None else _write_key(message)
        headers = write_headers(message, producer, numbered=numbered)
        if _is_pair(message.schema_version):
            form = None  # such a key is base64 for every reader
        value = None if message.null_value else message.payload
        key, value, more = framed(key, value, message.schema_version, framing)
        headers += more
        if form is not None:
            headers.append((KEY, form))
        return NewRecord(value, key, headers or None, message.record_time)
    except UnicodeEncodeError:
        raise no_bytes() from None


def _write_key(message: OutMessage) -> tuple[bytes | None, bytes | None]:
    """The key of a record, and what a header has to say of it."""
    text = message.key
    if text is None:
        return None, None
    if not message.key_is_base64:
        return text.encode(), None
    try:
        key = b64decode(text, validate=True)
    except (Base64Error, ValueError):
        return text.encode(), KEY_TEXT
    if b64encode(key).decode() != text:
        return text.encode(), KEY_TEXT
    try:
        key.decode()
    except UnicodeDecodeError:
        return key, None  # which itself says that it is not text
    return key, KEY_BASE64


def records_of(entry: NewEntry, *, numbered: bool, framing: Framing | None = None) -> list[NewRecord]:
    """The records of an entry that a client made, one of each message; `numbered`: with its producer and sequence ids.

    What only its receiver can open, encrypted or a chunk, is one record that any reader of ours gives as it came.
    Raises CHECKSUM or BAD_ENCODING, and as `record_of`.
    """
    time = entry.publish_time
    plain = None if numbered else plain_messages(Entry(0, 0, 0, entry.count, time, 0, entry.data))
    if plain is not None:
        made = []
        for payload in plain.payloads:
            _, value, headers = framed(None, payload, plain.schema_version, framing)
            made.append(NewRecord(value, None, headers or None, time))
        return made
    body, at = open_body(entry.data)
    head = body[METADATA_AT:at]
    metadata = parse_metadata(head)
    if is_sealed(metadata):
        key = metadata.partition_key if metadata.HasField("partition_key") else None
        return [NewRecord(body[at:], None if key is None else read_text(key).encode(), [(ENTRY, head)], time)]
    found = []
    for message in read_messages(entry.data, 0):
        outgoing, producer = message.again(), message.producer_name if numbered else ""
        if not numbered:
            outgoing.sequence_id = None
        record = record_of(outgoing, producer, numbered=numbered, framing=framing)
        record.timestamp = time
        found.append(record)
    return found
