"""Does a value fit a type? The slow, exact answer: which branch of a union it is, and where it does not fit.

The compiled writers are fast and say only "no"; this module says where and why. Both choose branches here.
"""

from collections.abc import Callable
from struct import error as struct_error
from struct import pack
from typing import Any, Final, NamedTuple

from .form import Form
from .types import Array, Enum, Field, Fixed, Map, Primitive, Record, Type, Union, label

_INT_BITS: Final = {"int": 31, "long": 63}


class Chosen(NamedTuple):
    """A value of a union with the number of its branch, which its client named."""

    branch: int
    value: Any


class MisfitError(ValueError):
    """Why a value does not fit, with the path to it."""


def scalar_misfit(kind: Primitive | Fixed | Enum, value: Any, form: Form) -> str:
    """Why `value` does not fit, "" when it does."""
    convert = form.into(kind)
    if convert is not None:
        try:
            raw = convert(value)
        except (ValueError, TypeError, OverflowError) as error:
            return _because(kind, value, form, error)
        if isinstance(kind, Fixed):
            return "" if len(raw) == kind.size else f"{show(value)} is not {kind.size} bytes long"
        if kind.kind not in ("int", "long", "enum"):
            return ""
        value = raw
    if isinstance(kind, Enum):
        ok = type(value) is str and value in kind.symbols
        return "" if ok else f"{show(value)} is no symbol of {label(kind)}"
    return _primitive_misfit(kind.kind, label(kind), value)


def _because(kind: Type, value: Any, form: Form, error: Exception) -> str:
    if kind.kind in ("bytes", "fixed") and not getattr(kind, "logical", None):
        return f"{show(value)} is no {'bytes' if form.native else 'base64'}"
    why = f" ({error})" if "too" in str(error) else ""
    return f"{show(value)} is no {label(kind)}{why}"


def _primitive_misfit(kind: str, name: str, value: Any) -> str:
    given = type(value)
    if kind == "null":
        return "" if value is None else f"{show(value)} is not null"
    if kind == "boolean":
        return "" if given is bool else f"{show(value)} is no boolean"
    if kind in _INT_BITS:
        if given is not int:
            return f"{show(value)} is no {name}"
        bits = _INT_BITS[kind]
        return "" if -(2**bits) <= value < 2**bits else f"{show(value)} does not fit {bits + 1} bits"
    if kind in ("float", "double"):
        if given is not float and given is not int:
            return f"{show(value)} is no {name}"
        try:
            pack("<f" if kind == "float" else "<d", value)
        except (OverflowError, struct_error):
            return f"{show(value)} is too large for a {name}"
        return ""
    if given is not str:
        return f"{show(value)} is no {name}"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "text with half a surrogate pair, which UTF-8 cannot hold"
    return ""


def choose(union: Union, value: Any, form: Form) -> int:
    """The branch of `union` that `value` is of, or -1.

    Exact types first: an int is rather an int than a double, a text rather a symbol, then a string, than a
    date or bytes. An object is the record whose fields it has, all of them given first; else a map. Records
    are told apart by their fields and those fields' own values, no deeper: looking deeper would take time
    exponential in the depth.
    """
    branches = union.branches
    given = type(value)
    if given is dict:
        return _choose_object(branches, value, form)
    if given is list or given is tuple:
        return next((n for n, b in enumerate(branches) if isinstance(b, Array)), -1)
    best, best_rank = -1, 100
    for number, branch in enumerate(branches):
        if isinstance(branch, Primitive | Fixed | Enum):
            rank = _rank(branch, given)
            if rank < best_rank and not scalar_misfit(branch, value, form):
                best, best_rank = number, rank
    return best


def _rank(branch: Primitive | Fixed | Enum, given: type) -> int:
    """How well a scalar branch suits Python's type; less is better."""
    if branch.logical is not None if isinstance(branch, Primitive | Fixed) else False:
        return 1 if given not in (str, int, float) else 6
    order = {"enum": 0, "int": 1, "long": 2, "double": 3, "float": 4, "string": 5, "fixed": 7, "bytes": 8}
    return order.get(branch.kind, 0)


def _choose_object(branches: tuple[Type, ...], value: dict[Any, Any], form: Form) -> int:
    records = [(n, b) for n, b in enumerate(branches) if isinstance(b, Record) and _shallow(b, value, form)]
    for number, record in records:
        if len(record.fields) == len(value):
            return number
    if records:
        return records[0][0]
    maps = next((n for n, b in enumerate(branches) if isinstance(b, Map)), -1)
    if maps >= 0:
        return maps
    alone = [n for n, b in enumerate(branches) if isinstance(b, Record)]
    return alone[0] if len(alone) == 1 else -1  # the only record: so that the error says what it misses


def _shallow(record: Record, value: dict[Any, Any], form: Form) -> bool:
    given = 0
    for field in record.fields:
        if field.name not in value:
            if field.default is None:
                return False
            continue
        given += 1
        if not _seems(field.type, value[field.name], form):
            return False
    return given == len(value)


def _seems(kind: Type, value: Any, form: Form) -> bool:
    if isinstance(kind, Union):
        return any(_seems(branch, value, form) for branch in kind.branches)
    if isinstance(kind, Record | Map):
        return type(value) is dict
    if isinstance(kind, Array):
        return type(value) in (list, tuple)
    return not scalar_misfit(kind, value, form)


class Walk:
    """Walks a value along its type; raises MisfitError at the first place that does not fit.

    `keep` turns a scalar into what is to stand in the result; `absent` gives a missing field's value or
    raises; `strict` refuses fields that the definition does not name.
    """

    def __init__(
        self,
        form: Form,
        keep: Callable[[Type, Any, str], Any],
        absent: Callable[[Field, str], Any],
        *,
        strict: bool = True,
    ) -> None:
        self.form = form
        self.keep = keep
        self.absent = absent
        self.strict = strict

    def value(self, kind: Type, value: Any, path: str) -> Any:
        """`value` with every field there, in the order of the definition."""
        if isinstance(kind, Record):
            return self._record(kind, value, path)
        if isinstance(kind, Union):
            return self._union(kind, value, path)
        if isinstance(kind, Array):
            if type(value) is not list and type(value) is not tuple:
                raise MisfitError(f"{path}: {show(value)} is no array")
            return [self.value(kind.items, item, f"{path}[{n}]") for n, item in enumerate(value)]
        if isinstance(kind, Map):
            return self._map(kind, value, path)
        why = scalar_misfit(kind, value, self.form)
        if why:
            raise MisfitError(f"{path}: {why}")
        return self.keep(kind, value, path)

    def _union(self, kind: Union, value: Any, path: str) -> Any:
        if value is None and kind.nullable:
            return None
        rest = [branch for branch in kind.branches if branch.kind != "null"]
        if len(rest) == 1:
            return self.value(rest[0], value, path)
        if type(value) is Chosen:
            number, value = value
        else:
            number = choose(kind, value, self.form)
        if number < 0:
            raise MisfitError(f"{path}: {show(value)} fits no branch of {label(kind)}")
        return self.value(kind.branches[number], value, path)

    def _record(self, kind: Record, value: Any, path: str) -> dict[str, Any]:
        if type(value) is not dict:
            raise MisfitError(f"{path}: {show(value)} is no {label(kind)}")
        out = {}
        for field in kind.fields:
            inside = f"{path}.{field.name}"
            if field.name in value:
                out[field.name] = self.value(field.type, value[field.name], inside)
            else:
                out[field.name] = self.absent(field, inside)
        if self.strict:
            for name in value:
                if name not in out:
                    raise MisfitError(f"{path}.{name}: {label(kind)} has no such field")
        return out

    def _map(self, kind: Map, value: Any, path: str) -> dict[str, Any]:
        if type(value) is not dict:
            raise MisfitError(f"{path}: {show(value)} is no map")
        out = {}
        for key, item in value.items():
            why = _primitive_misfit("string", "string", key)
            if why:
                raise MisfitError(f"{path}: key {why}")
            out[key] = self.value(kind.values, item, f"{path}[{show(key)}]")
        return out


def misfit(kind: Type, value: Any, path: str, form: Form) -> str:
    """Where and why `value` does not fit, "" when it does."""
    try:
        Walk(form, lambda _kind, scalar, _path: scalar, _required).value(kind, value, path)
    except MisfitError as error:
        return str(error)
    except RecursionError:
        return f"{path}: nested too deeply"
    return ""


def _required(field: Field, path: str) -> None:
    if field.default is None:
        raise missing(field, path)


def missing(field: Field, path: str) -> MisfitError:
    """What is raised for a field that has to be given."""
    return MisfitError(f"{path}: missing" + (f", and {field.default_error}" if field.default_error else ""))


def show(value: Any) -> str:
    """A value as messages show it, cut short."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > 200:
        return "a number of more than 60 digits"
    text = "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
