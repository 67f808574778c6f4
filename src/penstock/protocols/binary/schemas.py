"""Schemas over the wire: read, registered on the way (PIP-43), and checked for producers and consumers."""

from typing import TYPE_CHECKING, Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.wire.fields import schema_version_bytes, schema_version_number
from penstock.wire.frames import Frame
from penstock.wire.pulsar_pb2 import (
    BaseCommand,
    CommandGetOrCreateSchema,
    CommandGetOrCreateSchemaResponse,
    CommandGetSchema,
    CommandGetSchemaResponse,
    Schema,
)

from .output import send

if TYPE_CHECKING:
    from .session import Session, Work

# The wire's numbers are the admin API's up to 20.
_OTHERS: Final = {Schema.AutoConsume: SchemaType.AUTO_CONSUME}
_NUMBERS: Final = {SchemaType.BYTES: Schema.NoSchema, SchemaType.AUTO_CONSUME: Schema.AutoConsume}


def schema_info(schema: Schema) -> SchemaInfo:
    """The schema that a client sent; raises BAD_VALUE_SCHEMA for a type that is kept elsewhere."""
    if schema.type == Schema.External:
        raise PenstockError(ErrorKind.BAD_VALUE_SCHEMA, "schemas of external registries are not kept here")
    kind = _OTHERS.get(schema.type) or SchemaType(int(schema.type))
    # The stubs take `KeyValue` for the type of that name within `Schema`.
    properties = {pair.key: pair.value for pair in schema.properties}  # type: ignore[attr-defined]
    return SchemaInfo(kind, schema.schema_data, schema.name, properties)


def schema_data(topic: TopicName, schema: SchemaInfo) -> Schema:
    """A schema as it is sent; Pulsar names it after its topic where it has no name."""
    return Schema(
        name=schema.name or topic.base.local,
        schema_data=schema.data,
        type=_NUMBERS.get(schema.type, int(schema.type)),  # type: ignore[arg-type]
        properties=[{"key": key, "value": value} for key, value in schema.properties.items()],
    )


def get_schema(session: "Session", command: CommandGetSchema, frame: Frame) -> None:
    """Answer one version of a topic's schema, or the newest."""
    answer = CommandGetSchemaResponse(request_id=command.request_id)
    try:
        topic = TopicName.parse(command.topic)
        session.admitted.may_look(topic)
        if command.HasField("schema_version") and not command.schema_version:
            # The Go client's BytesSchema puts the empty version that it was told into its messages, and asks for it.
            answer.schema.CopyFrom(schema_data(topic, SchemaInfo(SchemaType.NONE)))
        else:
            found = session.broker.schemas.get(topic, schema_version_number(command.schema_version))
            answer.schema.CopyFrom(schema_data(topic, found.schema))
            answer.schema_version = schema_version_bytes(found.version)
    except PenstockError as error:
        answer.error_code = error.kind.codes.server_error  # type: ignore[assignment]
        answer.error_message = error.message
    send(session.output, BaseCommand(type=BaseCommand.GET_SCHEMA_RESPONSE, get_schema_response=answer))


def get_or_create_schema(session: "Session", command: CommandGetOrCreateSchema, frame: Frame) -> "Work":
    """Answer the version of a schema, registered when it is new and may follow (PIP-43)."""
    return _get_or_create(session, command)


async def _get_or_create(session: "Session", command: CommandGetOrCreateSchema) -> None:
    answer = CommandGetOrCreateSchemaResponse(request_id=command.request_id)
    try:
        topic, broker = TopicName.parse(command.topic), session.broker
        session.admitted.may_produce(topic)
        if not broker.topics.exists(topic):
            raise broker.topics.missing(topic)
        version = await broker.schemas.get_or_create(topic, schema_info(command.schema))
        # Empty where there is none, as Pulsar has it: the Java client reads it unasked, and hangs without it.
        answer.schema_version = b"" if version is None else schema_version_bytes(version)
    except PenstockError as error:
        answer.error_code = error.kind.codes.server_error  # type: ignore[assignment]
        answer.error_message = error.message
    send(
        session.output,
        BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE, get_or_create_schema_response=answer),
    )
