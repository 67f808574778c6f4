"""Whether one `.proto` file reads what another wrote: differences between the two, and which of them break readers.

The rules are those that Confluent publishes for its registry. Fields are compared by number over a whole message, the members of
its oneofs included. Messages are compared by their names within the package, enums not at all.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorSet,
)

_F: Final = FieldDescriptorProto
# Scalars of one kind have the same bytes on the wire, and a reader of one reads the others.
_VARINT: Final = "a varint"
_KINDS: Final[Mapping["FieldDescriptorProto.Type.ValueType", str]] = {
    _F.TYPE_INT32: _VARINT,
    _F.TYPE_INT64: _VARINT,
    _F.TYPE_UINT32: _VARINT,
    _F.TYPE_UINT64: _VARINT,
    _F.TYPE_BOOL: _VARINT,
    _F.TYPE_ENUM: _VARINT,
    _F.TYPE_SINT32: "a zigzag varint",
    _F.TYPE_SINT64: "a zigzag varint",
    _F.TYPE_STRING: "bytes",
    _F.TYPE_BYTES: "bytes",
    _F.TYPE_FIXED32: "4 bytes",
    _F.TYPE_SFIXED32: "4 bytes",
    _F.TYPE_FIXED64: "8 bytes",
    _F.TYPE_SFIXED64: "8 bytes",
    _F.TYPE_FLOAT: "a float",
    _F.TYPE_DOUBLE: "a double",
}


class Difference(NamedTuple):
    """A difference that breaks readers."""

    name: str
    path: str  # "Order.Line.3": messages within the package, and a field's number

    def __str__(self) -> str:
        return f"{self.name} at {self.path}" if self.path else self.name


class _Type(NamedTuple):
    """A message or enum, found by its full name."""

    package: str
    name: str  # without the package
    file: int  # its place in the set
    message: DescriptorProto | None  # None for an enum


def broken(original: FileDescriptorSet, update: FileDescriptorSet) -> list[Difference]:
    """Every difference by which a reader with `update` may misread data written with `original`; empty without one.

    Each set has a file and its imports, itself last, as `files.compile_file` returns it.
    """
    return _Comparison(original, update).files()


class _Comparison:
    def __init__(self, original: FileDescriptorSet, update: FileDescriptorSet) -> None:
        self._before, self._now = original.file[-1], update.file[-1]
        self._old, self._new = dict(_types(original)), dict(_types(update))
        self._last = len(original.file) - 1, len(update.file) - 1
        self._seen: set[tuple[str, str]] = set()  # pairs of imported messages

    def files(self) -> list[Difference]:
        if self._before.package != self._now.package:
            return [Difference("PACKAGE_CHANGED", "")]
        return list(self._messages(self._before.message_type, self._now.message_type, ""))

    def _messages(
        self, original: Iterable[DescriptorProto], update: Iterable[DescriptorProto], path: str
    ) -> Iterator[Difference]:
        now = {one.name: one for one in update}
        for message in original:
            if message.options.map_entry:
                continue
            if message.name in now:
                yield from self._message(message, now[message.name], f"{path}{message.name}")
            else:
                yield Difference("MESSAGE_REMOVED", f"{path}{message.name}")

    def _message(self, original: DescriptorProto, update: DescriptorProto, path: str) -> Iterator[Difference]:
        before, now = ({field.number: field for field in one.field} for one in (original, update))
        for number, field in before.items():
            where = f"{path}.{number}"
            if number in now:
                yield from self._field(field, now[number], where)
            elif field.label == _F.LABEL_REQUIRED:
                yield Difference("REQUIRED_FIELD_REMOVED", where)
        for number, field in now.items():
            if number not in before and field.label == _F.LABEL_REQUIRED:
                yield Difference("REQUIRED_FIELD_ADDED", f"{path}.{number}")
        yield from _oneofs(original, update, path)
        yield from self._messages(original.nested_type, update.nested_type, f"{path}.")

    def _field(
        self, original: FieldDescriptorProto, update: FieldDescriptorProto, path: str
    ) -> Iterator[Difference]:
        before, now = self._old.get(original.type_name[1:]), self._new.get(update.type_name[1:])
        kinds = _kind(original, before), _kind(update, now)
        if kinds[0] != kinds[1]:
            scalar = original.type in _KINDS and update.type in _KINDS
            yield Difference("FIELD_SCALAR_KIND_CHANGED" if scalar else "FIELD_KIND_CHANGED", path)
            return
        repeated = original.label == _F.LABEL_REPEATED, update.label == _F.LABEL_REPEATED
        if repeated[0] != repeated[1] and original.type in _KINDS and kinds[0] != "bytes":
            yield Difference("FIELD_NUMERIC_LABEL_CHANGED", path)
        if (original.label == _F.LABEL_REQUIRED) != (update.label == _F.LABEL_REQUIRED):
            added = update.label == _F.LABEL_REQUIRED
            yield Difference(f"REQUIRED_FIELD_{'ADDED' if added else 'REMOVED'}", path)
        if before is None or now is None or before.message is None or now.message is None:
            return
        if kinds[0] == "a map":
            for name, old, new in zip(("key", "value"), before.message.field, now.message.field, strict=True):
                yield from self._field(old, new, f"{path}.{name}")
        elif before.name != now.name:
            yield Difference("FIELD_NAMED_TYPE_CHANGED", path)
        elif (before.file, now.file) != self._last:
            pair = original.type_name, update.type_name
            if pair not in self._seen:
                self._seen.add(pair)
                yield from self._message(before.message, now.message, path)


def _kind(field: FieldDescriptorProto, found: _Type | None) -> str:
    if field.type in _KINDS:
        return _KINDS[field.type]
    if found is not None and found.message is not None and found.message.options.map_entry:
        return "a map"
    return "a group" if field.type == _F.TYPE_GROUP else "a message"


def _oneofs(original: DescriptorProto, update: DescriptorProto, path: str) -> Iterator[Difference]:
    before, now = _members(original), _members(update)
    left = {field.number for field in update.field}
    for name, numbers in before.items():
        if name in now:
            yield from (
                Difference("ONEOF_FIELD_REMOVED", f"{path}.{name}.{one}") for one in sorted(numbers - left)
            )
    known = {field.number for field in original.field}
    for name, numbers in now.items():
        together = (numbers & known) - before.get(name, set())
        if (
            together
            and len(numbers & known) > 1
            and not any(numbers & known <= one for one in before.values())
        ):
            yield Difference("MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"{path}.{name}")


def _members(message: DescriptorProto) -> dict[str, set[int]]:
    """The fields of each oneof. The oneof of an `optional` field of proto3 has that field alone and was not written by a user."""
    found: dict[str, set[int]] = {}
    for field in message.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            found.setdefault(message.oneof_decl[field.oneof_index].name, set()).add(field.number)
    return found


def _types(files: FileDescriptorSet) -> Iterator[tuple[str, _Type]]:
    for at, file in enumerate(files.file):
        prefix = f"{file.package}." if file.package else ""
        for enum in file.enum_type:
            yield prefix + enum.name, _Type(file.package, enum.name, at, None)
        for message in file.message_type:
            for name, found in _within(message, ""):
                yield prefix + name, _Type(file.package, name, at, found)


def _within(message: DescriptorProto, path: str) -> Iterator[tuple[str, DescriptorProto | None]]:
    name = f"{path}{message.name}"
    yield name, message
    yield from ((f"{name}.{enum.name}", None) for enum in message.enum_type)
    for inner in message.nested_type:
        yield from _within(inner, f"{name}.")
