"""Which schema may follow which (docs/schemas.md)."""

from collections.abc import Sequence
from typing import Final

from penstock.model.schema import Compatibility, SchemaInfo, SchemaType

from .avro.resolve import mismatch
from .definition import avro_type
from .key_value import key_value_parts

# UNDEFINED is taken for FULL.
_BACKWARD: Final = frozenset(c for c in Compatibility if c.name.startswith(("BACKWARD", "FULL", "UNDEFINED")))
_FORWARD: Final = frozenset(c for c in Compatibility if c.name.startswith(("FORWARD", "FULL", "UNDEFINED")))
_TRANSITIVE: Final = frozenset(c for c in Compatibility if c.name.endswith("_TRANSITIVE"))


def check(new: SchemaInfo, existing: Sequence[SchemaInfo], strategy: Compatibility) -> str | None:
    """Why `new` may not follow `existing` (the newest last), None when it may.

    Definitions must have passed `check_definition`; one that was registered before and cannot be parsed raises as
    that does.
    """
    if not existing or strategy is Compatibility.ALWAYS_COMPATIBLE:
        return None
    if strategy is Compatibility.ALWAYS_INCOMPATIBLE:
        return "the strategy ALWAYS_INCOMPATIBLE allows no second schema"
    checked = existing if strategy in _TRANSITIVE else existing[-1:]
    for old in reversed(checked):
        why = _follows(new, old, strategy)
        if why is not None:
            return why
    return None


def _follows(new: SchemaInfo, old: SchemaInfo, strategy: Compatibility) -> str | None:
    if new.type is not old.type:
        return f"a {new.type.name} schema may not follow a {old.type.name} schema"
    if strategy in _BACKWARD:
        why = cannot_read(reader=new, writer=old)
        if why is not None:
            return f"the new schema cannot read what the old one wrote ({strategy.name}): {why}"
    if strategy in _FORWARD:
        why = cannot_read(reader=old, writer=new)
        if why is not None:
            return f"the old schema cannot read what the new one writes ({strategy.name}): {why}"
    return None


def cannot_read(*, reader: SchemaInfo, writer: SchemaInfo) -> str | None:
    """Why `reader` cannot read what `writer` wrote, None when it can."""
    if reader.type is not writer.type:
        return f"{writer.type.name} was written, not {reader.type.name}"
    if reader.type is SchemaType.KEY_VALUE:
        reader_key, reader_value, _ = key_value_parts(reader)
        writer_key, writer_value, _ = key_value_parts(writer)
        why = cannot_read(reader=reader_key, writer=writer_key)
        if why is not None:
            return f"key: {why}"
        why = cannot_read(reader=reader_value, writer=writer_value)
        return None if why is None else f"value: {why}"
    if reader.type is SchemaType.PROTOBUF_NATIVE:
        from . import descriptors  # here, so that other types do not load protobuf

        return descriptors.mismatch(*map(descriptors.native_message, (reader, writer))) or None
    if reader.type in (SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF):
        reading, writing = avro_type(reader), avro_type(writer)
        if reading is None or writing is None:
            return None  # JSON without a definition says nothing to break
        return mismatch(reading, writing) or None
    return None
