"""Avro schemas that use types of other subjects: the types are inlined at their first use, as in Pulsar's definitions."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from .types import PRIMITIVES

_NAMED: Final = frozenset(("record", "error", "enum", "fixed"))
BYTES_MAX: Final = 16 * 1024 * 1024  # of a definition with all that it uses


def with_references(text: str, references: Mapping[str, str]) -> str:
    """The self-contained definition; `references` has the texts of the types it uses, by their full names.

    Raises ValueError for texts that are not JSON, and types that nest too deeply.
    """
    if not references:
        return text
    try:
        found = _Inlining(references).of(msgspec.json.decode(text), "")
        made = msgspec.json.encode(found)
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no Avro schema: {error}") from None
    return made.decode()


class _Inlining:
    def __init__(self, references: Mapping[str, str]) -> None:
        self._references = references
        self._defined: set[str] = set()
        self._room = BYTES_MAX

    def of(self, avro: Any, namespace: str) -> Any:
        if isinstance(avro, list):
            return [self.of(one, namespace) for one in avro]
        if isinstance(avro, str):
            return self._named(avro, namespace)
        kind = avro["type"]
        if not isinstance(kind, str):
            return {**avro, "type": self.of(kind, namespace)}
        if kind in _NAMED:
            return self._definition(avro, namespace)
        if kind == "array":
            return {**avro, "items": self.of(avro["items"], namespace)}
        if kind == "map":
            return {**avro, "values": self.of(avro["values"], namespace)}
        return {**avro, "type": self._named(kind, namespace)}

    def _named(self, name: str, namespace: str) -> Any:
        """A type by its name: its definition at its first use."""
        if name in PRIMITIVES:
            return name
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for one in (full, name):
            if one in self._defined:
                return one
            if one in self._references:
                text = self._references[one]
                self._room -= len(text)
                if self._room < 0:
                    raise ValueError(f"more than {BYTES_MAX} bytes with the schemas that are used")
                return self.of(msgspec.json.decode(text), "")
        return name

    def _definition(self, avro: dict[str, Any], outer: str) -> dict[str, Any]:
        name: str = avro["name"]
        namespace = name.rpartition(".")[0] if "." in name else avro.get("namespace", outer) or ""
        short = name.rpartition(".")[2]
        self._defined.add(f"{namespace}.{short}" if namespace else short)
        made = {**avro, "name": short, "namespace": namespace}  # named, as it may be within another one now
        if "fields" in avro:
            made["fields"] = [{**one, "type": self.of(one["type"], namespace)} for one in avro["fields"]]
        return made
