"""The vectors of schemas, and short ways to make a schema."""

import json
from pathlib import Path
from typing import Any

from penstock.model.schema import SchemaInfo, SchemaType

_FOLDER = Path(__file__).parents[2] / "vectors" / "schemas"


def load(name: str) -> Any:
    """The vectors in `tests/vectors/schemas/{name}.json`."""
    return json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def schema(kind: SchemaType | str, definition: Any = None, **properties: str) -> SchemaInfo:
    """A schema; a definition that is not bytes is written as JSON."""
    if definition is None:
        definition = b""
    data = definition if isinstance(definition, bytes) else json.dumps(definition).encode()
    return SchemaInfo(SchemaType[kind] if isinstance(kind, str) else kind, data, "", properties)


def record(*fields: dict[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    """An Avro record's definition."""
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, *default: Any, **more: Any) -> dict[str, Any]:
    """A field of one; a third argument is its default."""
    return {"name": name, "type": kind, **({"default": default[0]} if default else {}), **more}
