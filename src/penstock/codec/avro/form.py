"""The two forms of values: plain (what JSON can hold) and native (Python's own bytes, datetime, Decimal …)."""

from collections.abc import Callable
from enum import Enum as PythonEnum
from typing import Any, Final

from . import logical
from .types import Fixed, Primitive, Type

Convert = Callable[[Any], Any]

# Primitives that are the same in every form, but for a logical type.
_ALIKE: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "string"))


class Form:
    """How one form writes what Avro stores as bytes or under a logical type."""

    def __init__(self, *, native: bool) -> None:
        self.native = native

    def into(self, kind: Type) -> Convert | None:
        """The function from this form to what Avro stores; None where they are the same.

        It raises ValueError, TypeError or OverflowError.
        """
        if kind.kind in _ALIKE and kind.logical is None:  # type: ignore[union-attr]
            return None
        if isinstance(kind, Primitive | Fixed) and kind.logical is not None:
            size = kind.size if isinstance(kind, Fixed) else 0
            convert = logical.native_in if self.native else logical.plain_in
            return convert(kind.logical, kind.kind, size)
        if kind.kind in ("bytes", "fixed"):
            return logical.bytes_in if self.native else logical.base64_in
        if kind.kind == "enum" and self.native:
            return _enum_in
        return None

    def out(self, kind: Type) -> Convert | None:
        """The function from what Avro stores to this form; None where they are the same."""
        if isinstance(kind, Primitive | Fixed) and kind.logical is not None:
            return (logical.native_out if self.native else logical.plain_out)(kind.logical, kind.kind)
        if kind.kind in ("bytes", "fixed") and not self.native:
            return logical.base64_out
        return None


PLAIN: Final = Form(native=False)
NATIVE: Final = Form(native=True)


def _enum_in(value: Any) -> Any:
    """An enumeration's member stands for the symbol of its name."""
    return value.name if isinstance(value, PythonEnum) else value
