"""Records: classes whose attributes are fields, and which therefore have an Avro definition."""

from __future__ import annotations

from enum import Enum, EnumMeta
from typing import Any, ClassVar

from .field import Field, as_field


class RecordMeta(type):
    """Collects the fields that a record declares, after those it inherits."""

    _fields: dict[str, Field]

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> RecordMeta:
        made = super().__new__(cls, name, bases, namespace)
        fields: dict[str, Field] = {}
        for base in bases:
            fields.update(getattr(base, "_fields", {}))
        for key, value in namespace.items():
            if isinstance(value, Field | EnumMeta | RecordMeta):
                fields[key] = as_field(value)
        made._fields = fields
        return made


class Record(Field, metaclass=RecordMeta):
    """A value with named fields.

    class Reading(Record):
        sensor = String(required=True)
        value = Double()

    Used as a field itself, it takes `default`, `required` and `required_default` as every field does.
    """

    _avro_namespace: ClassVar[str | None] = None  # the namespace of its definition
    _sorted_fields: ClassVar[bool] = False  # whether its definition lists the fields by name

    def __init__(
        self,
        default: Any = None,
        required_default: bool = False,
        required: bool = False,
        **values: Any,
    ) -> None:
        keep = super().__setattr__
        keep("_default", default)
        keep("_required", required)
        keep("_required_default", required_default)
        for name, field in type(self)._fields.items():
            if name in values:
                setattr(self, name, field._given(values[name]))
            else:
                keep(name, field._fallback())

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """The record's Avro definition."""
        definition: dict[str, Any] = cls._definition(set())
        return definition

    @classmethod
    def _definition(cls, defined: set[str]) -> Any:
        name = f"{cls._avro_namespace}.{cls.__name__}" if cls._avro_namespace else cls.__name__
        if name in defined:
            return name
        defined.add(name)
        definition: dict[str, Any] = {"type": "record", "name": cls.__name__}
        if cls._avro_namespace:
            definition["namespace"] = cls._avro_namespace
        names = sorted(cls._fields) if cls._sorted_fields else list(cls._fields)
        definition["fields"] = [_field_definition(key, cls._fields[key], defined) for key in names]
        return definition

    def _describe(self, defined: set[str]) -> Any:
        return self._definition(defined)

    def _takes(self, value: Any) -> bool:
        return isinstance(value, type(self))

    def _expected(self) -> str:
        return type(self).__name__

    def _given(self, value: Any) -> Any:
        return type(self)(**value) if isinstance(value, dict) else value

    def _fallback(self) -> Any:
        return type(self)() if self._default is None else self._default

    def __setattr__(self, name: str, value: Any) -> None:
        field = type(self)._fields.get(name)
        if field is None:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}")
        super().__setattr__(name, field._validate(name, value))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return bool(to_dict(self) == to_dict(other))

    __hash__ = None  # type: ignore[assignment]  # its fields may change

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self)._fields)
        return f"{type(self).__name__}({values})"


def to_dict(value: Any) -> Any:
    """A record as a dict, enumerations by name, all the way down."""
    if isinstance(value, Record):
        return {name: to_dict(getattr(value, name)) for name in type(value)._fields}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, list):
        return [to_dict(item) for item in value]
    if isinstance(value, dict):
        return {key: to_dict(item) for key, item in value.items()}
    return value


def _field_definition(name: str, field: Field, defined: set[str]) -> dict[str, Any]:
    kind = field._describe(defined)
    made: dict[str, Any] = {"name": name, "type": kind if field._required else ["null", kind]}
    if field._required_default:
        made["default"] = to_dict(field._default)
    return made
