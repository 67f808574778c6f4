"""Schemas over the wire: read, registered on the way (PIP-43), and checked for producers and consumers."""

from typing import Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.wire import pulsar_pb2 as pb
from penstock.wire.frames import Frame
from penstock.wire.metadata import schema_version_bytes, schema_version_number

from . import answers
from .session import Session

# The wire's numbers are the admin API's up to 20.
_OTHERS: Final = {pb.Schema.AutoConsume: SchemaType.AUTO_CONSUME}
_NUMBERS: Final = {SchemaType.BYTES: pb.Schema.NoSchema, SchemaType.AUTO_CONSUME: pb.Schema.AutoConsume}


def schema_info(schema: pb.Schema) -> SchemaInfo:
    """The schema that a client sent; raises BAD_VALUE_SCHEMA for a type of an external registry."""
    if schema.type == pb.Schema.External:
        raise PenstockError(ErrorKind.BAD_VALUE_SCHEMA, "schemas of external registries are not kept here")
    kind = _OTHERS.get(schema.type) or SchemaType(int(schema.type))
    # The stubs take `KeyValue` for the type of that name within `Schema`.
    properties = {pair.key: pair.value for pair in schema.properties}  # type: ignore[attr-defined]
    return SchemaInfo(kind, schema.schema_data, schema.name, properties)


def schema_data(topic: TopicName, schema: SchemaInfo) -> pb.Schema:
    """A schema as it is sent; Pulsar names it after its topic if it has no name."""
    return pb.Schema(
        name=schema.name or topic.base.local,
        schema_data=schema.data,
        type=_NUMBERS.get(schema.type, int(schema.type)),  # type: ignore[arg-type]
        properties=[{"key": key, "value": value} for key, value in schema.properties.items()],
    )


async def get_schema(session: Session, command: pb.CommandGetSchema, frame: Frame) -> None:
    """Answer one version of a topic's schema, or the newest."""
    answer = pb.CommandGetSchemaResponse(request_id=command.request_id)
    try:
        topic = TopicName.parse(command.topic)
        session.admitted.may_look(topic)
        if command.HasField("schema_version") and not command.schema_version:
            # The Go client's BytesSchema puts the empty version of the answer into its messages, and asks for it.
            answer.schema.CopyFrom(schema_data(topic, SchemaInfo(SchemaType.NONE)))
        else:
            schemas, number = session.broker.schemas, schema_version_number(command.schema_version)
            if number is not None:
                await schemas.find_version(topic, number)  # which another process may have met
            found = schemas.get(topic, number)
            answer.schema.CopyFrom(schema_data(topic, found.schema))
            answer.schema_version = schema_version_bytes(found.version)
    except PenstockError as error:
        answer.error_code = error.kind.codes.server_error  # type: ignore[assignment]
        answer.error_message = error.message
    session.send(answer)


async def get_or_create_schema(session: Session, command: pb.CommandGetOrCreateSchema, frame: Frame) -> None:
    """Answer the version of a schema, registered when it is new and may follow (PIP-43)."""
    answer = pb.CommandGetOrCreateSchemaResponse(request_id=command.request_id)
    try:
        topic, broker = TopicName.parse(command.topic), session.broker
        session.admitted.may_produce(topic)
        if not broker.topics.exists(topic):
            raise broker.topics.missing(topic)
        version = await broker.schemas.get_or_create(topic, schema_info(command.schema))
        answer.schema_version = answers.schema_version(version)
    except PenstockError as error:
        answer.error_code = error.kind.codes.server_error  # type: ignore[assignment]
        answer.error_message = error.message
    session.send(answer)
