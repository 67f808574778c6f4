"""A `.proto` file with what it imports: as a set of descriptors from texts, and as texts from a set."""

import re
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from .parse import parse
from .resolve import resolve, types_of
from .tokens import ProtoError

_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}\s*")
IMPORTS_MAX: Final = 200  # files that one file imports, also through others
TEXT_MAX: Final = 2 << 20  # characters of a file and its imports: a second or two of work

# Files that Confluent's registries and serializers carry in addition to protobuf's.
CARRIED: Final[Mapping[str, str]] = {
    "confluent/type/decimal.proto": (
        'syntax = "proto3";\npackage confluent.type;\n'
        "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }\n"
    )
}


def compile_file(
    name: str,
    text: str,
    imports: Mapping[str, str],
    known: Callable[[str], FileDescriptorProto | None],
) -> FileDescriptorSet:
    """The descriptors of a file and of all that it imports, itself last.

    `imports` has the texts of other files by the names that they are imported by, and `known` gives files that need no text.
    An import that is nowhere is left out: mostly it has custom options, which are left out, too. Raises ProtoError.
    """
    if len(text) + sum(map(len, imports.values())) > TEXT_MAX:
        raise ProtoError(f"more than {TEXT_MAX} characters with the files that are imported")
    files: dict[str, FileDescriptorProto] = {}
    _load(name, text, imports, known, files, ())
    return FileDescriptorSet(file=files.values())


def _load(
    name: str,
    text: str,
    imports: Mapping[str, str],
    known: Callable[[str], FileDescriptorProto | None],
    files: dict[str, FileDescriptorProto],
    importing: tuple[str, ...],
) -> None:
    if len(files) + len(importing) > IMPORTS_MAX:
        raise ProtoError(f"more than {IMPORTS_MAX} imported files")
    file = _encoded(name, text) or parse(name, text)
    public = {file.dependency[at] for at in file.public_dependency}
    kept: list[str] = []
    for one in file.dependency:
        if one == name or one in importing:
            raise ProtoError(f"{name} imports {one}, which imports it")
        if one not in files:
            found = known(one)
            if found is not None:
                _load_known(found, known, files)
            elif one in imports or one in CARRIED:
                more = imports[one] if one in imports else CARRIED[one]
                _load(one, more, imports, known, files, (*importing, name))
        if one in files and one not in kept:
            kept.append(one)
    missing = [one for one in file.dependency if one not in files]
    del file.dependency[:], file.public_dependency[:]
    file.dependency.extend(kept)
    file.public_dependency.extend(at for at, one in enumerate(kept) if one in public)
    try:
        resolve(file, types_of((*files.values(), file)))
    except ProtoError as error:
        more = f" (there is no {', '.join(missing)})" if missing else ""
        raise ProtoError(f"{error}{more}") from None
    files[name] = file


def _encoded(name: str, text: str) -> FileDescriptorProto | None:
    """A file that is given as base64 of its descriptor, as some clients register it."""
    if not _BASE64.fullmatch(text):
        return None
    try:
        file = FileDescriptorProto.FromString(a2b_base64(text))
    except (DecodeError, ValueError):
        return None
    if any(at >= len(file.dependency) for at in file.public_dependency):
        return None
    file.name = name
    file.ClearField("source_code_info")
    return file


def _load_known(
    file: FileDescriptorProto,
    known: Callable[[str], FileDescriptorProto | None],
    files: dict[str, FileDescriptorProto],
) -> None:
    for one in file.dependency:
        found = None if one in files else known(one)
        if found is not None:
            _load_known(found, known, files)
    files[file.name] = file
