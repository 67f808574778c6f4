"""Protobuf descriptors: from a PROTOBUF_NATIVE schema's definition and back; which message reads which.

A definition is JSON: `{"fileDescriptorSet": base64, "rootMessageTypeName", "rootFileDescriptorName"}`.
"""

from base64 import b64encode
from binascii import a2b_base64
from functools import lru_cache
from importlib import import_module
from typing import Final

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import SchemaInfo, SchemaType

from .cardinality import is_repeated, is_required
from .codec import Part, bad_schema

FILES_MAX: Final = 1000  # files in one set: each is loaded before those that import it
_PARSED_MAX: Final = 256

# Sets may leave out what every protobuf library carries.
_WELL_KNOWN: Final = frozenset(
    f"google/protobuf/{name}.proto"
    for name in (
        "any",
        "api",
        "descriptor",
        "duration",
        "empty",
        "field_mask",
        "source_context",
        "struct",
        "timestamp",
        "type",
        "wrappers",
    )
)


TYPE_NAMES: Final = {
    value: name.removeprefix("TYPE_").lower()
    for name, value in vars(FieldDescriptor).items()
    if name.startswith("TYPE_")
}


class _Definition(msgspec.Struct):
    """What Pulsar's ProtobufNativeSchemaData holds."""

    file_descriptor_set: str = msgspec.field(name="fileDescriptorSet")
    root: str = msgspec.field(name="rootMessageTypeName")
    root_file: str = msgspec.field(name="rootFileDescriptorName", default="")


def native_message(schema: SchemaInfo, part: Part = "value") -> Descriptor:
    """The root message of a PROTOBUF_NATIVE schema, in a separate pool; raises BAD_VALUE_SCHEMA."""
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
    return _find(pool_of(files), definition.root)


def native_schema(descriptor_set: bytes, root: str, name: str = "") -> SchemaInfo:
    """The schema for message `root` of a FileDescriptorSet, as `protoc --include_imports` writes one.

    Raises BAD_VALUE_SCHEMA.
    """
    try:
        descriptor = _find(pool_of(FileDescriptorSet.FromString(descriptor_set)), root)
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


def pool_of(files: FileDescriptorSet) -> DescriptorPool:
    """Load the files, each after those it imports; raises ValueError."""
    if len(files.file) > FILES_MAX:
        raise ValueError(f"more than {FILES_MAX} files")
    waiting = {file.name: file for file in files.file}
    if len(waiting) != len(files.file):
        raise ValueError("a file is there twice")
    pool = DescriptorPool()
    loaded: set[str] = set()
    looking = list(files.file)
    for file in looking:
        for imported in file.dependency:
            found = None if imported in waiting else well_known(imported)
            if found is not None:
                waiting[imported] = found
                looking.append(found)
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


def well_known(name: str) -> FileDescriptorProto | None:
    """A file that every protobuf library carries, by the name that it is imported by."""
    if name not in _WELL_KNOWN:
        return None
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


# -- which message reads which: the root keeps its name, a field number its type (as Pulsar checks)


def mismatch(reader: Descriptor, writer: Descriptor) -> str:
    """Why the message `reader` cannot read what `writer` wrote, "" when it can."""
    if reader.full_name != writer.full_name:
        return f"the root message was {writer.full_name}, not {reader.full_name}"
    return _check(reader, writer, "", set())


def _check(reader: Descriptor, writer: Descriptor, path: str, seen: set[tuple[str, str]]) -> str:
    if (reader.full_name, writer.full_name) in seen:
        return ""
    seen.add((reader.full_name, writer.full_name))
    for field in reader.fields:
        inside = f"{path}.{field.name}" if path else field.name
        source = writer.fields_by_number.get(field.number)
        renumbered = writer.fields_by_name.get(field.name)
        if renumbered is not None and renumbered.number != field.number:
            return f"field {inside!r}: its number was {renumbered.number}, not {field.number}"
        if source is None:
            if is_required(field):
                return f"field {inside!r}: it is required and not in what was written"
            continue
        why = _field(field, source, inside, seen)
        if why:
            return why
    return ""


def _field(field: FieldDescriptor, source: FieldDescriptor, path: str, seen: set[tuple[str, str]]) -> str:
    if is_required(field) and not is_required(source):
        return f"field {path!r}: it is required, and was not"
    if is_repeated(field) != is_repeated(source):
        was, now = ("repeated", "single") if is_repeated(source) else ("single", "repeated")
        return f"field {path!r}: it was {was}, not {now}"
    if field.type != source.type:
        return f"field {path!r}: its type was {_type(source)}, not {_type(field)}"
    if field.message_type is not None and source.message_type is not None:
        return _check(field.message_type, source.message_type, path, seen)
    return ""


def _type(field: FieldDescriptor) -> str:
    if field.message_type is not None:
        return field.message_type.name
    if field.enum_type is not None:
        return field.enum_type.name
    return TYPE_NAMES.get(field.type, str(field.type))
