"""Pulsar's commands and metadata as classes: pulsar.proto, compiled by `make proto` to pulsar.binpb and to the stubs beside this.

protoc's own Python asks for the major version of protobuf that made it. What is public of the runtime makes the same
classes, of a descriptor, with every version that pyproject.toml allows (decision record 0078).
"""

import pkgutil

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message_factory import GetMessageClass

[_file] = FileDescriptorSet.FromString(pkgutil.get_data(__name__, "pulsar.binpb") or b"").file
DESCRIPTOR = DescriptorPool().AddSerializedFile(_file.SerializeToString())

for _name, _message in DESCRIPTOR.message_types_by_name.items():
    globals()[_name] = GetMessageClass(_message)
for _name, _enum in DESCRIPTOR.enum_types_by_name.items():
    globals()[_name] = EnumTypeWrapper(_enum)
    globals().update((value.name, value.number) for value in _enum.values)
