"""Schemas with a definition: Avro and JSON by a record class or a dict, and Protobuf by a generated class."""

from __future__ import annotations

import json
from base64 import b64encode
from binascii import Error as Base64Error
from binascii import a2b_base64
from typing import TYPE_CHECKING, Any

from penstock.client.errors import InvalidMessage
from penstock.codec import Codec, codec_for
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.wire.metadata import sized

from .field import Bytes
from .record import Record, to_dict
from .schema import Schema, checked

if TYPE_CHECKING:
    from penstock.client.message import Message


class _DefinedSchema(Schema):
    """A definition in Avro's JSON, given by a record class or as a dict; values are of the same kind."""

    def __init__(self, kind: SchemaType, record_cls: type[Record] | None, definition: Any) -> None:
        if record_cls is None and definition is None:
            raise AssertionError("a record class or a definition is needed")
        self._record_cls = record_cls
        if isinstance(definition, str):
            definition = json.loads(definition)
        self._definition = definition if record_cls is None else record_cls.schema()
        data = json.dumps(self._definition, separators=(",", ":")).encode()
        super().__init__(SchemaInfo(kind, data, kind.name))

    def _fields(self, obj: Any) -> Any:
        if self._record_cls is None:
            return obj
        if not isinstance(obj, self._record_cls):
            raise TypeError(f"expected {self._record_cls.__name__}, got {type(obj).__name__}")
        return to_dict(obj)

    def _value(self, fields: Any) -> Any:
        if self._record_cls is None:
            return fields
        try:
            return self._record_cls(**fields)
        except TypeError as error:
            raise InvalidMessage(f"the payload is no {self._record_cls.__name__}: {error}") from None


class AvroSchema(_DefinedSchema):
    """Avro's binary encoding.

    A message is read by the version it was written with, and seen as this schema sees it: fields added later
    have their defaults, removed ones are passed over.

    Args:
        record_cls: The class of the values; None for values that are dicts.
        schema_definition: The Avro definition if there is no class.
    """

    needs_writer = True

    def __init__(self, record_cls: type[Record] | None, schema_definition: Any = None) -> None:
        super().__init__(SchemaType.AVRO, record_cls, schema_definition)
        self._codec = checked(codec_for, self._info)
        self._readers: dict[bytes, Codec] = {self._info.data: self._codec}

    def encode(self, obj: Any) -> bytes:
        return checked(self._codec.encode_native, self._fields(obj))

    def decode(self, data: bytes) -> Any:
        return self._value(checked(self._codec.decode_native, data))

    def decode_message(self, message: Message) -> Any:
        if message.has_null_value():
            return None
        if message._writer is None:
            return self.decode(message.data())
        return self._value(checked(self._reader(message._writer).decode_native, message.data()))

    def read(self, data: bytes, writer: SchemaInfo | None) -> Any:
        """The value of a payload that `writer` wrote."""
        codec = self._codec if writer is None else self._reader(writer)
        return self._value(checked(codec.decode_native, data))

    def _reader(self, writer: SchemaInfo) -> Codec:
        codec = self._readers.get(writer.data)
        if codec is None:
            try:
                codec = codec_for(writer, self._info)
            except PenstockError as error:
                if error.kind is not ErrorKind.INCOMPATIBLE_SCHEMA or writer.type is not SchemaType.AVRO:
                    raise InvalidMessage(error.message) from None
                codec = checked(codec_for, self._renamed(writer), self._info)
            self._readers[writer.data] = codec
        return codec

    def _renamed(self, writer: SchemaInfo) -> SchemaInfo:
        """The writer's schema under the reader's name: languages disagree on names, not on fields."""
        tree = json.loads(writer.data)
        own = self._definition
        if isinstance(tree, dict) and isinstance(own, dict) and "name" in own:
            tree["name"] = own["name"]
            tree.pop("namespace", None)
            if "namespace" in own:
                tree["namespace"] = own["namespace"]
        return SchemaInfo(writer.type, json.dumps(tree).encode(), writer.name, writer.properties)


class JsonSchema(_DefinedSchema):
    """JSON text, described by an Avro definition. Bytes are base64, as Java's clients write them.

    Args:
        record_cls: The class of the values; None for values that are dicts.
        schema_definition: The Avro definition if there is no class.
    """

    def __init__(self, record_cls: type[Record] | None, schema_definition: Any = None) -> None:
        super().__init__(SchemaType.JSON, record_cls, schema_definition)
        checked(codec_for, self._info)  # a definition that cannot be used is known at once

    def encode(self, obj: Any) -> bytes:
        fields = self._fields(obj)
        try:
            text = json.dumps(fields, default=_plain, ensure_ascii=False, separators=(",", ":"))
        except (TypeError, ValueError) as error:
            raise InvalidMessage(f"the value cannot be written as JSON: {error}") from None
        return text.encode()

    def decode(self, data: bytes) -> Any:
        try:
            fields = json.loads(data)
        except ValueError as error:
            raise InvalidMessage(f"the payload is no JSON: {error}") from None
        if self._record_cls is None:
            return fields
        if not isinstance(fields, dict):
            raise InvalidMessage("the payload is JSON, but no object")
        for name, field in self._record_cls._fields.items():
            if isinstance(field, Bytes) and isinstance(fields.get(name), str):
                fields[name] = _bytes(fields[name])
        return self._value(fields)


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} has no JSON")


def _bytes(text: str) -> bytes:
    """Base64, or else the text itself, which the official Python client writes."""
    try:
        return a2b_base64(text, strict_mode=True)
    except (Base64Error, ValueError):
        return text.encode()


class ProtobufNativeSchema(Schema):
    """Protobuf messages; the broker keeps their descriptors.

    Args:
        record_cls: A class that protoc generated.
    """

    def __init__(self, record_cls: Any) -> None:
        descriptor = getattr(record_cls, "DESCRIPTOR", None)
        if descriptor is None or not hasattr(record_cls, "FromString"):
            raise TypeError(f"{record_cls!r} is no generated Protobuf class")
        self._class = record_cls
        files: dict[str, bytes] = {}
        _collect(descriptor.file, files)
        definition = {
            "fileDescriptorSet": b64encode(
                b"".join(b"\x0a" + sized(file) for file in files.values())
            ).decode(),
            "rootMessageTypeName": descriptor.full_name,
            "rootFileDescriptorName": descriptor.file.name,
        }
        data = json.dumps(definition).encode()
        super().__init__(SchemaInfo(SchemaType.PROTOBUF_NATIVE, data, "PROTOBUF_NATIVE"))

    def encode(self, obj: Any) -> bytes:
        if not isinstance(obj, self._class):
            raise TypeError(f"expected {self._class.__name__}, got {type(obj).__name__}")
        payload: bytes = obj.SerializeToString()
        return payload

    def decode(self, data: bytes) -> Any:
        try:
            return self._class.FromString(data)
        except Exception as error:  # protobuf's own error, which only `wire` and `codec` may name
            raise InvalidMessage(f"the payload is no {self._class.__name__}: {error}") from None


def _collect(file: Any, files: dict[str, bytes]) -> None:
    """A file's descriptor after those of the files it imports."""
    for dependency in file.dependencies:
        if dependency.name not in files:
            _collect(dependency, files)
    files[file.name] = file.serialized_pb
