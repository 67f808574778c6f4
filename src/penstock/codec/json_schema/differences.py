"""Whether one JSON Schema accepts all values of another: differences between the two, and which of them narrow.

The rules are those that Confluent publishes for its registry: each difference between an original and an update is of a kind,
and only some kinds are compatible. An object is open if it allows every additional property, closed if it allows none, and
partly open if it has a schema for them.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, Final, NamedTuple

import msgspec

from penstock.model.errors import PenstockError
from penstock.runtime.patterns import Pattern

from .document import Document, Kind, Node, Shape

COMPARED_MAX: Final = 20_000  # pairs of schemas in one comparison


class Difference(NamedTuple):
    """A difference that narrows: values of the original may not be values of the update."""

    name: str
    path: str  # a JSON pointer, "#/properties/a"

    def __str__(self) -> str:
        return f"{self.name} at {self.path}"


class TooLargeError(Exception):
    """More than COMPARED_MAX pairs would have to be compared."""


def narrowed(original: Document, update: Document) -> list[Difference]:
    """Every difference by which `update` may not accept a value that `original` accepts; empty if it accepts all.

    Raises JsonSchemaError for a reference that cannot be resolved.
    """
    if original.texts == update.texts:
        return []
    try:
        return _Comparison(original, update).of(original.root, update.root, "#")
    except RecursionError:
        return [Difference("TOO_DEEP", "#")]
    except TooLargeError:
        return [Difference("TOO_LARGE", "#")]


class _Comparison:
    def __init__(self, original: Document, update: Document, turned: "_Comparison | None" = None) -> None:
        self._original = original
        self._update = update
        # Pairs that are being compared: equal as far as they themselves say. With the sides exchanged they are others.
        self._open: set[tuple[int, int]] = set()
        self._turned = turned
        self._count: list[int] = [0] if turned is None else turned._count

    def of(self, original: Node, update: Node, path: str) -> list[Difference]:
        pair = id(original.schema), id(update.schema)
        if pair in self._open:
            return []
        self._open.add(pair)
        try:
            return self._shapes(self._original.shape(original), self._update.shape(update), path)
        finally:
            self._open.discard(pair)

    def turned(self, original: Node, update: Node, path: str) -> list[Difference]:
        """With the sides exchanged: the schema of a `not`."""
        if self._turned is None:
            self._turned = _Comparison(self._update, self._original, self)
        return self._turned.of(update, original, path)

    def _spend(self, count: int) -> None:
        """Count comparisons, of both directions. Raises TooLargeError."""
        self._count[0] += count
        if self._count[0] > COMPARED_MAX:
            raise TooLargeError

    def _shapes(self, original: Shape, update: Shape, path: str) -> list[Difference]:
        self._spend(1)
        original, update = self._alone(original, self._original), self._alone(update, self._update)
        if original.kind is Kind.NONE or (update.kind is Kind.ANY):
            return []
        if original.kind.combines and update.kind.combines:
            return self._combined(original, update, path)
        if update.kind.combines:
            return self._into(original, update, path)
        if original.kind.combines:
            return self._out_of(original, update, path)
        if original.kind is not update.kind:
            both = all(each.words.get("connect.type") == "bytes" for each in (original, update))
            return [] if both else [Difference("TYPE_CHANGED", path)]
        compare = _OF_KIND.get(original.kind)
        return compare(self, original, update, path) if compare else []

    def _alone(self, shape: Shape, document: Document) -> Shape:
        """A combination of one branch is its branch; one that is its own branch allows everything."""
        seen: set[int] = set()
        while shape.kind.combines and len(shape.branches) == 1:
            branch = shape.branches[0]
            if id(branch.schema) in seen:
                return Shape(Kind.ANY)
            seen.add(id(branch.schema))
            shape = document.shape(branch)
        return shape

    # -- combinations

    def _into(self, original: Shape, update: Shape, path: str) -> list[Difference]:
        """A plain schema became a combination."""
        if update.kind is Kind.ALL_OF:
            found = [
                each
                for branch in update.branches
                for each in self._shapes(original, self._update.shape(branch), path)
            ]
            return [Difference("PRODUCT_TYPE_EXTENDED", path)] if found else []
        if any(not self._shapes(original, self._update.shape(branch), path) for branch in update.branches):
            return []
        return [Difference("TYPE_CHANGED", path)]

    def _out_of(self, original: Shape, update: Shape, path: str) -> list[Difference]:
        """A combination became a plain schema."""
        found = [not self._shapes(self._original.shape(branch), update, path) for branch in original.branches]
        if any(found) if original.kind is Kind.ALL_OF else all(found):
            return []
        return [Difference("TYPE_CHANGED" if original.kind is Kind.ALL_OF else "SUM_TYPE_NARROWED", path)]

    def _combined(self, original: Shape, update: Shape, path: str) -> list[Difference]:
        before, now = len(original.branches), len(update.branches)
        if original.kind is not update.kind and update.kind is not Kind.ANY_OF:
            return [Difference("COMBINED_TYPE_CHANGED", path)]
        if update.kind is Kind.ALL_OF and now > before:
            return [Difference("PRODUCT_TYPE_EXTENDED", path)]
        if original.kind is not Kind.ALL_OF and now < before:
            return [Difference("SUM_TYPE_NARROWED", path)]
        pairs = [
            [at for at, new in enumerate(update.branches) if not self.of(old, new, path)]
            for old in original.branches
        ]
        needed = 1 if original.kind is Kind.ALL_OF and update.kind is Kind.ANY_OF else min(before, now)
        if _matched(pairs) < needed:
            return [Difference("COMBINED_TYPE_SUBSCHEMAS_CHANGED", path)]
        return []

    # -- plain schemas

    def _string(self, original: Shape, update: Shape, path: str) -> list[Difference]:
        found = _bounds(original, update, path, ("maxLength",), ("minLength",))
        return found + _kept(original, update, path, "pattern")

    def _number(self, original: Shape, update: Shape, path: str) -> list[Difference]:
        before, now = _exclusive(original), _exclusive(update)
        found = _bounds(before, now, path, ("maximum", "exclusiveMaximum"), ("minimum", "exclusiveMinimum"))
        if update.integer and not original.integer:
            found.append(Difference("TYPE_NARROWED", path))
        was, factor = original.words.get("multipleOf"), update.words.get("multipleOf")
        if factor is not None and (was is None or not _divides(factor, was)):
            found.append(
                Difference(f"MULTIPLE_OF_{'ADDED' if was is None else 'CHANGED'}", f"{path}/multipleOf")
            )
        return found

    def _array(self, original: Shape, update: Shape, path: str) -> list[Difference]:
        found = _bounds(original, update, path, ("maxItems",), ("minItems",))
        if update.words.get("uniqueItems") and not original.words.get("uniqueItems"):
            found.append(Difference("UNIQUE_ITEMS_ADDED", f"{path}/uniqueItems"))
        if "contains" in update.words:
            if "contains" not in original.words:
                found.append(Difference("CONTAINS_ADDED", f"{path}/contains"))
            else:
                old, new = (each.node(each.words["contains"]) for each in (original, update))
                found += self.of(old, new, f"{path}/contains")
                found += _bounds(original, update, path, ("maxContains",), ("minContains",), absent_min=1)
        return found + self._items(_Items(original), _Items(update), path)

    def _items(self, original: "_Items", update: "_Items", path: str) -> list[Difference]:
        found = []
        for at, (old, new) in enumerate(zip(original.first, update.first, strict=False)):
            found += self.of(old, new, f"{path}/items/{at}")
        for at, old in enumerate(original.first[len(update.first) :], len(update.first)):
            found += self._removed(old, update.rest, f"{path}/items/{at}", "ITEM")
        for at, new in enumerate(update.first[len(original.first) :], len(original.first)):
            found += self._added(new, original.rest, f"{path}/items/{at}", "ITEM")
        if update.rest is not None and update.rest.schema is not True:
            rest = original.rest or Node(True, None)
            inner = self.of(rest, update.rest, f"{path}/{update.word}")
            if rest.schema is True and inner:
                inner = [Difference("ADDITIONAL_ITEMS_NARROWED", f"{path}/{update.word}")]
            found += inner
        return found

    def _added(self, new: Node, rest: Node | None, path: str, noun: str) -> list[Difference]:
        """A property or item was named for which the original had `rest`, the schema of those it does not name; None: any."""
        if rest is None or rest.schema is True:
            if self._update.shape(new).kind is Kind.ANY:
                return []
            return [Difference(f"{noun}_ADDED_TO_OPEN_CONTENT_MODEL", path)]
        if rest.schema is not False and self.of(rest, new, path):
            return [Difference(f"{noun}_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)]
        return []

    def _removed(self, old: Node, rest: Node | None, path: str, noun: str) -> list[Difference]:
        if rest is None or rest.schema is True:
            return []
        if rest.schema is False:
            if self._original.shape(old).kind is Kind.NONE:
                return []
            return [Difference(f"{noun}_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)]
        if self.of(old, rest, path):
            return [Difference(f"{noun}_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)]
        return []

    def _object(self, original: Shape, update: Shape, path: str) -> list[Difference]:
        before, now = _Object(original), _Object(update)
        self._spend(len(before.properties) * len(now.patterns) + len(now.properties) * len(before.patterns))
        found = _bounds(original, update, path, ("maxProperties",), ("minProperties",))
        for name, old in before.properties.items():
            inside = f"{path}/properties/{name}"
            if name in now.properties:
                found += self.of(old, now.properties[name], inside)
            else:
                found += self._removed(old, now.rest(name), inside, "PROPERTY")
        for name, new in now.properties.items():
            if name not in before.properties:
                found += self._added(new, before.rest(name), f"{path}/properties/{name}", "PROPERTY")
        for name in now.required - before.required:
            if not self._has_default(now.properties.get(name)):
                found.append(Difference("REQUIRED_ATTRIBUTE_ADDED", f"{path}/required/{name}"))
        found += self._additional(before, now, path)
        found += self._dependencies(before, now, path)
        for pattern, new in now.patterns.items():
            if pattern in before.patterns:
                found += self.of(before.patterns[pattern], new, f"{path}/patternProperties/{pattern}")
            elif self.of(before.additional or Node(True, None), new, path):
                found.append(Difference("PATTERN_PROPERTY_ADDED", f"{path}/patternProperties/{pattern}"))
        if "propertyNames" in update.words:
            names = original.node(original.words.get("propertyNames", True))
            found += self.of(names, update.node(update.words["propertyNames"]), f"{path}/propertyNames")
        return found

    def _additional(self, before: "_Object", now: "_Object", path: str) -> list[Difference]:
        old, new = before.additional or Node(True, None), now.additional
        if new is None or new.schema is True or old.schema is False:
            return []
        where = f"{path}/additionalProperties"
        if new.schema is False:
            return [Difference("ADDITIONAL_PROPERTIES_REMOVED", where)]
        if old.schema is True:
            narrows = self._update.shape(new).kind is not Kind.ANY
            return [Difference("ADDITIONAL_PROPERTIES_NARROWED", where)] if narrows else []
        return self.of(old, new, where)

    def _dependencies(self, before: "_Object", now: "_Object", path: str) -> list[Difference]:
        found = []
        for name, needed in now.needs.items():
            if not needed <= before.needs.get(name, set()) | before.required | {name}:
                found.append(Difference("DEPENDENCY_ARRAY_EXTENDED", f"{path}/dependencies/{name}"))
        for name, schema in now.depending.items():
            where = f"{path}/dependencies/{name}"
            if name in before.depending:
                found += self.of(before.depending[name], schema, where)
            else:
                found.append(Difference("DEPENDENCY_SCHEMA_ADDED", where))
        return found

    def _has_default(self, node: Node | None) -> bool:
        if node is None or not isinstance(node.schema, dict):
            return False
        if "default" in node.schema:
            return True
        reference = node.schema.get("$ref")
        return isinstance(reference, str) and self._has_default(self._update.follow(node, reference))

    def _enum(self, original: Shape, update: Shape, path: str) -> list[Difference]:
        before, now = ({_text(value) for value in _list(each.words["enum"])} for each in (original, update))
        return [] if before <= now else [Difference("ENUM_ARRAY_NARROWED", f"{path}/enum")]

    def _const(self, original: Shape, update: Shape, path: str) -> list[Difference]:
        same = _text(original.words["const"]) == _text(update.words["const"])
        return [] if same else [Difference("CONST_CHANGED", f"{path}/const")]

    def _not(self, original: Shape, update: Shape, path: str) -> list[Difference]:
        if self.turned(original.branches[0], update.branches[0], f"{path}/not"):
            return [Difference("NOT_TYPE_EXTENDED", f"{path}/not")]
        return []

    def _if(self, original: Shape, update: Shape, path: str) -> list[Difference]:
        return [] if original.words == update.words else [Difference("CONDITION_CHANGED", f"{path}/if")]


_OF_KIND: Final[Mapping[Kind, Callable[[_Comparison, Shape, Shape, str], list[Difference]]]] = {
    Kind.OBJECT: _Comparison._object,
    Kind.ARRAY: _Comparison._array,
    Kind.STRING: _Comparison._string,
    Kind.NUMBER: _Comparison._number,
    Kind.ENUM: _Comparison._enum,
    Kind.CONST: _Comparison._const,
    Kind.NOT: _Comparison._not,
    Kind.IF: _Comparison._if,
}


class _Object:
    """The keywords of an object."""

    def __init__(self, shape: Shape) -> None:
        words = shape.words
        self.properties = _nodes(shape, words.get("properties"))
        self.patterns = _nodes(shape, words.get("patternProperties"))
        self._compiled = [(_pattern(text), node) for text, node in self.patterns.items()]
        self.required = {one for one in _list(words.get("required")) if isinstance(one, str)}
        rest = words.get("additionalProperties", words.get("unevaluatedProperties"))
        self.additional = None if rest is None else shape.node(rest)
        self.needs: dict[str, set[Any]] = {}
        self.depending: dict[str, Node] = {}
        for word in ("dependencies", "dependentRequired", "dependentSchemas"):
            for name, what in _dict(words.get(word)).items():
                if isinstance(what, list):
                    self.needs[name] = {one for one in what if isinstance(one, str)}
                else:
                    self.depending[name] = shape.node(what)

    def rest(self, name: str) -> Node | None:
        """The schema of a property that is not named: of a pattern that it matches, or of all others; None: any."""
        for pattern, node in self._compiled:
            if pattern is not None and pattern.fullmatch(name):
                return node
        if self.additional is None and self.patterns:
            return Node(True, None)
        return self.additional


class _Items:
    """The keywords of an array: `first` are the schemas of single items, `rest` that of all others; None: any."""

    def __init__(self, shape: Shape) -> None:
        words = shape.words
        tuple_word = "prefixItems" if "prefixItems" in words else "items"
        first = words.get(tuple_word)
        self.first = [shape.node(one) for one in first] if isinstance(first, list) else []
        if not isinstance(first, list) or tuple_word == "prefixItems":
            self.word, rest = "items", words.get("items", words.get("unevaluatedItems"))
        else:
            self.word, rest = "additionalItems", words.get("additionalItems", words.get("unevaluatedItems"))
        self.rest = None if rest is None else shape.node(rest)


def _bounds(
    original: Shape,
    update: Shape,
    path: str,
    upper: Iterable[str],
    lower: Iterable[str],
    *,
    absent_min: int | None = None,
) -> list[Difference]:
    """Bounds that are new or closer."""
    found = []
    for words, closer, absent in ((upper, _less, None), (lower, _greater, absent_min)):
        for word in words:
            was, now = original.words.get(word, absent), update.words.get(word, absent)
            if was is None and word in (
                "maximum",
                "minimum",
            ):  # an exclusive bound is closer than the same inclusive one
                was = original.words.get(f"exclusive{word.capitalize()}")
            if now is None or (
                was is None and now == 0 and word in ("minLength", "minItems", "minProperties")
            ):
                continue
            name = re.sub(r"(?=[A-Z])", "_", word).upper()
            if was is None:
                found.append(Difference(f"{name}_ADDED", f"{path}/{word}"))
            elif closer(now, was):
                found.append(
                    Difference(f"{name}_{'DECREASED' if closer is _less else 'INCREASED'}", f"{path}/{word}")
                )
    return found


def _less(one: Any, other: Any) -> bool:
    return bool(one < other)


def _greater(one: Any, other: Any) -> bool:
    return bool(one > other)


def _exclusive(shape: Shape) -> Shape:
    """Draft 4 says by a boolean that a bound is exclusive."""
    words = dict(shape.words)
    for exclusive, inclusive in (("exclusiveMaximum", "maximum"), ("exclusiveMinimum", "minimum")):
        if isinstance(words.get(exclusive), bool) and words.pop(exclusive) and inclusive in words:
            words[exclusive] = words.pop(inclusive)
    return shape._replace(words=words)


def _kept(original: Shape, update: Shape, path: str, word: str) -> list[Difference]:
    was, now = original.words.get(word), update.words.get(word)
    if now is None or now == was:
        return []
    return [Difference(f"{word.upper()}_{'ADDED' if was is None else 'CHANGED'}", f"{path}/{word}")]


def _divides(factor: Any, number: Any) -> bool:
    return bool(factor) and (Fraction(str(number)) / Fraction(str(factor))).denominator == 1


def _matched(pairs: list[list[int]]) -> int:
    """The size of a greatest matching: of each row with one of its columns, each column once."""
    taken: dict[int, int] = {}

    def place(row: int, seen: set[int]) -> bool:
        for column in pairs[row]:
            if column not in seen:
                seen.add(column)
                if column not in taken or place(taken[column], seen):
                    taken[column] = row
                    return True
        return False

    return sum(place(row, set()) for row in range(len(pairs)))


def _text(value: Any) -> bytes:
    """Equal for values that JSON has equal: true is not 1, and 1.0 is."""
    return msgspec.json.encode(_whole(value), order="deterministic")


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return {name: _whole(one) for name, one in value.items()} if isinstance(value, dict) else value


def _pattern(text: str) -> Pattern | None:
    """A pattern that is looked for in names; None for one that cannot be matched in linear time."""
    try:
        return Pattern(f".*(?:{text}).*")
    except PenstockError:
        return None


def _nodes(shape: Shape, words: object) -> dict[str, Node]:
    return {name: shape.node(schema) for name, schema in _dict(words).items()}


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
