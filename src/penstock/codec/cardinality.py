"""How many values a field of a Protobuf message has.

protobuf 6.31 brought `is_repeated` and `is_required`, and later versions have no `label` any more.
"""

from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

_HAS_PROPERTIES: Final = hasattr(FieldDescriptor, "is_repeated")

_Field = Any  # FieldDescriptor, whose stubs know `label` or the others, and at times a class of the runtime


def is_repeated(field: _Field) -> bool:
    """Whether it is a list or a map."""
    return bool(field.is_repeated if _HAS_PROPERTIES else field.label == FieldDescriptor.LABEL_REPEATED)


def is_required(field: _Field) -> bool:
    """Whether it has to be there (proto2)."""
    return bool(field.is_required if _HAS_PROPERTIES else field.label == FieldDescriptor.LABEL_REQUIRED)
