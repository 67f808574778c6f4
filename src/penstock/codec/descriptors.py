"""Protobuf descriptors: from a PROTOBUF_NATIVE schema's definition and back.

A definition is JSON: `{"fileDescriptorSet": base64, "rootMessageTypeName", "rootFileDescriptorName"}`.
"""

from base64 import b64encode
from binascii import a2b_base64
from functools import lru_cache
from importlib import import_module
from typing import Final

import msgspec
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import SchemaInfo, SchemaType

from .codec import Part, bad_schema

FILES_MAX: Final = 1000  # files in one set: each is loaded before those that import it
_PARSED_MAX: Final = 256

# Sets may leave out what every protobuf library carries.
_WELL_KNOWN: Final = frozenset(
    f"google/protobuf/{name}.proto"
    for name in ("any", "descriptor", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")
)


class _Definition(msgspec.Struct):
    """What Pulsar's ProtobufNativeSchemaData holds."""

    file_descriptor_set: str = msgspec.field(name="fileDescriptorSet")
    root: str = msgspec.field(name="rootMessageTypeName")
    root_file: str = msgspec.field(name="rootFileDescriptorName", default="")


def native_message(schema: SchemaInfo, part: Part = "value") -> Descriptor:
    """The root message of a PROTOBUF_NATIVE schema, in a pool of its own; raises BAD_VALUE_SCHEMA."""
    try:
        return _parse(schema.data)
    except ValueError as error:
        raise bad_schema(part, f"bad PROTOBUF_NATIVE definition: {error}") from None


@lru_cache(maxsize=_PARSED_MAX)
def _parse(data: bytes) -> Descriptor:
    try:
        definition = msgspec.json.decode(data, type=_Definition)
        files = FileDescriptorSet.FromString(a2b_base64(definition.file_descriptor_set, strict_mode=True))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None
    except (ValueError, DecodeError):
        raise ValueError("fileDescriptorSet is no base64 of a FileDescriptorSet") from None
    return _find(_pool(files), definition.root)


def native_schema(descriptor_set: bytes, root: str, name: str = "") -> SchemaInfo:
    """The schema for message `root` of a FileDescriptorSet, as `protoc --include_imports` writes one.

    Raises BAD_VALUE_SCHEMA.
    """
    try:
        descriptor = _find(_pool(FileDescriptorSet.FromString(descriptor_set)), root)
    except DecodeError:
        raise PenstockError(ErrorKind.BAD_VALUE_SCHEMA, "no FileDescriptorSet") from None
    except ValueError as error:
        raise PenstockError(ErrorKind.BAD_VALUE_SCHEMA, str(error)) from None
    return schema_of_message(descriptor, name)


def schema_of_message(descriptor: Descriptor, name: str = "") -> SchemaInfo:
    """The schema for a message that is known in this process, as a generated class's DESCRIPTOR."""
    files = FileDescriptorSet()
    _collect(descriptor.file, files, set())
    data = {
        "fileDescriptorSet": b64encode(files.SerializeToString(deterministic=True)).decode(),
        "rootMessageTypeName": descriptor.full_name,
        "rootFileDescriptorName": descriptor.file.name,
    }
    return SchemaInfo(SchemaType.PROTOBUF_NATIVE, msgspec.json.encode(data), name or descriptor.name)


def _collect(file: FileDescriptor, files: FileDescriptorSet, seen: set[str]) -> None:
    """Add `file` after everything it imports."""
    if file.name not in seen:
        seen.add(file.name)
        for imported in file.dependencies:
            _collect(imported, files, seen)
        file.CopyToProto(files.file.add())


def _pool(files: FileDescriptorSet) -> DescriptorPool:
    """Load the files, each after those it imports; raises ValueError."""
    if len(files.file) > FILES_MAX:
        raise ValueError(f"more than {FILES_MAX} files")
    waiting = {file.name: file for file in files.file}
    if len(waiting) != len(files.file):
        raise ValueError("a file is there twice")
    pool = DescriptorPool()
    loaded: set[str] = set()
    for file in files.file:
        for imported in file.dependency:
            if imported in _WELL_KNOWN and imported not in waiting:
                waiting[imported] = _well_known(imported)
    while waiting:
        ready = [file for file in waiting.values() if loaded.issuperset(file.dependency)]
        if not ready:
            raise ValueError(f"{next(iter(waiting))} imports what is not in the set, or itself")
        for file in ready:
            try:
                pool.Add(file)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{file.name}: {error}") from None
            loaded.add(file.name)
            del waiting[file.name]
    return pool


def _well_known(name: str) -> FileDescriptorProto:
    module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    file = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return file


def _find(pool: DescriptorPool, root: str) -> Descriptor:
    try:
        return pool.FindMessageTypeByName(root)
    except KeyError:
        raise ValueError(f"there is no message {root!r} in the set") from None


def messages_in(descriptor_set: bytes) -> list[str]:
    """The full names of the messages of the last file in a set: the one that `protoc` was asked for."""
    files = FileDescriptorSet.FromString(descriptor_set).file
    if not files:
        return []
    prefix = f"{files[-1].package}." if files[-1].package else ""
    return [f"{prefix}{message.name}" for message in files[-1].message_type]
