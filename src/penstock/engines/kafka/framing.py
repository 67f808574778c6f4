"""Confluent's framing of a topic's values, and of keys that have schemas: which version of the topic's schema a record is of.

    0x00 | the schema's id, 4 bytes, big-endian | (Protobuf: message indexes) | payload

A value that only looks like it, as the registry has no such id, is taken as it is. Ids that are not known yet are reported, and
learned before the records are handed on; while the registry is away they stand for themselves: the version is `BY_ID` + id, as
it is for ids of another subject, and is found later. Values of ours with a schema that is not in the registry say so in a
header, as do those without a schema that look framed. Keys are looked at where the topic has a key's subject.

Message indexes name a message of the schema's file, as zigzag varints: how many indexes there are, and they: the number of a
message of the file, of one within it, … The file's first message is a single 0. The entries of maps count, as they do in
descriptors.
"""

from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from penstock.broker.records import SchemaId
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.subjects import HEAD_BYTES, INDEXES_MAX, MAGIC
from penstock.runtime.clock import Clock

from .driver.record import Header
from .headers import ENTRY, SCHEMA_VERSION, UNVERSIONED, schema_header
from .versions import BY_ID, DOCUMENTS, MESSAGE, is_document, pair, split_message, split_pair

FIRST: Final = (b"\0", b"\x02\0")  # both say: the first message of the file
IDS_MAX: Final = 10_000  # of a topic that are remembered
NONE_MS: Final = 60_000  # so long an id that the registry has not is not asked for again
_UNFRAMED: Final = frozenset((SCHEMA_VERSION, ENTRY))  # a record with one of these says itself what it is


def encode_indexes(place: Sequence[int]) -> bytes:
    """Those of one message."""
    if tuple(place) == (0,):
        return b"\0"
    found = bytearray()
    for number in (len(place), *place):
        left = number << 1
        while left > 0x7F:
            found.append(left & 0x7F | 0x80)
            left >>= 7
        found.append(left)
    return bytes(found)


def read_indexes(value: bytes, first: int, messages: dict[bytes, int]) -> tuple[int, int]:
    """Which of the messages, which are known by their indexes, those at `first` name, and where they end; -1 for none."""
    if value[first : first + 1] == FIRST[0]:
        return 0, first + 1
    count, at = _integer(value, first)
    if count & 1 or count >> 1 > INDEXES_MAX:  # zigzag: an odd number is below 0
        return -1, at
    for _ in range(count >> 1):
        _, at = _integer(value, at)
    return messages.get(value[first:at], -1), at


def _integer(value: bytes, at: int) -> tuple[int, int]:
    """A varint of at most 5 bytes, and where it ends; -1 if there is none."""
    number = 0
    for shift, byte in enumerate(value[at : at + 5]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, at + shift + 1
    return -1, at


Framed = tuple[bytes | None, bytes | None, list[Header]]


class UnknownSchemas(Exception):
    """Records have ids of schemas that are to be learned first, of values and of keys."""

    def __init__(self, ids: Collection[bytes], keys: Collection[bytes] = ()) -> None:
        super().__init__(f"{len(ids) + len(keys)} unknown schemas")
        self.ids = ids
        self.keys = keys


class UnknownVersion(PenstockError):
    """A message names a version that is not known here: it is to be found first."""

    def __init__(self, topic: TopicName, version: int) -> None:
        super().__init__(ErrorKind.SCHEMA_NOT_FOUND, f"{topic} has no schema version {version}")
        self.version = version


class _Known(msgspec.Struct, frozen=True, gc=False):
    """What an id means: a version, or no schema (None). `messages`: of Protobuf, by their indexes; `until_ms` 0: for good."""

    version: int | None
    messages: dict[bytes, int] | None = None
    until_ms: int = 0


class _Written(msgspec.Struct, frozen=True, gc=False):
    """What stands in front of values of a version; `indexes` of each message, if it is Protobuf."""

    head: bytes
    indexes: Sequence[bytes] | None = None


class Framing:
    """Of one topic. `keyed`: whether keys have schemas; None: not known yet. `own`: the ids are those of this server's registry, so that
    numbers of documents are versions as they are, and values are framed if `writes` is set and their version has an id."""

    def __init__(
        self, topic: TopicName, clock: Clock, *, keyed: bool | None = None, own: bool = False
    ) -> None:
        self.topic = topic
        self.own = own
        self.writes = not own
        self.keyed = keyed
        self._clock = clock
        self._values: OrderedDict[bytes, _Known] = OrderedDict()
        self._keys: OrderedDict[bytes, _Known] = OrderedDict()
        self._written: dict[int, _Written] = {}
        self._key_heads: dict[int, bytes] = {}
        self._plain: set[int] = set()  # versions that get no id

    # -- what is known

    def know(self, number: int, version: int, indexes: Sequence[bytes] | None = None) -> None:
        """An id is a version of the topic; `indexes`: of Protobuf, those of each message."""
        head = number.to_bytes(4, "big")
        messages = None if indexes is None else _messages(indexes)
        _put(self._values, head, _Known(version, messages))
        if len(self._written) >= IDS_MAX:
            self._written.clear()
        self._written[version] = self._written[BY_ID + number] = _Written(MAGIC + head, indexes)

    def know_key(self, number: int, version: int) -> None:
        """An id is a version of the keys' subject."""
        head = number.to_bytes(4, "big")
        _put(self._keys, head, _Known(version))
        if len(self._key_heads) >= IDS_MAX:
            self._key_heads.clear()
        self._key_heads[version] = MAGIC + head

    def leave_plain(self, version: int) -> None:
        """A version of the server's own registry has no id."""
        self._plain.add(version)

    def guess(self, head: bytes, version: int | None, for_ms: int = NONE_MS) -> None:
        """An id is taken for a version, or for no schema's, for some time."""
        like = version is not None and any(one.indexes for one in self._written.values())
        messages = dict.fromkeys(FIRST, 0) if like else None  # the topic's other values are Protobuf, too
        _put(self._values, head, _Known(version, messages, self._clock.monotonic_ms() + for_ms))

    def guess_none(self, head: bytes) -> None:
        """An id is taken for no schema's, for some time."""
        self.guess(head, None)

    def guess_key(self, head: bytes, for_ms: int | None = None) -> None:
        """An id in front of a key is taken for no schema's, for some time."""
        _put(self._keys, head, _Known(None, None, self._clock.monotonic_ms() + (for_ms or NONE_MS)))

    def knows_key(self, head: bytes) -> bool:
        """Whether an id is a version of the keys' subject."""
        known = self._keys.get(head)
        return known is not None and known.version is not None

    def knows(self, version: int) -> bool:
        """Whether `frame` can write this version as it should be."""
        if self.own and version < BY_ID:
            return not self.writes or version in self._written or version in self._plain
        parts = split_pair(version)
        if parts is not None:
            return parts[0] in self._key_heads and (not parts[1] or parts[1] in self._written)
        return is_document(version) or split_message(version)[0] in self._written

    @property
    def empty(self) -> bool:
        """Whether no id is known to be of a schema."""
        return not self._written

    # -- what is known, for other processes

    def meaning(self, number: int, *, of_keys: bool) -> SchemaId | None:
        """What an id in front of values, or of keys, means; None if it is not known."""
        known = (self._keys if of_keys else self._values).get(number.to_bytes(4, "big"))
        if known is None or self._is_over(known):
            return None
        indexes = None
        if known.messages is not None:  # in the order of the messages; the first has two forms
            later = sorted((at, one) for one, at in known.messages.items() if at)
            indexes = [FIRST[0], *(one for _, one in later)]
        for_ms = known.until_ms and known.until_ms - self._clock.monotonic_ms()
        return SchemaId(id=number, version=known.version, indexes=indexes, for_ms=for_ms)

    def take(self, found: SchemaId, *, of_keys: bool) -> None:
        """Know what another process's `meaning` says."""
        messages = None if found.indexes is None else _messages(found.indexes)
        until_ms = found.for_ms and self._clock.monotonic_ms() + found.for_ms
        known = _Known(found.version, messages, until_ms)
        _put(self._keys if of_keys else self._values, found.id.to_bytes(4, "big"), known)

    # -- records out and in

    def frame(self, key: bytes | None, value: bytes | None, version: int | None) -> Framed:
        """Key and value of a record, and its headers that concern them; raises UnknownVersion."""
        if version is None:
            like = _looks_framed(value) or (self.keyed and _looks_framed(key))
            return key, value, [UNVERSIONED] if like else []
        if is_document(version):
            return key, value, [] if value is None else schema_header(version - DOCUMENTS)
        if self.own and version < BY_ID and not (self.writes and version in self._written):
            return key, value, [] if value is None else schema_header(version)
        parts = split_pair(version)
        if parts is not None:
            if not self.knows(version):
                raise UnknownVersion(self.topic, version)
            if key is not None:
                key = self._key_heads[parts[0]] + key
            return (key, value, []) if not parts[1] else (key, self._framed(value, parts[1]), [])
        return key, self._framed(value, version), []

    def _framed(self, value: bytes | None, version: int) -> bytes | None:
        if value is None:
            return None
        base, message = split_message(version)
        written = self._written.get(base)
        if written is None:
            raise UnknownVersion(self.topic, version)
        if written.indexes is None:
            if message:
                raise UnknownVersion(self.topic, version)
            return written.head + value
        if message >= len(written.indexes):
            raise UnknownVersion(self.topic, version)
        return written.head + written.indexes[message] + value

    def open(
        self,
        keys: list[bytes | None],
        values: list[bytes | None],
        headers: Sequence[Sequence[Header] | None],
    ) -> list[int | None] | None:
        """Take the framing from keys and values, in place; returns the versions, None if there is none.

        Raises UnknownSchemas, and changes nothing then.
        """
        versions: list[int | None] = [None] * len(values)
        opened: dict[int, bytes] = {}
        unknown: set[bytes] = set()
        ids = self._values
        for at, value in enumerate(values):
            if value is None or value[:1] != MAGIC or len(value) < HEAD_BYTES:
                continue
            if headers[at] and _says(headers[at]):
                continue
            head = value[1:HEAD_BYTES]
            known = ids.get(head)
            if known is None or (known.until_ms and self._is_over(known)):
                unknown.add(head)
            elif known.version is None:
                pass
            elif known.messages is None:
                versions[at] = known.version
                opened[at] = value[HEAD_BYTES:]
            else:
                message, end = read_indexes(value, HEAD_BYTES, known.messages)
                if message >= 0:
                    versions[at] = known.version + message * MESSAGE
                    opened[at] = value[end:]
        names = {} if self.keyed is False else self._open_keys(keys, headers, versions, unknown)
        if unknown:
            raise UnknownSchemas(unknown)
        for at, content in opened.items():
            values[at] = content
        for at, content in names.items():
            keys[at] = content
        return versions if opened or names else None

    def _open_keys(
        self,
        keys: Sequence[bytes | None],
        headers: Sequence[Sequence[Header] | None],
        versions: list[int | None],
        unknown: Collection[bytes],
    ) -> dict[int, bytes]:
        """The keys without their framing; `versions` gets those of pairs. Raises UnknownSchemas."""
        opened: dict[int, bytes] = {}
        missing: set[bytes] = set()
        for at, key in enumerate(keys):
            if key is None or not _looks_framed(key) or _says(headers[at]):
                continue
            head = key[1:HEAD_BYTES]
            known = self._keys.get(head) if self.keyed else None
            if known is None or self._is_over(known):
                missing.add(head)
            elif known.version is not None:
                version = pair(known.version, versions[at] or 0)
                if version is not None:
                    versions[at] = version
                    opened[at] = key[HEAD_BYTES:]
        if missing:
            raise UnknownSchemas(unknown, missing)
        return opened

    def _is_over(self, known: _Known) -> bool:
        return 0 < known.until_ms <= self._clock.monotonic_ms()


def _messages(indexes: Sequence[bytes]) -> dict[bytes, int]:
    """The messages of a file by their indexes."""
    return {one: at for at, one in enumerate(indexes)} | dict.fromkeys(FIRST, 0)


def _put(among: OrderedDict[bytes, _Known], head: bytes, known: _Known) -> None:
    among.pop(head, None)
    among[head] = known
    if len(among) > IDS_MAX:
        among.popitem(last=False)


def _looks_framed(content: bytes | None) -> bool:
    return content is not None and content[:1] == MAGIC and len(content) >= HEAD_BYTES


def _says(headers: Sequence[Header] | None) -> bool:
    return bool(headers) and any(name in _UNFRAMED for name, _ in headers or ())


def version_of(said: int | None, found: int | None, *, own: bool = False) -> int | None:
    """The version of a record by its header, which is the number of a document, or else by its framing; `own`: as of `Framing`."""
    if said is None:
        return found
    if not 0 <= said < DOCUMENTS:
        return None
    return said if own else said + DOCUMENTS


def framed(key: bytes | None, value: bytes | None, version: int | None, framing: Framing | None) -> Framed:
    """A record's key and value, and the headers that say of which schema it is; raises as `Framing.frame`."""
    if framing is not None:
        return framing.frame(key, value, version)
    return key, value, [] if version is None else schema_header(version)
