"""The Avro record that has the values of a JSON Schema, for those who want columns: an object becomes a record, an integer a long.

What need not be there may be null. A schema that says less of its values (alternatives, lists of types, `true`) has no record,
and neither has one that contains itself or whose properties are no names in Avro.
"""

import re
from typing import Any, Final

import msgspec

DEPTH_MAX: Final = 64

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TYPES: Final = {"boolean": "boolean", "integer": "long", "number": "double", "string": "string"}


def record_of(text: str) -> str | None:
    """The definition, or None if there is none."""
    try:
        shape = msgspec.json.decode(text)
        made = _Records(shape).type_of(shape, ())
    except (msgspec.DecodeError, RecursionError, ValueError, TypeError, LookupError, AttributeError):
        return None
    return msgspec.json.encode(made).decode() if isinstance(made, dict) and made["type"] == "record" else None


class _Records:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._records = 0

    def type_of(self, shape: Any, seen: tuple[str, ...]) -> Any:
        """The Avro type of a schema. Raises ValueError if there is none."""
        if len(seen) > DEPTH_MAX:
            raise ValueError("too deep")
        reference = shape.get("$ref")
        if reference is not None:
            if reference in seen:
                raise ValueError("a schema that contains itself")
            return self.type_of(self._found(reference), (*seen, reference))
        kind = shape.get("type", "object" if "properties" in shape else None)
        alternatives = shape.get("oneOf") or shape.get("anyOf")
        if isinstance(kind, list):
            alternatives = [{**shape, "type": each} for each in kind]
        if alternatives:
            (rest,) = [each for each in alternatives if each.get("type") != "null"]
            made = self.type_of(rest, (*seen, ""))
            return made if len(alternatives) == 1 or _nullable(made) else ["null", made]
        if kind == "array":
            return {"type": "array", "items": self.type_of(shape["items"], (*seen, ""))}
        if kind != "object":
            return _TYPES[kind]
        if "properties" not in shape:
            return {"type": "map", "values": self.type_of(shape["additionalProperties"], (*seen, ""))}
        return self._record(shape, (*seen, ""))

    def _record(self, shape: Any, seen: tuple[str, ...]) -> dict[str, Any]:
        self._records += 1
        name = f"Record{self._records}"
        fields = []
        for key, value in shape["properties"].items():
            if not _NAME.fullmatch(key):
                raise ValueError("a property that is no name")
            made = self.type_of(value, seen)
            if key not in shape.get("required", ()):
                made = made if _nullable(made) else ["null", made]
            fields.append({"name": key, "type": made, **({"default": None} if _nullable(made) else {})})
        return {"type": "record", "name": name, "fields": fields}

    def _found(self, reference: str) -> Any:
        """What a reference within the schema names."""
        start, *path = reference.split("/")
        if start != "#":
            raise ValueError("a schema of another place")
        found = self._root
        for part in path:
            found = found[part.replace("~1", "/").replace("~0", "~")]
        return found


def _nullable(made: Any) -> bool:
    return isinstance(made, list)
