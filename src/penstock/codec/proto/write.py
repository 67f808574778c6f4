"""A descriptor becomes the text of a `.proto` file. Equal descriptors give equal texts.

Left out: services, custom options and comments.
"""

from collections.abc import Iterable
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.text_encoding import CUnescape

from .names import SCALARS, json_name
from .options import quoted, written
from .resolve import Types, find_type
from .tokens import ProtoError

_NUMBER_MAX: Final = 2**29
_ENUM_MAX: Final = 2**31 - 1
_NAMES: Final = {number: name for name, number in SCALARS.items()}
_LABELS: Final = {
    FieldDescriptorProto.LABEL_OPTIONAL: "optional ",
    FieldDescriptorProto.LABEL_REQUIRED: "required ",
    FieldDescriptorProto.LABEL_REPEATED: "repeated ",
}
_MAP_ENTRY: Final = frozenset(("map_entry",))


def write(file: FileDescriptorProto, types: Types) -> str:
    """The text of a file; `types` has its own types and those of its imports. Raises ProtoError for editions."""
    return _Writer(file, types).text()


class _Writer:
    def __init__(self, file: FileDescriptorProto, types: Types) -> None:
        if file.syntax not in ("", "proto2", "proto3"):
            raise ProtoError(f"{file.name}: editions are not understood: write syntax proto2 or proto3")
        self._file = file
        self._types = types
        self._proto3 = file.syntax == "proto3"
        self._lines: list[str] = []

    def text(self) -> str:
        file, lines = self._file, self._lines
        lines.append(f'syntax = "{file.syntax or "proto2"}";')
        if file.package:
            lines.append(f"package {file.package};")
        public = set(file.public_dependency)
        for at, name in enumerate(file.dependency):
            lines.append(f"import {'public ' if at in public else ''}{quoted(name.encode())};")
        lines += [f"option {one};" for one in written(file.options)]
        groups = _groups(file.extension)
        for message in file.message_type:
            if message.name not in groups:
                self._message(message, file.package, "message", "")
        for enum in file.enum_type:
            self._enum(enum, "")
        self._extensions(file, file.package, "")
        return "\n".join(lines) + "\n"

    def _message(self, message: DescriptorProto, scope: str, head: str, pad: str) -> None:
        inner = f"{scope}.{message.name}" if scope else message.name
        deeper = pad + "  "
        self._lines.append(f"{pad}{head} {message.name} {{" if head == "message" else f"{pad}{head} {{")
        self._lines += [f"{deeper}option {one};" for one in written(message.options, but=_MAP_ENTRY)]
        self._reserved(message, deeper, _NUMBER_MAX, 1)
        groups = _groups((*message.field, *message.extension))
        for nested in message.nested_type:
            if not nested.options.map_entry and nested.name not in groups:
                self._message(nested, inner, "message", deeper)
        for enum in message.enum_type:
            self._enum(enum, deeper)
        if message.extension_range:
            ranges = (_range(one.start, one.end - 1, _NUMBER_MAX - 1) for one in message.extension_range)
            self._lines.append(f"{deeper}extensions {', '.join(ranges)};")
        self._fields(message, inner, deeper)
        self._extensions(message, inner, deeper)
        self._lines.append(f"{pad}}}")

    def _fields(self, message: DescriptorProto, scope: str, pad: str) -> None:
        begun: set[int] = set()
        for field in message.field:
            if not field.HasField("oneof_index") or field.proto3_optional:
                self._field(field, message, scope, pad)
            elif field.oneof_index not in begun:
                begun.add(field.oneof_index)
                self._lines.append(f"{pad}oneof {message.oneof_decl[field.oneof_index].name} {{")
                for one in message.field:
                    if one.HasField("oneof_index") and one.oneof_index == field.oneof_index:
                        self._field(one, message, scope, pad + "  ", choice=True)
                self._lines.append(f"{pad}}}")

    def _field(
        self,
        field: FieldDescriptorProto,
        within: FileDescriptorProto | DescriptorProto,
        scope: str,
        pad: str,
        *,
        choice: bool = False,
    ) -> None:
        label = "" if choice else self._label(field)
        options = self._options(field)
        if field.type == FieldDescriptorProto.TYPE_GROUP:
            types = within.nested_type if isinstance(within, DescriptorProto) else within.message_type
            made = next(one for one in types if one.name == field.type_name.rpartition(".")[2])
            self._message(made, scope, f"{label}group {made.name} = {field.number}{options}", pad)
            return
        entry = self._entry(field, within)
        if entry is not None:
            key, value = (self._type(one, scope) for one in entry.field)
            label, kind = "", f"map<{key}, {value}>"
        else:
            kind = self._type(field, scope)
        self._lines.append(f"{pad}{label}{kind} {field.name} = {field.number}{options};")

    def _label(self, field: FieldDescriptorProto) -> str:
        plain = self._proto3 and field.label == FieldDescriptorProto.LABEL_OPTIONAL
        return "" if plain and not field.proto3_optional else _LABELS[field.label]

    def _entry(
        self, field: FieldDescriptorProto, within: FileDescriptorProto | DescriptorProto
    ) -> DescriptorProto | None:
        """The entries of a map."""
        if isinstance(within, FileDescriptorProto) or field.type != FieldDescriptorProto.TYPE_MESSAGE:
            return None
        name = field.type_name.rpartition(".")[2]
        found = (one for one in within.nested_type if one.name == name and one.options.map_entry)
        return next(found, None)

    def _type(self, field: FieldDescriptorProto, scope: str) -> str:
        if not field.type_name:
            return _NAMES[field.type]
        full = field.type_name.removeprefix(".")
        return full if find_type(full, scope, self._types) == full else f".{full}"

    def _options(self, field: FieldDescriptorProto) -> str:
        found = written(field.options)
        if field.HasField("default_value"):
            found.insert(0, f"default = {_default(field)}")
        if field.json_name and field.json_name != json_name(field.name):
            found.append(f"json_name = {quoted(field.json_name.encode())}")
        return f" [{', '.join(found)}]" if found else ""

    def _extensions(self, within: FileDescriptorProto | DescriptorProto, scope: str, pad: str) -> None:
        for field in within.extension:
            full = field.extendee.removeprefix(".")
            name = full if find_type(full, scope, self._types) == full else f".{full}"
            self._lines.append(f"{pad}extend {name} {{")
            self._field(field, within, scope, pad + "  ")
            self._lines.append(f"{pad}}}")

    def _enum(self, enum: EnumDescriptorProto, pad: str) -> None:
        lines, deeper = self._lines, pad + "  "
        lines.append(f"{pad}enum {enum.name} {{")
        lines += [f"{deeper}option {one};" for one in written(enum.options)]
        for value in enum.value:
            options = written(value.options)
            more = f" [{', '.join(options)}]" if options else ""
            lines.append(f"{deeper}{value.name} = {value.number}{more};")
        self._reserved(enum, deeper, _ENUM_MAX, 0)
        lines.append(f"{pad}}}")

    def _reserved(
        self, within: DescriptorProto | EnumDescriptorProto, pad: str, most: int, beyond: int
    ) -> None:
        ranges = [_range(one.start, one.end - beyond, most - beyond) for one in within.reserved_range]
        if ranges:
            self._lines.append(f"{pad}reserved {', '.join(ranges)};")
        if within.reserved_name:
            names = ", ".join(quoted(one.encode()) for one in within.reserved_name)
            self._lines.append(f"{pad}reserved {names};")


def _groups(fields: Iterable[FieldDescriptorProto]) -> set[str]:
    """The names of messages that are written at their field."""
    return {
        field.type_name.rpartition(".")[2]
        for field in fields
        if field.type == FieldDescriptorProto.TYPE_GROUP
    }


def _range(first: int, last: int, most: int) -> str:
    if first == last:
        return str(first)
    return f"{first} to {'max' if last == most else last}"


def _default(field: FieldDescriptorProto) -> str:
    if field.type == FieldDescriptorProto.TYPE_STRING:
        return quoted(field.default_value.encode())
    if field.type == FieldDescriptorProto.TYPE_BYTES:
        return quoted(CUnescape(field.default_value))
    return field.default_value
