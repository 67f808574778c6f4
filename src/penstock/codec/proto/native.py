"""PROTOBUF_NATIVE schemas, which hold a set of descriptors and name a root message, as `.proto` files, and the other way round.

A file does not say which of its messages is meant. They are counted here in the order of the text, each before those within it.
The first one is the root unless another is asked for, and files written here have their root first.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet

from penstock.codec.descriptors import native_message, native_schema, schema_of_message, well_known
from penstock.model.errors import PenstockError
from penstock.model.schema import SchemaInfo, SchemaType

from .files import CARRIED, compile_file
from .resolve import types_of
from .write import write

FILE: Final = "default.proto"  # the name of a file that has none: a registry keeps texts without names
REMEMBERED: Final = 256


class ProtoFile(msgspec.Struct, frozen=True):
    """A file's text, and the names of the files it imports, but those that every library carries."""

    name: str
    text: str
    imports: tuple[str, ...]


class ProtoSchema(msgspec.Struct, frozen=True):
    """The files of a definition, each after those it imports, and which message of the last one is the root."""

    files: tuple[ProtoFile, ...]
    root: str
    message: int


@lru_cache(maxsize=REMEMBERED)
def to_proto(data: bytes) -> ProtoSchema:
    """The files of a PROTOBUF_NATIVE definition that was checked; raises ValueError for what no text can say."""
    descriptor = native_message(SchemaInfo(SchemaType.PROTOBUF_NATIVE, data))
    files = FileDescriptorSet()
    seen: set[str] = set()
    waiting = [(descriptor.file, False)]
    while waiting:  # each after those it imports
        file, ready = waiting.pop()
        if ready:
            file.CopyToProto(files.file.add())
        elif file.name not in seen:
            seen.add(file.name)
            waiting.append((file, True))
            waiting += [(one, False) for one in file.dependencies]
    main = files.file[-1]
    _put_first(main, descriptor.full_name)
    types = types_of(files.file)
    texts = [
        ProtoFile(one.name, write(one, types), tuple(name for name in one.dependency if not _carried(name)))
        for one in files.file
        if not _carried(one.name)
    ]
    made = _parsed(main.name, texts[-1].text, {one.name: one.text for one in texts[:-1]}).file[-1]
    names = [name for _, name in messages_of(made)]
    return ProtoSchema(tuple(texts), descriptor.full_name, names.index(descriptor.full_name))


def _carried(name: str) -> bool:
    return name in CARRIED or well_known(name) is not None


def _put_first(file: FileDescriptorProto, root: str) -> None:
    """Let the root be the first message of its file, or be within it."""
    top = root.removeprefix(f"{file.package}.").partition(".")[0]
    ordered = sorted(file.message_type, key=lambda one: one.name != top)
    del file.message_type[:]
    file.message_type.extend(ordered)


def of_proto(text: str, imports: Mapping[str, str]) -> SchemaInfo:
    """The schema whose root is a file's first message; raises ValueError."""
    return _of_proto(text, tuple(sorted(imports.items())))


@lru_cache(maxsize=REMEMBERED)
def _of_proto(text: str, imports: Sequence[tuple[str, str]]) -> SchemaInfo:
    files = _parsed(FILE, text, dict(imports))
    for _, name in messages_of(files.file[-1]):
        try:
            return native_schema(files.SerializeToString(), name)
        except PenstockError as error:
            raise ValueError(error.message) from None
    raise ValueError("the file has no message")


def _parsed(name: str, text: str, imports: Mapping[str, str]) -> FileDescriptorSet:
    return compile_file(name, text, imports, well_known)


def messages_of(file: FileDescriptorProto) -> list[tuple[tuple[int, ...], str]]:
    """The messages of a file in their order, each with its place: the number of a message, of one within it, …"""
    return list(_messages(file.message_type, (), f"{file.package}." if file.package else ""))


def _messages(
    among: Sequence[DescriptorProto], path: tuple[int, ...], within: str
) -> Iterator[tuple[tuple[int, ...], str]]:
    for at, message in enumerate(among):
        if not message.options.map_entry:
            yield (*path, at), within + message.name
            yield from _messages(message.nested_type, (*path, at), f"{within}{message.name}.")


@lru_cache(maxsize=REMEMBERED)
def places_of(data: bytes) -> tuple[tuple[int, ...], ...]:
    """The places of the messages of a definition's root file, in their order."""
    return tuple(place for place, _ in messages_of(_root_file(data)))


def with_message(schema: SchemaInfo, message: int) -> SchemaInfo | None:
    """A schema of the same file with another message as root; None without one of this number."""
    names = messages_of(_root_file(schema.data))
    return _with_root(schema, names[message][1]) if message < len(names) else None


def with_root(schema: SchemaInfo, root: str) -> tuple[int, SchemaInfo] | None:
    """The number of a message, and the schema with it as root; None if the file does not have it."""
    for number, (_, name) in enumerate(messages_of(_root_file(schema.data))):
        if name == root:
            return number, _with_root(schema, name)
    return None


def _with_root(schema: SchemaInfo, name: str) -> SchemaInfo:
    pool = native_message(schema).file.pool
    return schema_of_message(pool.FindMessageTypeByName(name))


def _root_file(data: bytes) -> FileDescriptorProto:
    file = FileDescriptorProto()
    native_message(SchemaInfo(SchemaType.PROTOBUF_NATIVE, data)).file.CopyToProto(file)
    return file
