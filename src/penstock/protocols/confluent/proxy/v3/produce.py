"""Producing in version 3: records of a stream or of a batch, and a result for each."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from penstock.model.confluent import ConfluentError
from penstock.model.errors import PenstockError
from penstock.model.headers import Headers
from penstock.model.names import TopicName
from penstock.protocols.confluent.proxy.call import shown
from penstock.protocols.confluent.proxy.codes import BY_KIND, KAFKA_ERROR, RETRIABLE
from penstock.protocols.confluent.proxy.produce import from_base64, json_version
from penstock.protocols.confluent.proxy.publishing import NewRecord
from penstock.protocols.confluent.proxy.schemas import UNREGISTERED
from penstock.protocols.payloads import TopicSchemas

from .call import KNOWN_ERRORS, V3Call
from .contents import BAD_REQUEST, Content, Contents
from .json_values import ShapeError
from .record_shapes import Failed, Record, Stored, StoredData

Outcome = Stored | Failed

_NO_HEADERS: Final[Headers] = ()
_FIVE_DIGITS: Final = 10_000
_TIME_MAX: Final = 253_402_300_799_999  # the last ms of the year 9999, which the answer can still show


class Producing:
    """Records to one topic, by one caller."""

    def __init__(self, call: V3Call, topic: TopicName) -> None:
        self._registered = schemas = call.proxy.schemas
        self._topic = topic
        self._cluster = call.cluster
        self._name = shown(topic)
        self._publishing = call.proxy.publishing
        self._clock = call.broker.clock
        self._schemas = call.broker.schemas
        self._framed = (
            call.broker.record_formats is not None
        )  # the engine writes values with their schemas' ids
        self._keys = Contents(schemas, topic, call.caller, keys=True)
        self._values = Contents(schemas, topic, call.caller, keys=False)

    async def publish(self, given: Sequence[Record | ShapeError]) -> list[Outcome]:
        """Publish records in their order; one that cannot be published fails alone."""
        results: list[Outcome | None] = [None] * len(given)
        places: list[int] = []
        records: list[NewRecord] = []
        contents: list[tuple[Content | None, Content | None]] = []
        self._keys.begin()
        self._values.begin()
        try:
            schemas = await self._publishing.open(self._topic)
        except PenstockError as error:
            return [failed(error)] * len(given)
        unversioned = _Unversioned(schemas, self._changes)
        for place, one in enumerate(given):
            try:
                if isinstance(one, ShapeError):
                    raise ConfluentError(BAD_REQUEST, f"Bad Request: Error processing JSON: {one}")
                if one.partition_id is not None:
                    self._publishing.check_partitions(self._topic, [one.partition_id])
                key = value = None
                if one.key is not None:
                    key = self._keys.encode_plain(one.key) or await self._keys.encode(one.key)
                if one.value is not None:
                    value = self._values.encode_plain(one.value) or await self._values.encode(one.value)
                record = self._record(unversioned, one, key, value)
            except (ConfluentError, PenstockError) as error:
                results[place] = failed(error)
                continue
            places.append(place)
            records.append(record)
            contents.append((key, value))
        now = _iso(self._clock.now_ms())
        try:
            stored = await self._publishing.publish(self._topic, schemas, records) if records else []
        except PenstockError as error:
            stored = [error] * len(records)
        for place, record, (key, value), done in zip(places, records, contents, stored, strict=True):
            if isinstance(done, PenstockError):
                results[place] = failed(done)
                continue
            results[place] = Stored(
                error_code=200,
                cluster_id=self._cluster,
                topic_name=self._name,
                partition_id=done.partition,
                offset=done.offset,
                timestamp=now if record.timestamp is None else _iso(record.timestamp),
                key=None if key is None else self._shown(key, record.key),
                value=None if value is None else self._shown(value, record.value),
            )
        return [Failed(500, "Internal Server Error") if one is None else one for one in results]

    def _changes(self) -> int:
        return self._schemas.changes

    def _record(
        self, unversioned: "_Unversioned", given: Record, key: Content | None, value: Content | None
    ) -> NewRecord:
        """Raises ConfluentError, PenstockError."""
        payload, version = None if value is None else value.payload, None
        if payload is None or value is None or value.schema is None:
            version = unversioned.version(given, value)
        else:
            registered = value.schema.version
            assert registered is not None, "it is registered"
            version = self._registered.version_in(self._topic, registered)
            if version is None:  # a schema of another subject
                payload = value.schema.framed(payload)
        return NewRecord(
            None if key is None else _framed(key),
            payload,
            version,
            given.partition_id,
            _headers(given) if given.headers else _NO_HEADERS,
            None if given.timestamp is None else _timestamp(given.timestamp),
        )

    def _shown(self, content: Content, stored: bytes | None) -> StoredData:
        size = 0 if stored is None else len(stored)
        version = None if content.schema is None else content.schema.version
        if version is None:
            return StoredData(type=content.type, size=size)
        assert content.schema is not None
        if stored is not None and self._framed and stored is content.payload:
            size += len(content.schema.framed(b""))
        return StoredData(
            type=content.type,
            subject=version.subject,
            schema_id=version.id,
            schema_version=version.version,
            size=size,
        )


class _Unversioned:
    """Whether values without a schema may be published, looked up again when a schema of any topic changes."""

    def __init__(self, schemas: TopicSchemas, changes: Callable[[], int]) -> None:
        self._schemas = schemas
        self._changes = changes
        self._at = -1
        self._of_json = False
        self._refused: PenstockError | None = None

    def version(self, given: Record, value: Content | None) -> int | None:
        """The topic's version of the schema of a value that names none. Raises PenstockError."""
        if self._at != self._changes():
            self._look()
        if self._of_json and value is not None and value.type == "JSON" and given.value is not None:
            return json_version(self._schemas, given.value.data)
        if self._refused is not None:
            raise self._refused
        return None

    def _look(self) -> None:
        self._at = self._changes()
        self._of_json = self._schemas.of_json
        self._refused = None
        try:
            self._schemas.check_unversioned()
        except PenstockError as error:
            self._refused = error


def _framed(key: Content) -> bytes | None:
    return key.payload if key.payload is None or key.schema is None else key.schema.framed(key.payload)


def _headers(given: Record) -> Headers:
    return [(one.name, None if one.value is None else from_base64(one.value)) for one in given.headers or ()]


def _timestamp(given: datetime) -> int:
    at = round(given.timestamp() * 1000)
    if at < 0:
        raise ConfluentError(
            BAD_REQUEST, f"Bad Request: Invalid timestamp: {at}. Timestamp should always be non-negative."
        )
    if at > _TIME_MAX:
        raise ConfluentError(
            BAD_REQUEST, f"Bad Request: Invalid timestamp: {at} is later than the year 9999."
        )
    return at


def _iso(ms: int) -> str:
    """A time as ISO 8601 in UTC, with milliseconds."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# -- errors


def failed(error: ConfluentError | PenstockError) -> Failed:
    """An error as the result of a record. Codes that only version 2 has go before the text."""
    if isinstance(error, ConfluentError):
        code, status = error.code.code, error.code.status
        if error.code == UNREGISTERED:
            code, status = 42207, 422
        if status == 422 and code >= _FIVE_DIGITS:
            return Failed(422, f"Error: {code} : {error.message}")
        return Failed(code, error.message)
    known = KNOWN_ERRORS.get(error.kind)
    if known is not None:
        return Failed(known.code.code, known.message)
    code = BY_KIND.get(error.kind, RETRIABLE if error.retriable else KAFKA_ERROR).code
    return Failed(code, error.message)
