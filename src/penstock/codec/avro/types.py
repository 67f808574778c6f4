"""A parsed Avro definition as a graph of types; named types may refer to themselves."""

from typing import Final, NamedTuple


class Logical(NamedTuple):
    """A logical type the codec knows; `precision` and `scale` are a decimal's."""

    name: str
    precision: int = 0
    scale: int = 0


class Primitive:
    """null, boolean, int, long, float, double, bytes or string."""

    __slots__ = ("kind", "logical")

    def __init__(self, kind: str, logical: Logical | None = None) -> None:
        self.kind = kind
        self.logical = logical


class Named:
    """What records, enums and fixed share: a full name and the aliases, full names too."""

    __slots__ = ("aliases", "name")

    def __init__(self, name: str, aliases: tuple[str, ...]) -> None:
        self.name = name
        self.aliases = aliases

    @property
    def short(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]


class Fixed(Named):
    """Exactly `size` bytes."""

    __slots__ = ("logical", "size")
    kind: Final = "fixed"

    def __init__(
        self, name: str, aliases: tuple[str, ...], size: int, logical: Logical | None = None
    ) -> None:
        super().__init__(name, aliases)
        self.size = size
        self.logical = logical


class Enum(Named):
    """One of `symbols`; `default` stands for the symbols a reader does not know."""

    __slots__ = ("default", "symbols")
    kind: Final = "enum"

    def __init__(
        self, name: str, aliases: tuple[str, ...], symbols: tuple[str, ...], default: str | None = None
    ) -> None:
        super().__init__(name, aliases)
        self.symbols = symbols
        self.default = default


class Field:
    """A field of a record. `default` is the encoded default value, None where there is none.

    `default_error` says why a default that is given cannot be used: Pulsar registers such definitions, so they
    are no error until the default is needed.
    """

    __slots__ = ("aliases", "default", "default_error", "name", "type")

    def __init__(self, name: str, kind: "Type", aliases: tuple[str, ...]) -> None:
        self.name = name
        self.type = kind
        self.aliases = aliases
        self.default: bytes | None = None
        self.default_error = ""


class Record(Named):
    """Fields in order; filled in after the record is known by name, so that it may contain itself."""

    __slots__ = ("fields",)
    kind: Final = "record"

    def __init__(self, name: str, aliases: tuple[str, ...]) -> None:
        super().__init__(name, aliases)
        self.fields: tuple[Field, ...] = ()


class Array:
    """A list of `items`."""

    __slots__ = ("items",)
    kind: Final = "array"
    logical: Final = None

    def __init__(self, items: "Type") -> None:
        self.items = items


class Map:
    """Text to `values`."""

    __slots__ = ("values",)
    kind: Final = "map"
    logical: Final = None

    def __init__(self, values: "Type") -> None:
        self.values = values


class Union:
    """One of `branches`, none of which is a union."""

    __slots__ = ("branches",)
    kind: Final = "union"
    logical: Final = None

    def __init__(self, branches: tuple["Type", ...]) -> None:
        self.branches = branches

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
