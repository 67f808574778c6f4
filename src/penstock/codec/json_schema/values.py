"""Whether values are of a JSON Schema.

Hostile values cost no more than linear time: patterns are matched by `runtime.patterns`. A pattern that cannot be matched so does not count.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
from jsonschema import Draft7Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend, validator_for

from penstock.model.errors import PenstockError
from penstock.runtime.patterns import Pattern

from .document import Document

_REMEMBERED: Final = 64


def misfit(text: str, references: Mapping[str, str], value: Any) -> str:
    """Why a value is not of a JSON Schema, empty if it is. Raises JsonSchemaError for a text that is not one."""
    validator = _validator(text, tuple(sorted(references.items())))
    error = next(validator.iter_errors(value), None)
    return "" if error is None else str(error)


@lru_cache(maxsize=_REMEMBERED)
def _validator(text: str, references: tuple[tuple[str, str], ...]) -> Any:
    document = Document(text, dict(references))
    base: Any = validator_for(document.schema, default=Draft7Validator)
    words: dict[str, Any] = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
    }
    if '"patternProperties"' in text:  # it would match them with Python's own expressions
        words["unevaluatedProperties"] = _anything
    made: Any = extend(base, words)  # type: ignore[no-untyped-call]  # its library has no type for it
    return made(document.schema, registry=document.registry)


def _matches(pattern: str, text: str) -> bool | None:
    """Whether a pattern occurs in a text; None if the pattern does not count."""
    try:
        return Pattern(f"(?:.|\\n)*(?:{pattern})(?:.|\\n)*").fullmatch(text)
    except PenstockError:
        return None


def _pattern(validator: Any, pattern: str, value: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(value, str) and _matches(pattern, value) is False:
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: dict[str, Any], value: Any, schema: Any
) -> Iterator[ValidationError]:
    for pattern, inner in patterns.items() if isinstance(value, dict) else ():
        for name, item in value.items():
            if _matches(pattern, name):
                yield from validator.descend(item, inner, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, allowed: Any, value: Any, schema: dict[str, Any]
) -> Iterator[ValidationError]:
    if not isinstance(value, dict):
        return
    patterns = schema.get("patternProperties", {})
    others = [
        name
        for name in value
        if name not in schema.get("properties", {}) and not any(_matches(one, name) for one in patterns)
    ]
    if isinstance(allowed, dict):
        for name in others:
            yield from validator.descend(value[name], allowed, path=name)
    elif allowed is False and others:
        names = ", ".join(map(repr, sorted(others)))
        verb = "was" if len(others) == 1 else "were"
        yield ValidationError(f"Additional properties are not allowed ({names} {verb} unexpected)")


def _unique_items(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    """By the text of each, not by comparing all of them with one another."""
    if wanted is True and isinstance(value, list):
        texts = {msgspec.json.encode(item, order="sorted") for item in value}
        if len(texts) < len(value):
            yield ValidationError(f"{value!r} has non-unique elements")


def _anything(validator: Any, allowed: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    return iter(())
