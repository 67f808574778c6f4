"""Encoding, compiled: for every type a Python function is generated that checks and encodes in one go.

Why not fastavro's writer: it lets missing fields, unknown fields and some wrong types pass, so that every value
would have to be walked twice; and with nullable fields, which Pulsar's clients generate throughout, the
generated code is about twice as fast. What it writes is the same, byte for byte; the tests compare them.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

from .fit import Chosen, choose
from .form import Form
from .source import Compiler
from .types import Array, Enum, Fixed, Map, Primitive, Record, Type, Union
from .varint import encode_long

Writer = Callable[[Any], bytes]

# What generated code may fail with: the value does not fit, `fit.misfit` says where.
FAILURES: Final = (
    ValueError,
    TypeError,
    KeyError,
    OverflowError,
    struct.error,
    RecursionError,
    AttributeError,
)

_SMALL: Final = 64  # integers -64..63 and lengths below 64 are one byte, looked up ready made


def compile_writer(kind: Type, form: Form, *, whole: bool = False) -> Writer:
    """A function from a value in `form` to its encoding; it raises one of FAILURES.

    `whole` refuses what JSON text could not say as it stands: fields left to their defaults, and the floats
    that are no numbers.
    """
    compiled: Writer = _Compiler(form, whole).compiled(kind)
    return compiled


class _Compiler(Compiler):
    def __init__(self, form: Form, whole: bool) -> None:
        super().__init__(
            {
                "encode_long": encode_long,
                "pack_float": struct.Struct("<f").pack,
                "pack_double": struct.Struct("<d").pack,
                "pack_branch_float": struct.Struct("<Bf").pack,
                "pack_branch_double": struct.Struct("<Bd").pack,
                "missing": object(),
                "Chosen": Chosen,
            }
        )
        self.form = form
        self.whole = whole

    def emit(self, kind: Type) -> list[str]:
        body = [f"def {self.function(kind)}(v):"]
        if isinstance(kind, Record):
            self._record(kind, body)
        elif isinstance(kind, Array):
            self._array(kind, body)
        elif isinstance(kind, Map):
            self._map(kind, body)
        elif isinstance(kind, Union) and not kind.optional:
            self._union(kind, body)
        else:
            self.value(kind, "v", "out", body, " ")
            body.append(" return out")
        return body

    def value(self, kind: Type, x: str, out: str, body: list[str], pad: str, branch: int = -1) -> None:
        """Emit: set `out` to the encoding of `x`, after the number of its branch if it is one of a union's."""
        prefix = encode_long(branch) if branch >= 0 else b""
        if isinstance(kind, Union) and kind.optional:
            self._nullable(kind, x, out, body, pad)
            return
        if isinstance(kind, Record | Array | Map | Union):
            body.append(f"{pad}{out} = {_plus(prefix)}{self.function(kind)}({x})")
            return
        convert = self.form.into(kind)
        if convert is not None:
            body.append(f"{pad}{x} = {self.constant('into', convert)}({x})")
        if isinstance(kind, Fixed):
            body.append(f"{pad}if len({x}) != {kind.size}: raise ValueError")
            body.append(f"{pad}{out} = {_plus(prefix)}{x}")
        elif isinstance(kind, Enum):
            table = {symbol: prefix + encode_long(n) for n, symbol in enumerate(kind.symbols)}
            body.append(f"{pad}{out} = {self.constant('symbols', table)}[{x}]")
        else:
            self._primitive(kind, x, out, body, pad, prefix)

    def _primitive(self, kind: Primitive, x: str, out: str, body: list[str], pad: str, prefix: bytes) -> None:
        name = kind.kind
        if name == "null":
            body += [f"{pad}if {x} is not None: raise ValueError", f"{pad}{out} = {prefix!r}"]
        elif name == "boolean":
            yes, no = prefix + b"\1", prefix + b"\0"
            body += [
                f"{pad}if {x} is True: {out} = {yes!r}",
                f"{pad}elif {x} is False: {out} = {no!r}",
                f"{pad}else: raise ValueError",
            ]
        elif name in ("int", "long"):
            bits = 31 if name == "int" else 63
            body += [
                f"{pad}if type({x}) is not int: raise ValueError",
                f"{pad}if -64 <= {x} < 64: {out} = {self._integers(prefix)}[{x}]",
                f"{pad}elif {-(2**bits)} <= {x} < {2**bits}: {out} = {_plus(prefix)}encode_long({x})",
                f"{pad}else: raise ValueError",
            ]
        elif name in ("float", "double"):
            call = f"pack_branch_{name}({prefix[0]}, {x})" if len(prefix) == 1 else f"pack_{name}({x})"
            if len(prefix) > 1:
                call = _plus(prefix) + call
            body.append(f"{pad}if type({x}) is not float and type({x}) is not int: raise ValueError")
            if self.whole:
                body.append(f"{pad}if {x} - {x} != 0: raise ValueError")
            body.append(f"{pad}{out} = {call}")
        else:
            if name == "string":
                body.append(f"{pad}if type({x}) is not str: raise ValueError")
                body.append(f"{pad}{x} = {x}.encode()")
            body += [
                f"{pad}n = len({x})",
                f"{pad}if n < {_SMALL}: {out} = {self._lengths(prefix)}[n] + {x}",
                f"{pad}else: {out} = {_plus(prefix)}encode_long(n) + {x}",
            ]

    def _integers(self, prefix: bytes) -> str:
        # In the order of Python's indices: 0..63, then -64..-1.
        numbers = [*range(_SMALL), *range(-_SMALL, 0)]
        return self.shared("integers", prefix, tuple(prefix + encode_long(n) for n in numbers))

    def _lengths(self, prefix: bytes) -> str:
        return self.shared("lengths", prefix, tuple(prefix + encode_long(n) for n in range(_SMALL)))

    def _nullable(self, kind: Union, x: str, out: str, body: list[str], pad: str) -> None:
        null, other = (0, 1) if kind.branches[0].kind == "null" else (1, 0)
        body.append(f"{pad}if {x} is None: {out} = {encode_long(null)!r}")
        body.append(f"{pad}else:")
        self.value(kind.branches[other], x, out, body, pad + " ", other)

    def _union(self, kind: Union, body: list[str]) -> None:
        form = self.form
        chooser = self.constant("choose", lambda value: choose(kind, value, form))
        body.append(f" b, v = v if type(v) is Chosen else ({chooser}(v), v)")
        for number, branch in enumerate(kind.branches):
            body.append(f" if b == {number}:")
            self.value(branch, "v", "out", body, "  ", number)
            body.append("  return out")
        body.append(" raise ValueError")

    def _record(self, kind: Record, body: list[str]) -> None:
        body.append(" if type(v) is not dict: raise ValueError")
        if not kind.fields:
            body += [" if v: raise ValueError", " return b''"]
            return
        defaults = not self.whole and any(field.default is not None for field in kind.fields)
        if defaults:
            body += [" get = v.get", f" count = {len(kind.fields)}"]
        for number, field in enumerate(kind.fields):
            if not defaults or field.default is None:
                body.append(f" x = v[{field.name!r}]")
                self.value(field.type, "x", f"o{number}", body, " ")
                continue
            body.append(f" x = get({field.name!r}, missing)")
            body.append(" if x is missing:")
            body.append(f"  o{number} = {self.constant('default', field.default)}")
            body.append("  count -= 1")
            body.append(" else:")
            self.value(field.type, "x", f"o{number}", body, "  ")
        # Every known field was found, so a field more than those is unknown.
        body.append(f" if len(v) != {'count' if defaults else len(kind.fields)}: raise ValueError")
        outs = ", ".join(f"o{number}" for number in range(len(kind.fields)))
        body.append(f" return b''.join(({outs},))")

    def _array(self, kind: Array, body: list[str]) -> None:
        body += [
            " if type(v) is not list and type(v) is not tuple: raise ValueError",
            " if not v: return b'\\0'",
            " parts = [encode_long(len(v))]",
            " add = parts.append",
            " for x in v:",
        ]
        self.value(kind.items, "x", "out", body, "  ")
        body += ["  add(out)", " add(b'\\0')", " return b''.join(parts)"]

    def _map(self, kind: Map, body: list[str]) -> None:
        body += [
            " if type(v) is not dict: raise ValueError",
            " if not v: return b'\\0'",
            " parts = [encode_long(len(v))]",
            " add = parts.append",
            " for k, x in v.items():",
        ]
        self.value(Primitive("string"), "k", "out", body, "  ")
        body.append("  add(out)")
        self.value(kind.values, "x", "out", body, "  ")
        body += ["  add(out)", " add(b'\\0')", " return b''.join(parts)"]


def _plus(prefix: bytes) -> str:
    return f"{prefix!r} + " if prefix else ""
