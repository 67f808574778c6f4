"""Schemas of a registry, of its three types: read with what they reference, compared, normalized, and which may follow which."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

import msgspec
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.model.subjects import Level

from .avro.parse import parse as parse_avro
from .avro.references import with_references
from .avro.resolve import mismatch
from .avro.types import PRIMITIVES
from .json_schema.pulsar import of_json_schema

TYPES: Final = ("JSON", "PROTOBUF", "AVRO")  # as `GET /schemas/types` lists them
TEXT_MAX: Final = 256 * 1024  # characters of a schema and its references: they are read on the event loop
_REMEMBERED: Final = 256
_REMEMBERED_SIZE: Final = 32 * 1024  # larger ones are read each time
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
    size = len(text) + sum(map(len, references.values()))
    if size > TEXT_MAX:
        raise ValueError(f"{size} characters with the referenced schemas, at most {TEXT_MAX} are allowed")
    given = kind, text, tuple(sorted(references.items()))
    return _read(*given) if size <= _REMEMBERED_SIZE else _read.__wrapped__(*given)


@lru_cache(maxsize=_REMEMBERED)
def _read(kind: str, text: str, references: tuple[tuple[str, str], ...]) -> Schema:
    schema: Schema = _OF_TYPE[kind](text, dict(references))
    return schema


def schema_of(kind: str, text: str, references: Mapping[str, str]) -> SchemaInfo:
    """A schema of a registry as one of Pulsar's: AVRO, JSON or PROTOBUF_NATIVE, whose root is the file's first message. Raises
    BAD_VALUE_SCHEMA."""
    try:
        match kind:
            case "AVRO":
                return SchemaInfo(SchemaType.AVRO, with_references(text, references).encode())
            case "JSON":
                return of_json_schema(text)
            case "PROTOBUF":
                from .proto.native import of_proto  # here: so that other types do not load protobuf

                return of_proto(text, references)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:  # another's text
        raise PenstockError(
            ErrorKind.BAD_VALUE_SCHEMA, f"a {kind} schema that is not understood: {error}"
        ) from None
    raise PenstockError(ErrorKind.BAD_VALUE_SCHEMA, f"{kind} is no type that is known here")


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
        try:
            if level.backward:
                found += (
                    f"the new schema cannot read the old one: {why}" for why in new[1].objections(schema)
                )
            if level.forward:
                found += (
                    f"the old schema cannot read the new one: {why}" for why in schema.objections(new[1])
                )
        except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
            return [f"the schemas cannot be compared: {error}"]
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
        defined: set[str] = set()
        _define(self._tree, "", defined)
        return _json(_full_names(self._tree, "", defined), ordered=True)

    def resolved(self) -> str:
        return self._whole

    def serialized(self) -> str:
        return self.text

    def objections(self, written: "_Avro") -> Sequence[str]:
        why = mismatch(self._type, written._type, by_name=True)
        return [why] if why else []


def _define(tree: Any, namespace: str, defined: set[str]) -> None:
    """Collect the full names of the types that a definition has."""
    if isinstance(tree, list):
        for one in tree:
            _define(one, namespace, defined)
    elif isinstance(tree, dict):
        if isinstance(tree.get("name"), str) and tree.get("type") in _NAMED:
            namespace = _namespace(tree, namespace)
            defined.add(_full(tree["name"], namespace))
        for word in ("type", "items", "values"):
            if isinstance(tree.get(word), dict | list):
                _define(tree[word], namespace, defined)
        if isinstance(tree.get("fields"), list):
            for one in tree["fields"]:
                _define(one.get("type"), namespace, defined)


def _full_names(tree: Any, namespace: str, defined: set[str]) -> Any:
    """A definition whose own names are full, and whose types are as short as they can be written."""
    if isinstance(tree, list):
        return [_full_names(one, namespace, defined) for one in tree]
    if isinstance(tree, str):
        full = _full(tree, namespace)
        return full if full in defined else tree  # the others are of references
    if set(tree) == {"type"}:
        return _full_names(tree["type"], namespace, defined)
    made = dict(tree)
    if isinstance(made.get("name"), str) and made.get("type") in _NAMED:
        outer, namespace = namespace, _namespace(made, namespace)
        made.pop("namespace", None)
        made["name"] = _full(made["name"], namespace)
        if outer and not namespace:
            made["namespace"] = ""
    for word in ("type", "items", "values"):
        if word in made and (word != "type" or made[word] not in _KINDS):
            made[word] = _full_names(made[word], namespace, defined)
    if isinstance(made.get("fields"), list):
        made["fields"] = [
            {**one, "type": _full_names(one["type"], namespace, defined)} for one in made["fields"]
        ]
    return made


def _namespace(tree: dict[str, Any], outer: str) -> str:
    name: str = tree["name"]
    return name.rpartition(".")[0] if "." in name else tree.get("namespace", outer) or ""


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace or name in PRIMITIVES else f"{namespace}.{name}"


_NAMED: Final = ("record", "error", "enum", "fixed")
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
