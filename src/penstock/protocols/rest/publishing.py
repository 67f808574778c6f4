"""Publishing what a produce request asks for, whatever its dialect; a bad message fails alone (PIP-64)."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from penstock.broker.names import check_partition
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.message_id import MessageId
from penstock.protocols.declarations import Declaration
from penstock.protocols.http.answers import BodyError
from penstock.protocols.limits import Limits
from penstock.protocols.payloads import BoundSchema, TopicSchemas
from penstock.protocols.producer_cache import CachedProducer
from penstock.protocols.trace import traced

from .operations import Target
from .produce_shapes import ProduceMessage
from .services import Services

LOCAL_ONLY: Final = "__local__"  # Pulsar's mark of a message that is not replicated

Result = MessageId | PenstockError
Encode = Callable[[BoundSchema, Any, Any], OutMessage]


class Published(msgspec.Struct):
    """One result and one schema version a message; the version the request itself named or got."""

    results: list[Result]
    versions: list[int | None]
    version: int | None
    own_versions: bool


class Job(msgspec.Struct, kw_only=True):
    """A request as it is worked on: its messages, or why one could not be read."""

    target: Target
    producer_name: str
    declaration: Declaration
    messages: Sequence[ProduceMessage | PenstockError]
    base64: bool = False
    encode: Encode = BoundSchema.encode
    trace: dict[str, str] | None = None  # properties that carry on the request's trace


class Ready(msgspec.Struct, gc=False):
    """A message that can be published, its schema, and its place in the request."""

    out: OutMessage
    schema: BoundSchema
    place: int


class Prepared(msgspec.Struct):
    """The messages that can be published, and by their places why the others cannot."""

    named: BoundSchema | None  # by the request
    ready: list[Ready] = []
    failed: dict[int, PenstockError] = {}
    own_versions: bool = False
    first: BoundSchema | None = None  # of those to register
    unnamed: bool = False  # whether a value without a schema is to bring its own

    def check(self) -> None:
        """Raise the one error of a request none of whose messages could be understood."""
        if self.ready:
            return
        errors = list(self.failed.values())
        if len({error.kind for error in errors}) == 1:
            raise errors[0]
        raise PenstockError(
            ErrorKind.BAD_MESSAGE, f"no message could be understood; the first: {errors[0].message}"
        )

    def fail(self, schema: BoundSchema, error: PenstockError) -> None:
        """The messages of a schema cannot be published."""
        self.failed |= {one.place: error for one in self.ready if one.schema is schema}
        self.ready = [one for one in self.ready if one.schema is not schema]

    def version(self) -> int | None:
        """The request's own schema version, or the one that all its messages have."""
        if self.named is not None:
            return self.named.version
        used = {one.out.schema_version for one in self.ready}
        return used.pop() if len(used) == 1 else None


async def publish(rest: Services, job: Job) -> Published:
    """Encode and publish. Raises when no message was published for one and the same kind of reason, and
    BAD_MESSAGE when none could be understood."""
    cached, prepared = await prepare(rest, job)
    results: dict[int, Result] = dict(prepared.failed)
    published = await cached.producer.publish([one.out for one in prepared.ready])
    results |= zip([one.place for one in prepared.ready], published, strict=True)
    errors = [result for result in results.values() if isinstance(result, PenstockError)]
    if len(errors) == len(results) and len({error.kind for error in errors}) == 1:
        raise errors[0]
    versions: list[int | None] = [None] * len(job.messages)
    for one in prepared.ready:
        versions[one.place] = one.out.schema_version
    whole = [results[index] for index in range(len(job.messages))]
    return Published(whole, versions, prepared.version(), prepared.own_versions)


async def prepare(rest: Services, job: Job, *, again: bool = True) -> tuple[CachedProducer, Prepared]:
    """Everything before publishing: encode, then make the topic and register schemas as needed.

    What cannot be understood makes no topic and registers no schema.
    """
    topic = job.target.topic
    cached = rest.producers.ready(topic, job.producer_name)
    if cached is None and not rest.producers.may_make(topic):
        raise rest.broker.topics.missing(topic)
    partitions = rest.producers.partitions(topic)
    if job.target.partition is not None:
        check_partition(job.target.partition, partitions)
    topic_schemas = TopicSchemas(rest.broker.schemas, topic) if cached is None else cached.topic_schemas
    prepared = await _encode_all(rest, job, topic_schemas, partitions)
    prepared.check()
    if cached is None:
        cached = await rest.producers.get(topic, job.producer_name, topic_schemas)
    fresh = {id(one.schema): one.schema for one in prepared.ready if one.schema.fresh is not None}
    if fresh:
        cached.producer.topics[0].check_open()  # a terminated topic gets no more schemas either
    for schema in fresh.values():
        try:
            await cached.topic_schemas.register(schema)
        except PenstockError as error:  # it may not follow another of this request
            if again and prepared.unnamed and error.kind is ErrorKind.INCOMPATIBLE_SCHEMA:
                # Or another request was quicker, and decided what values without a schema are here.
                return await prepare(rest, job, again=False)
            prepared.fail(schema, error)
            continue
        for one in prepared.ready:
            if one.schema is schema:
                one.out.schema_version = schema.version
    prepared.check()
    return cached, prepared


async def _encode_all(rest: Services, job: Job, topic_schemas: TopicSchemas, partitions: int) -> Prepared:
    named = None
    if not job.declaration.empty:
        named = await topic_schemas.scheme(job.declaration, register=False)
    done = Prepared(named)
    now, bytes_max = rest.broker.clock.now_ms(), rest.broker.settings.max_message_bytes
    for index, message in enumerate(job.messages):
        try:
            if isinstance(message, PenstockError):
                raise message
            schema = named
            if not message.empty:
                done.own_versions = True
                schema = await topic_schemas.scheme(message, register=False)
            encoded = message.encoding == "base64" if message.encoding is not None else job.base64
            if message.value is msgspec.UNSET:
                raise BodyError(ErrorKind.BAD_MESSAGE, "value: missing (null is a value)")
            if schema is None:
                schema = topic_schemas.unnamed(None if encoded else message.value, done.first)
                done.unnamed = done.unnamed or schema.fresh is not None
            encode = BoundSchema.encode_base64 if encoded else job.encode
            out = encode(schema, message.value, message.key)
            if message.key_is_base64:
                schema.take_bytes_key(out, encoded=encoded)
            _fill(out, message, job.target.partition, now, rest.limits)
            if job.trace is not None:
                out.properties = traced(out.properties, job.trace)
            # What the producer checks too: here before a topic is made or a schema registered for nothing.
            if len(out.payload) > bytes_max:
                raise PenstockError(
                    ErrorKind.TOO_LARGE, f"a message of {len(out.payload)} bytes; the most is {bytes_max}"
                )
            if out.partition is not None:
                check_partition(out.partition, partitions)
        except PenstockError as error:
            done.failed[index] = error
        else:
            done.ready.append(Ready(out, schema, index))
            if done.first is None and schema.fresh is not None:
                done.first = schema
    return done


def _fill(out: OutMessage, message: ProduceMessage, partition: int | None, now: int, limits: Limits) -> None:
    """Set the fields of a message other than its value and key."""
    if partition is not None and message.partition not in (None, partition):
        raise PenstockError(
            ErrorKind.BAD_MESSAGE, f"partition: {message.partition} in a request to partition {partition}"
        )
    out.partition = message.partition if partition is None else partition
    out.sequence_id = message.sequence_id
    if message.event_time:
        out.event_time = message.event_time
    properties = message.properties
    if properties:
        size = sum(len(k.encode()) + len(v.encode()) for k, v in properties.items())
        if size > limits.max_properties_bytes:
            raise PenstockError(
                ErrorKind.TOO_LARGE,
                f"properties of {size} bytes; the most is {limits.max_properties_bytes}",
            )
        out.properties = properties
    if message.deliver_at is not None:
        if message.deliver_after_ms is not None:
            raise PenstockError(ErrorKind.BAD_MESSAGE, "deliverAt and deliverAfterMs exclude one another")
        out.deliver_at = message.deliver_at
    elif message.deliver_after_ms:
        out.deliver_at = now + message.deliver_after_ms
        if out.deliver_at >= 2**63:
            raise PenstockError(ErrorKind.BAD_MESSAGE, "deliverAfterMs is too far away")
    if message.disable_replication:
        out.replicate_to = [LOCAL_ONLY]
    elif message.replication_clusters:
        out.replicate_to = message.replication_clusters
