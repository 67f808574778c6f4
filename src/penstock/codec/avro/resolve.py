"""Which writer's schema a reader's schema can read: the specification's rules for schema resolution.

Names of records do not decide, as in Java's resolution, which Pulsar goes by: a record reads another that has the
fields it needs. In a union a branch of the same name comes first. Names of enums and fixed do decide. With `by_name`
names of records decide, too, as Confluent's registry has it.

Stricter than Java's checker in one thing: a change of a decimal's scale or of a time's unit is a mismatch,
because the same bytes would silently mean another value.
"""

from collections.abc import Mapping
from typing import Final

from .types import Array, Enum, Field, Fixed, Logical, Map, Named, Record, Type, Union, label

# Pairs of records with different names that are compared for one question: two unions of thousands each have millions.
RENAMED_MAX: Final = 20_000

# Types of readers that may be wider than the writer's.
PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


def mismatch(reader: Type, writer: Type, *, by_name: bool = False) -> str:
    """Why `reader` cannot read what `writer` wrote, "" when it can: a sentence naming the field."""
    try:
        return Resolution(by_name=by_name).check(reader, writer)
    except RecursionError:
        return "the types refer to one another too deeply to be compared"


def same_name(reader: Named, writer: Named) -> bool:
    """Unqualified names count; or one of the reader's aliases is the writer's full name."""
    return reader.short == writer.short or writer.name in reader.aliases


def writer_field(field: Field, by_name: Mapping[str, Field]) -> Field | None:
    """The writer's field that the reader's `field` is read from; `by_name` are the writer's."""
    for name in (field.name, *field.aliases):
        if name in by_name:
            return by_name[name]
    return None


class Resolution:
    """Remembers the pairs of records it has seen, so that many questions about one schema stay cheap."""

    def __init__(self, *, by_name: bool = False) -> None:
        self._by_name = by_name
        # Pairs being checked or checked already; a recursive pair matches if all else about it does.
        self.known: dict[tuple[int, int], str] = {}
        self.renamed = 0  # how many of them have different names

    def check(self, reader: Type, writer: Type, path: str = "") -> str:
        """As `mismatch`; `path` is the path of the two."""
        if reader is writer:
            return ""
        if isinstance(writer, Union):
            for branch in writer.branches:
                why = self.check(reader, branch, path)
                if why:
                    return why
            return ""
        if isinstance(reader, Union):
            return (
                "" if self.branch(reader, writer, path) is not None else self._no_branch(reader, writer, path)
            )
        if reader.kind != writer.kind:
            if reader.kind in PROMOTIONS.get(writer.kind, ()):
                return ""
            return f"{_at(path)}{label(writer)} was written, which {label(reader)} cannot read"
        if isinstance(reader, Record) and isinstance(writer, Record):
            if self._by_name and not same_name(reader, writer):
                return f"{_at(path)}{label(writer)} was written, which {label(reader)} cannot read"
            return self._named_once(reader, writer, path)
        if isinstance(reader, Array) and isinstance(writer, Array):
            return self.check(reader.items, writer.items, f"{path}[]")
        if isinstance(reader, Map) and isinstance(writer, Map):
            return self.check(reader.values, writer.values, f"{path}{{}}")
        if isinstance(reader, Named) and isinstance(writer, Named) and not same_name(reader, writer):
            return f"{_at(path)}{label(writer)} was written, which {label(reader)} cannot read"
        if isinstance(reader, Enum) and isinstance(writer, Enum):
            return _enum_mismatch(reader, writer, path)
        if isinstance(reader, Fixed) and isinstance(writer, Fixed) and reader.size != writer.size:
            return f"{_at(path)}{label(writer)} was written with {writer.size} bytes, not {reader.size}"
        return _logical_mismatch(_logical(reader), _logical(writer), path)

    def branch(self, reader: Union, writer: Type, path: str = "") -> Type | None:
        """The reader's branch for a value of `writer`: itself, one of its name, one of its kind, a promotion."""
        if any(branch is writer for branch in reader.branches):
            return writer
        ranked = sorted(reader.branches, key=lambda branch: _rank(branch, writer))
        return next((branch for branch in ranked if not self.check(branch, writer, path)), None)

    def _no_branch(self, reader: Union, writer: Type, path: str) -> str:
        if self.renamed > RENAMED_MAX:
            return _too_many(path)
        return f"{_at(path)}{label(writer)} was written, and none of {label(reader)} reads it"

    def _named_once(self, reader: Record, writer: Record, path: str) -> str:
        pair = (id(reader), id(writer))
        if pair not in self.known:
            if not same_name(reader, writer):
                self.renamed += 1
                if self.renamed > RENAMED_MAX:
                    return (
                        f"{_at(path)}more than {RENAMED_MAX} pairs of records with different names to compare"
                    )
            before = len(self.known)
            self.known[pair] = ""
            why = self._record(reader, writer, path)
            if why:
                # What matched since may have matched only because this pair was thought to.
                for later in list(self.known)[before + 1 :]:
                    if not self.known[later]:
                        del self.known[later]
            self.known[pair] = why
        return self.known[pair]

    def _record(self, reader: Record, writer: Record, path: str) -> str:
        by_name = {field.name: field for field in writer.fields}
        for field in reader.fields:
            inside = f"{path}.{field.name}" if path else field.name
            source = writer_field(field, by_name)
            if source is not None:
                why = self.check(field.type, source.type, inside)
                if why:
                    return why
            elif field.default is None:
                also = f" ({field.default_error})" if field.default_error else ""
                return f"{_at(inside)}it is not in what was written and has no default{also}"
        return ""


def _too_many(path: str) -> str:
    return f"{_at(path)}more than {RENAMED_MAX} pairs of records with different names to compare"


def _rank(branch: Type, writer: Type) -> int:
    """How well a branch suits; less is better."""
    if branch.kind != writer.kind:
        return 3
    if isinstance(branch, Named) and isinstance(writer, Named):
        return 0 if branch.name == writer.name else 1 if same_name(branch, writer) else 2
    return 0


def _enum_mismatch(reader: Enum, writer: Enum, path: str) -> str:
    if reader.default is not None:
        return ""
    known = set(reader.symbols)
    unknown = [symbol for symbol in writer.symbols if symbol not in known]
    if not unknown:
        return ""
    return f"{_at(path)}{label(reader)} has no symbol {', '.join(unknown[:5])} and no default"


def _logical(kind: Type) -> Logical | None:
    return None if isinstance(kind, Record | Enum) else kind.logical


def _logical_mismatch(reader: Logical | None, writer: Logical | None, path: str) -> str:
    if reader is None or writer is None or reader == writer:
        return ""
    if reader.name == writer.name == "decimal":
        if reader.scale == writer.scale:
            return ""
        return f"{_at(path)}the scale of the decimal was {writer.scale}, not {reader.scale}"
    if reader.name.rpartition("-")[0] == writer.name.rpartition("-")[0]:
        return f"{_at(path)}{writer.name} was written, which is not {reader.name}"
    return ""


def _at(path: str) -> str:
    return f"field {path!r}: " if path else ""
