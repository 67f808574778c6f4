"""Schemas of a registry, of its three types: read with what they reference, compared, normalized, and which may follow which."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

import msgspec
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from penstock.model.subjects import Level

from .avro.parse import DefinitionError
from .avro.parse import parse as parse_avro
from .avro.references import with_references
from .avro.resolve import mismatch

TYPES: Final = ("JSON", "PROTOBUF", "AVRO")  # as `GET /schemas/types` lists them
_REMEMBERED: Final = 256
_FILE: Final = "default.proto"


class Schema(Protocol):
    """A schema that was read."""

    text: str  # as it is stored
    key: str  # two schemas of a type are the same if these are

    def normalized(self) -> str:
        """The text without differences that mean nothing."""

    def resolved(self) -> str:
        """The text with its references put into it."""

    def serialized(self) -> str:
        """The descriptor of a Protobuf file, in base64; the text of others."""

    def objections(self, written: Any) -> Sequence[str]:
        """Why this schema may not read what `written`, of the same type, wrote."""


def read(kind: str, text: str, references: Mapping[str, str]) -> Schema:
    """Read a schema; `references` has the texts of all that it uses, by the names it uses them by. Raises ValueError."""
    return _read(kind, text, tuple(sorted(references.items())))


@lru_cache(maxsize=_REMEMBERED)
def _read(kind: str, text: str, references: tuple[tuple[str, str], ...]) -> Schema:
    schema: Schema = _OF_TYPE[kind](text, dict(references))
    return schema


def incompatibilities(
    new: tuple[str, Schema], existing: Sequence[tuple[str, Schema]], level: Level
) -> list[str]:
    """Why `new` may not follow `existing`, the newest last, each with its type."""
    if level is Level.NONE:
        return []
    found: list[str] = []
    for kind, schema in reversed(existing if level.transitive else existing[-1:]):
        if kind != new[0]:
            return [f"a schema of type {new[0]} may not follow one of type {kind}"]
        if level.backward:
            found += (f"the new schema cannot read the old one: {why}" for why in new[1].objections(schema))
        if level.forward:
            found += (f"the old schema cannot read the new one: {why}" for why in schema.objections(new[1]))
        if found:
            break
    return found


def _json(value: Any, *, ordered: bool = False) -> str:
    return msgspec.json.encode(value, order="deterministic" if ordered else None).decode()


class _Avro:
    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        try:
            self._tree = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            # As Java's parser takes it: the name of a primitive type without quotes.
            if not text.strip().isalpha():
                raise ValueError("the definition is not JSON") from None
            self._tree = text.strip()
        self.text = self.key = _json(self._tree)
        self._whole = with_references(self.text, references)
        self._type = parse_avro(self._whole.encode())

    def normalized(self) -> str:
        return _json(_full_names(self._tree, ""), ordered=True)

    def resolved(self) -> str:
        return self._whole

    def serialized(self) -> str:
        return self.text

    def objections(self, written: "_Avro") -> Sequence[str]:
        why = mismatch(self._type, written._type, by_name=True)
        return [why] if why else []


def _full_names(tree: Any, namespace: str) -> Any:
    """A definition whose names are full, and whose types are as short as they can be written."""
    if isinstance(tree, list):
        return [_full_names(one, namespace) for one in tree]
    if isinstance(tree, str):
        return tree if "." in tree or not namespace or tree in _PRIMITIVES else f"{namespace}.{tree}"
    if set(tree) == {"type"}:
        return _full_names(tree["type"], namespace)
    made = dict(tree)
    if isinstance(made.get("name"), str):
        namespace = made["name"].rpartition(".")[0] or made.pop("namespace", namespace) or ""
        made.pop("namespace", None)
        made["name"] = _full_names(made["name"], namespace)
    for word in ("type", "items", "values"):
        if word in made and made[word] not in _KINDS:
            made[word] = _full_names(made[word], namespace)
    if isinstance(made.get("fields"), list):
        made["fields"] = [{**one, "type": _full_names(one["type"], namespace)} for one in made["fields"]]
    return made


_PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_KINDS: Final = ("record", "error", "enum", "fixed", "array", "map")


class _JsonSchema:
    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        from .json_schema.document import Document  # here: only JSON Schema needs its library

        self._document = Document(text, references)
        self.text = self.key = _json(self._document.schema)

    def normalized(self) -> str:
        return _json(self._document.schema, ordered=True)

    def resolved(self) -> str:
        return self.text

    def serialized(self) -> str:
        return self.text

    def objections(self, written: "_JsonSchema") -> Sequence[str]:
        from .json_schema.differences import narrowed

        return [str(each) for each in narrowed(written._document, self._document)]


class _Protobuf:
    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        from .descriptors import pool_of, well_known  # here: so that other types do not load protobuf
        from .proto.files import compile_file
        from .proto.resolve import types_of
        from .proto.write import write

        self.files: FileDescriptorSet = compile_file(_FILE, text, references, well_known)
        pool_of(self.files)  # finds the rest that is wrong with it
        self._types = types_of(self.files.file)
        self._write = write
        self.key = write(self.files.file[-1], self._types)
        self.text = (
            text if "{" in text or ";" in text else self.key
        )  # some clients send a descriptor in base64

    def normalized(self) -> str:
        file = FileDescriptorProto()
        file.CopyFrom(self.files.file[-1])
        public = {file.dependency[at] for at in file.public_dependency}
        names = sorted(file.dependency)
        del file.dependency[:], file.public_dependency[:]
        file.dependency.extend(names)
        file.public_dependency.extend(at for at, name in enumerate(names) if name in public)
        return self._write(file, self._types)

    def resolved(self) -> str:
        return self.text

    def serialized(self) -> str:
        return b64encode(self.files.file[-1].SerializeToString(deterministic=True)).decode()

    def objections(self, written: "_Protobuf") -> Sequence[str]:
        from .proto.differences import broken

        return [str(each) for each in broken(written.files, self.files)]


_OF_TYPE: Final[Mapping[str, Any]] = {"AVRO": _Avro, "JSON": _JsonSchema, "PROTOBUF": _Protobuf}

__all__ = ["TYPES", "DefinitionError", "Schema", "incompatibilities", "read"]
