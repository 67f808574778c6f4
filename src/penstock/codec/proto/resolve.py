"""Finds the types that a parsed `.proto` file names, in it and in what it imports (protobuf's rules of names)."""

from collections.abc import Iterable
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from .tokens import ProtoError

MESSAGE: Final = FieldDescriptorProto.TYPE_MESSAGE
ENUM: Final = FieldDescriptorProto.TYPE_ENUM

Types = dict[str, "FieldDescriptorProto.Type.ValueType"]  # full names of messages and enums


def types_of(files: Iterable[FileDescriptorProto]) -> Types:
    """Every type of some files."""
    found: Types = {}
    for file in files:
        within = f"{file.package}." if file.package else ""
        found.update((within + one.name, ENUM) for one in file.enum_type)
        for message in file.message_type:
            _add(message, within, found)
    return found


def _add(message: DescriptorProto, within: str, found: Types) -> None:
    name = within + message.name
    found[name] = MESSAGE
    found.update((f"{name}.{one.name}", ENUM) for one in message.enum_type)
    for inner in message.nested_type:
        _add(inner, f"{name}.", found)


def find_type(name: str, scope: str, types: Types) -> str | None:
    """The full name of a type written within `scope`, or None."""
    if name.startswith("."):
        return name[1:] if name[1:] in types else None
    while True:
        full = f"{scope}.{name}" if scope else name
        if full in types:
            return full
        if not scope:
            return None
        scope = scope.rpartition(".")[0]


def resolve(file: FileDescriptorProto, types: Types) -> None:
    """Give each field its type and the type's full name, in place; `types` has the file's own and those of its imports.

    Raises ProtoError.
    """
    for field in file.extension:
        _field(field, file.package, types)
    for message in file.message_type:
        _message(message, file.package, types)


def _message(message: DescriptorProto, scope: str, types: Types) -> None:
    inner = f"{scope}.{message.name}" if scope else message.name
    for field in (*message.field, *message.extension):
        _field(field, inner, types)
    for one in message.nested_type:
        _message(one, inner, types)


def _field(field: FieldDescriptorProto, scope: str, types: Types) -> None:
    if field.extendee:
        field.extendee = "." + _found(field.extendee, scope, types)
    if field.type_name:
        full = _found(field.type_name, scope, types)
        if field.type != FieldDescriptorProto.TYPE_GROUP:
            field.type = types[full]
        field.type_name = "." + full


def _found(name: str, scope: str, types: Types) -> str:
    full = find_type(name, scope, types)
    if full is None:
        raise ProtoError(f"{scope or 'the file'} names the type {name!r}, which is not there")
    return full
