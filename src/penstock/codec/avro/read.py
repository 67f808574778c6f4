"""Decoding, compiled: a function is generated for every pair of a writer's and a reader's type.

Why not fastavro's reader: it ends the process on ten kilobytes of hostile payload for a recursive schema (it
recurses in C without a bound), and it counts to 2**60 for an array of nulls. The generated code is as fast,
faster with nullable fields, and gives the plain form directly.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

from .form import Form
from .resolve import Resolution, writer_field
from .source import Compiler
from .types import Array, Enum, Fixed, Map, Primitive, Record, Type, Union
from .varint import read_more

Reader = Callable[[bytes, int], tuple[Any, int]]

# What generated code may fail with on bytes that the writer's type did not write.
FAILURES: Final = (ValueError, IndexError, struct.error, RecursionError, OverflowError)

_SIZE_DEPTH_MAX: Final = 20
EMPTY_ITEMS_MAX: Final = 100_000  # items of no bytes, as in an array of nulls: nothing else bounds them


def compile_reader(writer: Type, reader: Type, form: Form) -> Reader:
    """A function from bytes and a position to a value in `form` and the position after it.

    It reads what `writer` wrote as `reader` sees it, and raises one of FAILURES. There must be no `mismatch`
    between the two.
    """
    compiled: Reader = _Compiler(form).compiled(writer, reader)
    return compiled


class _Compiler(Compiler):
    def __init__(self, form: Form) -> None:
        super().__init__(
            {
                "read_more": read_more,
                "unpack_float": struct.Struct("<f").unpack_from,
                "unpack_double": struct.Struct("<d").unpack_from,
            }
        )
        self.form = form
        self.sizes: dict[int, int] = {}
        self.resolution = Resolution()

    def emit(self, writer: Type, reader: Type) -> list[str]:
        body = [f"def {self.function(writer, reader)}(b, p):"]
        if isinstance(writer, Record) and isinstance(reader, Record):
            self._record(writer, reader, body)
        elif isinstance(writer, Array) and isinstance(reader, Array):
            self._array(writer, reader, body)
        elif isinstance(writer, Map) and isinstance(reader, Map):
            self._map(writer, reader, body)
        elif isinstance(writer, Union) and not writer.optional:
            self._union(writer, reader, body)
        else:
            self.value(writer, reader, "x", body, " ")
            body.append(" return x, p")
        return body

    def value(self, writer: Type, reader: Type, out: str, body: list[str], pad: str) -> None:
        """Emit: set `out` to the value at `p` and move `p` behind it."""
        if isinstance(writer, Union):
            if writer.optional:
                self._nullable(writer, reader, out, body, pad)
            else:
                body.append(f"{pad}{out}, p = {self.function(writer, reader)}(b, p)")
            return
        if isinstance(reader, Union):
            chosen = self.resolution.branch(reader, writer)
            assert chosen is not None  # there is no mismatch
            reader = chosen
        if isinstance(writer, Record | Array | Map):
            body.append(f"{pad}{out}, p = {self.function(writer, reader)}(b, p)")
        elif isinstance(writer, Fixed):
            body += [f"{pad}{out} = b[p : p + {writer.size}]", f"{pad}p += {writer.size}"]
            # A slice past the end is cut silently; a cut value must not reach a conversion.
            body.append(f"{pad}if len({out}) != {writer.size}: raise IndexError")
            self._convert(reader, out, body, pad)
        elif isinstance(writer, Enum) and isinstance(reader, Enum):
            table = tuple(s if s in reader.symbols else reader.default for s in writer.symbols)
            self._long("n", body, pad, 32)
            body.append(f"{pad}if n < 0: raise ValueError('no such symbol')")
            body.append(f"{pad}{out} = {self.constant('symbols', table)}[n]")
        elif isinstance(writer, Primitive):
            self._primitive(writer, reader, out, body, pad)

    def _primitive(self, writer: Primitive, reader: Type, out: str, body: list[str], pad: str) -> None:
        kind = writer.kind
        if kind == "null":
            body.append(f"{pad}{out} = None")
        elif kind == "boolean":
            body += [f"{pad}n = b[p]", f"{pad}p += 1", f"{pad}if n > 1: raise ValueError('no boolean')"]
            body.append(f"{pad}{out} = n == 1")
        elif kind in ("int", "long"):
            self._long(out, body, pad, 32 if kind == "int" else 64)
            if reader.kind in ("float", "double"):
                body.append(f"{pad}{out} = float({out})")
        elif kind in ("float", "double"):
            size = 4 if kind == "float" else 8
            body += [f"{pad}({out},) = unpack_{kind}(b, p)", f"{pad}p += {size}"]
        else:
            self._span(body, pad)
            decode = ".decode()" if reader.kind == "string" else ""
            body += [f"{pad}{out} = b[p:q]{decode}", f"{pad}p = q"]
        self._convert(reader, out, body, pad)

    def _convert(self, reader: Type, out: str, body: list[str], pad: str) -> None:
        convert = self.form.out(reader)
        if convert is not None:
            body.append(f"{pad}{out} = {self.constant('out', convert)}({out})")

    def _long(self, out: str, body: list[str], pad: str, bits: int) -> None:
        body += [
            f"{pad}n = b[p]",
            f"{pad}p += 1",
            f"{pad}if n > 127:",
            f"{pad} n, p = read_more(b, p, n)",
        ]
        if bits == 32:
            body.append(f"{pad} if n > {2**32 - 1}: raise ValueError('an int of more than 32 bits')")
        body.append(f"{pad}{out} = n >> 1 ^ -(n & 1)")

    def _span(self, body: list[str], pad: str) -> None:
        """Emit: set `q` to the end of the bytes that start at `p`, after their length."""
        body += [
            f"{pad}n = b[p]",
            f"{pad}p += 1",
            f"{pad}if n > 127: n, p = read_more(b, p, n)",
            f"{pad}q = p + (n >> 1)",
            f"{pad}if n & 1 or q > len(b): raise IndexError",
        ]

    def _nullable(self, writer: Union, reader: Type, out: str, body: list[str], pad: str) -> None:
        null, other = (0, 1) if writer.branches[0].kind == "null" else (1, 0)
        body += [f"{pad}n = b[p]", f"{pad}p += 1", f"{pad}if n == {2 * null}:"]
        self.value(writer.branches[null], reader, out, body, pad + " ")
        body.append(f"{pad}elif n == {2 * other}:")
        self.value(writer.branches[other], reader, out, body, pad + " ")
        body.append(f"{pad}else: raise ValueError('no such branch')")

    def _union(self, writer: Union, reader: Type, body: list[str]) -> None:
        self._long("u", body, " ", 32)
        for number, branch in enumerate(writer.branches):
            body.append(f" if u == {number}:")
            self.value(branch, reader, "x", body, "  ")
            body.append("  return x, p")
        body.append(" raise ValueError('no such branch')")

    def _record(self, writer: Record, reader: Record, body: list[str]) -> None:
        targets: dict[str, list[int]] = {}
        by_name = {field.name: field for field in writer.fields}
        for number, field in enumerate(reader.fields):
            source = writer_field(field, by_name)
            if source is None:
                assert field.default is not None
                value = self._default(field.type, field.default)
                body.append(f" x{number} = {value}")
            else:
                targets.setdefault(source.name, []).append(number)
        for source in writer.fields:
            numbers = targets.get(source.name, [])
            if not numbers:
                self.value(source.type, source.type, "skipped", body, " ")
            elif len(numbers) > 1:
                body.append(" start = p")
            for number in numbers:
                # Several of the reader's fields may have been this one: then it is read once for each.
                if number != numbers[0]:
                    body.append(" p = start")
                self.value(source.type, reader.fields[number].type, f"x{number}", body, " ")
        items = ", ".join(f"{field.name!r}: x{n}" for n, field in enumerate(reader.fields))
        body.append(f" return {{{items}}}, p")

    def _default(self, kind: Type, encoded: bytes) -> str:
        """An expression that makes a new default each time: it may be a list that its owner changes."""
        return f"{self.function(kind, kind)}({encoded!r}, 0)[0]"

    def _block(self, item: Type, extra: int, body: list[str]) -> None:
        """Emit: read the count of a block into `count`, or return after the last one."""
        size = self.size(item) + extra
        self._long("count", body, "  ", 64)
        body += ["  if count == 0: return out, p", "  if count < 0:", "   count = -count"]
        self._long("n", body, "   ", 64)
        if size:
            body.append(f"  if count * {size} > len(b) - p: raise IndexError")
        else:
            body.append(
                f"  if len(out) + count > {EMPTY_ITEMS_MAX}: raise ValueError('too many empty items')"
            )
        body.append("  for _ in range(count):")

    def _array(self, writer: Array, reader: Array, body: list[str]) -> None:
        body += [" out = []", " add = out.append", " while True:"]
        self._block(writer.items, 0, body)
        self.value(writer.items, reader.items, "x", body, "   ")
        body.append("   add(x)")

    def _map(self, writer: Map, reader: Map, body: list[str]) -> None:
        body += [" out = {}", " while True:"]
        self._block(writer.values, 1, body)
        self._span(body, "   ")
        body += ["   k = b[p:q].decode()", "   p = q"]
        self.value(writer.values, reader.values, "x", body, "   ")
        body.append("   out[k] = x")

    def size(self, kind: Type, depth: int = 0) -> int:
        """The fewest bytes a value takes, or less: nothing is counted for a record inside itself or far down."""
        if isinstance(kind, Fixed):
            return kind.size
        if isinstance(kind, Primitive):
            return {"null": 0, "float": 4, "double": 8}.get(kind.kind, 1)
        if not isinstance(kind, Record):
            return 1
        if depth > _SIZE_DEPTH_MAX:
            return 0
        if id(kind) not in self.sizes:
            self.sizes[id(kind)] = 0
            self.sizes[id(kind)] = sum(self.size(field.type, depth + 1) for field in kind.fields)
        return self.sizes[id(kind)]
