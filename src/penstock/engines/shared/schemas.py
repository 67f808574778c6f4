"""Which schemas are understood, and the error of messages without one."""

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.schema import SchemaInfo


def check_schema(schema: SchemaInfo, bytes_max: int) -> None:
    """Raise BAD_VALUE_SCHEMA unless a schema can be understood and is within bounds."""
    from penstock.codec.definition import check_definition

    size = len(schema.data) + len(schema.name.encode())
    size += sum(len(name.encode()) + len(value.encode()) for name, value in schema.properties.items())
    if size > bytes_max:
        raise PenstockError(ErrorKind.BAD_VALUE_SCHEMA, f"a schema of {size} bytes; the most is {bytes_max}")
    check_definition(schema, max_schema_bytes=bytes_max)


def schema_needed(topic: TopicName) -> PenstockError:
    """The error of messages without a schema in a topic that refuses them."""
    return PenstockError(
        ErrorKind.INCOMPATIBLE_SCHEMA, f"{topic} has a schema and takes no messages without one"
    )
