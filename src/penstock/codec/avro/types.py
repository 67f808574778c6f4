"""A parsed Avro definition as a graph of types; named types may refer to themselves."""

from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))


class Logical(NamedTuple):
    """A logical type the codec knows; `precision` and `scale` are a decimal's."""

    name: str
    precision: int = 0
    scale: int = 0


# Types are compared by identity: named ones may contain themselves.


@dataclass(slots=True, eq=False)
class Primitive:
    """null, boolean, int, long, float, double, bytes or string."""

    kind: str
    logical: Logical | None = None


@dataclass(slots=True, eq=False)
class Named:
    """What records, enums and fixed share: a full name and the aliases, full names too."""

    name: str
    aliases: tuple[str, ...]

    @property
    def short(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]


@dataclass(slots=True, eq=False)
class Fixed(Named):
    """Exactly `size` bytes."""

    kind: ClassVar = "fixed"
    size: int
    logical: Logical | None = None


@dataclass(slots=True, eq=False)
class Enum(Named):
    """One of `symbols`; `default` replaces symbols that a reader does not know."""

    kind: ClassVar = "enum"
    symbols: tuple[str, ...]
    default: str | None = None


@dataclass(slots=True, eq=False)
class Field:
    """A field of a record. `default` is the encoded default value, None if there is none.

    `default_error` says why a default that is given cannot be used: Pulsar registers such definitions, so they
    are not an error until the default is needed.
    """

    name: str
    type: "Type"
    aliases: tuple[str, ...]
    default: bytes | None = None
    default_error: str = ""


@dataclass(slots=True, eq=False)
class Record(Named):
    """Fields in order; filled in after the record is known by name, so that it may contain itself."""

    kind: ClassVar = "record"
    fields: tuple[Field, ...] = ()


@dataclass(slots=True, eq=False)
class Array:
    """A list of `items`."""

    kind: ClassVar = "array"
    logical: ClassVar[None] = None
    items: "Type"


@dataclass(slots=True, eq=False)
class Map:
    """Text to `values`."""

    kind: ClassVar = "map"
    logical: ClassVar[None] = None
    values: "Type"


@dataclass(slots=True, eq=False)
class Union:
    """One of `branches`, none of which is a union."""

    kind: ClassVar = "union"
    logical: ClassVar[None] = None
    branches: tuple["Type", ...]

    @property
    def nullable(self) -> bool:
        return any(branch.kind == "null" for branch in self.branches)

    @property
    def optional(self) -> bool:
        """Null and one other: no choosing needed."""
        return len(self.branches) == 2 and self.nullable


Type = Primitive | Fixed | Enum | Record | Array | Map | Union


def label(kind: Type) -> str:
    """How a type is called in messages."""
    if isinstance(kind, Named):
        return f"{kind.kind} {kind.short}"
    if isinstance(kind, Union):
        return "union of " + ", ".join(map(label, kind.branches))
    return kind.logical.name if kind.logical else kind.kind


def shown(value: object) -> str:
    """A part of a definition as messages show it, cut short."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
