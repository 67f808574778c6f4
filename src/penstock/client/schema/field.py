"""The fields of records: what Avro type each is, and which Python values it takes."""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar


class Field:
    """A field of a record.

    Args:
        default: Its value if a record is created without one.
        required: Whether the schema forbids null.
        required_default: Whether the default is part of the schema.
    """

    AVRO: ClassVar[str] = "null"
    PYTHON: ClassVar[tuple[type, ...]] = (object,)

    def __init__(self, default: Any = None, required: bool = False, required_default: bool = False) -> None:
        self._required = required
        self._required_default = required_default
        self._default = None if default is None else self._validate("default", default)

    def type(self) -> str:
        """The name of its Avro type."""
        return self.AVRO

    def _describe(self, defined: set[str]) -> Any:
        """Its Avro type; `defined` are the names that need no second definition."""
        return self.AVRO

    def _validate(self, name: str, value: Any) -> Any:
        """`value` as it is stored. Raises TypeError."""
        if value is None and not self._required:
            return self._default
        if not self._takes(value):
            raise TypeError(f"field {name!r} takes {self._expected()}, not {type(value).__name__}")
        return value

    def _takes(self, value: Any) -> bool:
        return isinstance(value, self.PYTHON)

    def _expected(self) -> str:
        return " or ".join(kind.__name__ for kind in self.PYTHON)

    def _given(self, value: Any) -> Any:
        """The arguments of a constructor, with dicts of records made into objects."""
        return value

    def _fallback(self) -> Any:
        """The value if a record is created without one."""
        return self._default


class Null(Field):
    """Nothing."""

    PYTHON = (type(None),)

    def _validate(self, name: str, value: Any) -> None:
        if value is not None:
            raise TypeError(f"field {name!r} takes None only")


class Boolean(Field):
    """True or false; false by default."""

    AVRO = "boolean"
    PYTHON = (bool,)

    def _fallback(self) -> bool:
        return bool(self._default)


class Integer(Field):
    """An integer of 32 bits."""

    AVRO = "int"
    PYTHON = (int,)


class Long(Field):
    """An integer of 64 bits."""

    AVRO = "long"
    PYTHON = (int,)


class Float(Field):
    """A floating-point number of 32 bits."""

    AVRO = "float"
    PYTHON = (float, int)


class Double(Field):
    """A floating-point number of 64 bits."""

    AVRO = "double"
    PYTHON = (float, int)


class Bytes(Field):
    """Bytes; a text is taken as its UTF-8."""

    AVRO = "bytes"
    PYTHON = (bytes, str)

    def _validate(self, name: str, value: Any) -> Any:
        value = super()._validate(name, value)
        return value.encode() if isinstance(value, str) else value


class String(Field):
    """Text; bytes are taken as UTF-8."""

    AVRO = "string"
    PYTHON = (str, bytes)

    def _validate(self, name: str, value: Any) -> Any:
        value = super()._validate(name, value)
        return value.decode() if isinstance(value, bytes) else value


class CustomEnum(Field):
    """A member of an enumeration; also taken by name or by value.

    Args:
        enum_type: The enumeration.
        default, required, required_default: As for every field.
    """

    AVRO = "enum"

    def __init__(
        self,
        enum_type: type[Enum],
        default: Any = None,
        required: bool = False,
        required_default: bool = False,
    ) -> None:
        if not issubclass(enum_type, Enum):
            raise TypeError(f"{enum_type!r} is no Enum")
        self.enum_type = enum_type
        super().__init__(default, required, required_default)

    def _describe(self, defined: set[str]) -> Any:
        name = self.enum_type.__name__
        if name in defined:
            return name
        defined.add(name)
        return {"type": "enum", "name": name, "symbols": [member.name for member in self.enum_type]}

    def _validate(self, name: str, value: Any) -> Any:
        if value is None or isinstance(value, self.enum_type):
            return value
        if isinstance(value, str) and value in self.enum_type.__members__:
            return self.enum_type.__members__[value]
        try:
            return self.enum_type(value)
        except ValueError:
            names = ", ".join(self.enum_type.__members__)
            raise TypeError(f"field {name!r} takes one of {names}, not {value!r}") from None


class Array(Field):
    """A list of one type.

    Args:
        array_type: A field or a record, which every item is.
        default, required, required_default: As for every field.
    """

    AVRO = "array"
    PYTHON = (list,)

    def __init__(
        self, array_type: Any, default: Any = None, required: bool = False, required_default: bool = False
    ) -> None:
        self.array_type = as_field(array_type)
        super().__init__(default, required, required_default)

    def _describe(self, defined: set[str]) -> Any:
        return {"type": "array", "items": self.array_type._describe(defined)}

    def _validate(self, name: str, value: Any) -> Any:
        value = super()._validate(name, value)
        for item in value or ():
            if not self.array_type._takes(item):
                raise TypeError(f"items of {name!r} are {self.array_type._expected()}, not {item!r}")
        return value

    def _given(self, value: Any) -> Any:
        return [self.array_type._given(item) for item in value] if isinstance(value, list) else value


class Map(Field):
    """A dict from texts to one type.

    Args:
        value_type: A field or a record, which every value is.
        default, required, required_default: As for every field.
    """

    AVRO = "map"
    PYTHON = (dict,)

    def __init__(
        self, value_type: Any, default: Any = None, required: bool = False, required_default: bool = False
    ) -> None:
        self.value_type = as_field(value_type)
        super().__init__(default, required, required_default)

    def _describe(self, defined: set[str]) -> Any:
        return {"type": "map", "values": self.value_type._describe(defined)}

    def _validate(self, name: str, value: Any) -> Any:
        value = super()._validate(name, value)
        for key, item in (value or {}).items():
            if not isinstance(key, str):
                raise TypeError(f"keys of {name!r} are texts, not {key!r}")
            if not self.value_type._takes(item):
                raise TypeError(f"values of {name!r} are {self.value_type._expected()}, not {item!r}")
        return value

    def _given(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: self.value_type._given(item) for key, item in value.items()}


def as_field(declared: Any) -> Field:
    """A field as it was declared: a field, a record (its class, too), or an enumeration. Raises TypeError."""
    if isinstance(declared, type) and issubclass(declared, Enum):
        return CustomEnum(declared)
    if isinstance(declared, type) and issubclass(declared, Field):
        declared = declared()
    if not isinstance(declared, Field):
        raise TypeError(f"{declared!r} is no field and no record")
    return declared
