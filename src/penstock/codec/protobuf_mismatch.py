"""Which Protobuf message reads which: the root keeps its name, a field number its type (as Pulsar checks)."""

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from penstock.model.schema import SchemaInfo

from .descriptors import native_message
from .protobuf_fill import TYPE_NAMES


def native_mismatch(reader: SchemaInfo, writer: SchemaInfo) -> str:
    """Why `reader` cannot read what `writer` wrote, "" when it can."""
    return message_mismatch(native_message(reader), native_message(writer))


def message_mismatch(reader: Descriptor, writer: Descriptor) -> str:
    """As `native_mismatch`, of the root messages."""
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
            if field.is_required:
                return f"field {inside!r}: it is required and not in what was written"
            continue
        why = _field(field, source, inside, seen)
        if why:
            return why
    return ""


def _field(field: FieldDescriptor, source: FieldDescriptor, path: str, seen: set[tuple[str, str]]) -> str:
    if field.is_required and not source.is_required:
        return f"field {path!r}: it is required, and was not"
    if field.is_repeated != source.is_repeated:
        was, now = ("repeated", "single") if source.is_repeated else ("single", "repeated")
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
