"""Schemas and records without a broker."""

import enum
import json
from typing import Any

import pytest

import penstock
from penstock.client.message import Message
from penstock.client.message_id import MessageId
from penstock.model.message import Message as Stored


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Point(penstock.Record):
    x = penstock.Integer(required=True)
    y = penstock.Integer(default=7)


class Shape(penstock.Record):
    _avro_namespace = "shapes"
    name = penstock.String(required=True)
    colour = Colour
    centre = Point()
    corners = penstock.Array(Point())
    weights = penstock.Map(penstock.Double())
    raw = penstock.Bytes()
    flag = penstock.Boolean()
    count = penstock.Long(default=3, required_default=True)


def shape() -> Shape:
    return Shape(
        name="s",
        colour=Colour.BLUE,
        centre=Point(x=1),
        corners=[Point(x=1, y=2), Point(x=3)],
        weights={"a": 1.5},
        raw=b"\xff\0",
        flag=True,
    )


def test_a_record_has_the_official_clients_definition() -> None:
    pulsar = pytest.importorskip("pulsar.schema")
    namespace: dict[str, Any] = {"x": pulsar.Integer(required=True), "y": pulsar.Integer(default=7)}
    their_point = type(pulsar.Record)("Point", (pulsar.Record,), namespace)
    their_shape = type(pulsar.Record)(
        "Shape",
        (pulsar.Record,),
        {
            "_avro_namespace": "shapes",
            "name": pulsar.String(required=True),
            "colour": Colour,
            "centre": their_point(),
            "corners": pulsar.Array(their_point()),
            "weights": pulsar.Map(pulsar.Double()),
            "raw": pulsar.Bytes(),
            "flag": pulsar.Boolean(),
            "count": pulsar.Long(default=3, required_default=True),
        },
    )

    assert Shape.schema() == their_shape.schema()


@pytest.mark.parametrize("kind", [penstock.AvroSchema, penstock.JsonSchema])
def test_records_survive(kind: Any) -> None:
    schema = kind(Shape)

    assert schema.decode(schema.encode(shape())) == shape()


def test_records_check_what_they_are_given() -> None:
    assert Point(x=1).y == 7
    assert Shape(name=b"bytes").name == "bytes"
    assert Shape(name="s", colour="RED").colour is Colour.RED
    assert Shape(name="s", colour=2).colour is Colour.BLUE
    assert Shape(name="s", centre={"x": 5}).centre == Point(x=5)
    assert Shape(name="s", weights=None).weights is None
    for wrong in ({"x": "1"}, {"x": None}):
        with pytest.raises(TypeError):
            Point(**wrong)
    with pytest.raises(TypeError):
        Shape(name="s", corners=[1])
    with pytest.raises(TypeError):
        Shape(name="s", colour="GREEN")
    with pytest.raises(AttributeError):
        Point(x=1).z = 2
    with pytest.raises(TypeError):
        penstock.AvroSchema(Point).encode(shape())


def test_records_share_no_values_and_inherit_fields() -> None:
    one, two = Shape(name="a"), Shape(name="b")
    one.centre.x = 5
    assert two.centre.x is None

    class Solid(Shape):
        height = penstock.Double()

    assert list(Solid._fields) == [*Shape._fields, "height"]


def test_dicts_with_a_definition() -> None:
    definition = {"type": "record", "name": "Pair", "fields": [{"name": "a", "type": "int"}]}
    for schema in (penstock.AvroSchema(None, definition), penstock.JsonSchema(None, json.dumps(definition))):
        assert schema.decode(schema.encode({"a": 1})) == {"a": 1}
    with pytest.raises(penstock.InvalidMessage):
        penstock.AvroSchema(None, definition).encode({"a": "text"})
    with pytest.raises(penstock.InvalidMessage):
        penstock.AvroSchema(None, {"type": "record"})


def message(schema: penstock.Schema, payload: bytes, writer: penstock.Schema | None) -> Message:
    stored = Stored(payload=payload, properties={})
    return Message(stored, MessageId(), "t", 0, schema, None if writer is None else writer.schema_info())


def test_avro_is_read_by_the_schema_it_was_written_with_even_under_another_name() -> None:
    other = {
        "type": "record",
        "name": "other.Name",
        "fields": [{"name": "gone", "type": "string"}, {"name": "x", "type": "int"}],
    }
    writer, reader = penstock.AvroSchema(None, other), penstock.AvroSchema(Point)
    read = message(reader, writer.encode({"gone": "?", "x": 5}), writer)
    with pytest.raises(penstock.InvalidMessage):
        read.value()  # `y` may be null, but has no default in the schema

    class Defaulted(penstock.Record):
        x = penstock.Integer(required=True)
        y = penstock.Integer(default=7, required=True, required_default=True)

    read = message(penstock.AvroSchema(Defaulted), writer.encode({"gone": "?", "x": 5}), writer)
    assert (read.value().x, read.value().y) == (5, 7)


def test_json_that_the_official_client_wrote() -> None:
    schema = penstock.JsonSchema(Shape)
    read = schema.decode(b'{"name": "s", "colour": 2, "raw": "plain text!", "unknown": 1}')

    assert (read.colour, read.raw) == (Colour.BLUE, b"plain text!")
    for payload in (b"no JSON", b"[]", b'{"name": 5}'):
        with pytest.raises(penstock.InvalidMessage):
            schema.decode(payload)


def test_bytes_and_texts() -> None:
    assert penstock.BytesSchema().encode(bytearray(b"ab")) == b"ab"
    for schema, wrong in ((penstock.BytesSchema(), "text"), (penstock.StringSchema(), b"bytes")):
        with pytest.raises(TypeError):
            schema.encode(wrong)
    with pytest.raises(penstock.InvalidMessage):
        penstock.StringSchema().decode(b"\xff")
    with pytest.raises(ValueError, match="no primitive"):
        penstock.PrimitiveSchema("AVRO")


def test_protobuf_messages() -> None:
    from google.protobuf.timestamp_pb2 import Timestamp

    schema = penstock.ProtobufNativeSchema(Timestamp)
    value = Timestamp(seconds=5)

    assert schema.decode(schema.encode(value)) == value
    assert json.loads(schema.schema_info().data)["rootMessageTypeName"] == "google.protobuf.Timestamp"
    auto = message(penstock.AutoConsumeSchema(), schema.encode(value), schema)
    assert auto.value() is not None
    with pytest.raises(TypeError):
        penstock.ProtobufNativeSchema(int)


def test_equal_schemas_have_one_identity() -> None:
    class Again(penstock.Record):
        x = penstock.Integer(required=True)
        y = penstock.Integer(default=7)

    Again.__name__ = "Point"

    assert penstock.AvroSchema(Point).identity == penstock.AvroSchema(Again).identity
    assert penstock.AvroSchema(Point).identity != penstock.JsonSchema(Point).identity
