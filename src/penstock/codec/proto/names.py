"""Names in `.proto` files: of the types that have no definition, and of fields in JSON."""

from typing import Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto

SCALARS: Final = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in FieldDescriptorProto.Type.items()
    if name not in ("TYPE_MESSAGE", "TYPE_ENUM", "TYPE_GROUP")
}


def json_name(name: str) -> str:
    """A field's name in JSON: without underscores, each letter after one a capital."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)
