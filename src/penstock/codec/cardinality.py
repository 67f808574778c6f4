"""How many values a field of a Protobuf message has.

protobuf 6.31 brought `is_repeated` and `is_required`, and later versions have no `label` any more.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

# Of a FieldDescriptor, whose stubs know `label` or the others, and at times of a class of the runtime.
_Asked = Callable[[Any], bool]

is_repeated: _Asked  # whether it is a list or a map
is_required: _Asked  # whether it has to be there (proto2)

if hasattr(FieldDescriptor, "is_repeated"):
    is_repeated, is_required = attrgetter("is_repeated"), attrgetter("is_required")
else:
    _REPEATED: Final[int] = FieldDescriptor.LABEL_REPEATED
    _REQUIRED: Final[int] = FieldDescriptor.LABEL_REQUIRED

    def is_repeated(field: Any) -> bool:
        return bool(field.label == _REPEATED)

    def is_required(field: Any) -> bool:
        return bool(field.label == _REQUIRED)
