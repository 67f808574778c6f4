"""JSON objects one after the other in a body of any length, whichever way it is cut."""

import re
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

import msgspec

T = TypeVar("T")

_SPACE: Final = re.compile(rb"[ \t\r\n]*")
# Outside of strings: up to the next bracket, or to a string that goes on.
_BETWEEN: Final = re.compile(rb'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
_STRING: Final = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)  # up to its end, or to half of an escape


def _nested(levels: int) -> bytes:
    """The pattern of a whole array or object with so many levels in it."""
    flat = rb'[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+"'
    inner = b"|" + _nested(levels - 1) if levels else b""
    return rb"[{\[](?:" + flat + inner + rb")*+[}\]]"


_WHOLE: Final = re.compile(_nested(6), re.DOTALL)  # most records are not nested deeper
_OBJECT, _QUOTE = ord("{"), ord('"')
_OPENING: Final = frozenset(b"{[")


class ShapeError(Exception):
    """A value that is not of the expected type; the next one can be read."""


class BrokenJsonError(Exception):
    """What follows cannot be read: it is not JSON, or no object."""


class TooLongError(BrokenJsonError):
    """A value is larger than it may be, and what follows is not looked at."""


class JsonValues(Generic[T]):
    """Cuts and decodes the objects of a body. Each byte is looked at once, however many parts a value comes in.

    An object that is alone on its line, or at the end of what came, is decoded at once. Any other is cut out by its brackets.
    """

    def __init__(self, decoder: "msgspec.json.Decoder[T]", bytes_max: int) -> None:
        """`bytes_max`: of one value."""
        self._decoder = decoder
        self._bytes_max = bytes_max
        self._begun = (
            bytearray()
        )  # of a value that is not complete; many small parts take no more than their bytes
        self._depth = 0  # open brackets of that value
        self._in_string = False
        self._escaped = False  # the next byte of the string is part of an escape

    @property
    def size(self) -> int:
        """Bytes of the value that is not complete, as far as it came."""
        return len(self._begun)

    @property
    def complete(self) -> bool:
        """Whether nothing of a value is missing."""
        return not self._depth

    def feed(self, data: bytes) -> Iterator[tuple[T | ShapeError, int]]:
        """Yield the values that are complete with `data`, each with its size in bytes; exhaust it before the next call. Each is
        decoded when it is asked for, as small ones take many times their bytes. Raises BrokenJsonError."""
        at, crowded = 0, 0  # up to `crowded`, lines have several values
        while True:
            if not self._depth:
                at = _end(_SPACE, data, at)
                if at == len(data):
                    return
                if data[at] != _OBJECT:
                    raise BrokenJsonError(
                        f"Unexpected character {data[at : at + 1]!r}: an object is expected"
                    )
                if at >= crowded:
                    line = data.find(b"\n", at)
                    crowded = len(data) if line < 0 else line
                    value = self._line(data, at, crowded)
                    if value is not None:
                        yield value, crowded - at
                        at = crowded
                        continue
            whole = None if self._depth else _WHOLE.match(data, at)
            end = self._scan(data, at) if whole is None else whole.end()
            text: bytes | bytearray = data[at:end]
            size = self.size + len(text)
            if size > self._bytes_max:
                raise TooLongError(f"A record is larger than {self._bytes_max} bytes")
            if self._depth:
                self._begun += text
                return
            if self._begun:
                self._begun += text
                text, self._begun = self._begun, bytearray()
            yield self._decoded(text), size
            at = end

    def _line(self, data: bytes, start: int, end: int) -> T | None:
        """The value that a line is; None if it is not exactly one, or not of the type."""
        if end - start > self._bytes_max or data[end - 1] not in b"} \t\r":
            return None
        try:
            return self._decoder.decode(memoryview(data)[start:end])
        except (msgspec.MsgspecError, RecursionError):
            return None

    def _decoded(self, text: bytes | bytearray) -> T | ShapeError:
        """Raises BrokenJsonError."""
        try:
            return self._decoder.decode(text)
        except msgspec.ValidationError as error:
            return ShapeError(str(error))
        except RecursionError:
            return ShapeError("It is nested too deeply")
        except msgspec.DecodeError as error:
            raise BrokenJsonError(str(error)) from None

    def _scan(self, data: bytes, at: int) -> int:
        """The end of the value that is being read, or of `data`."""
        while True:
            if self._in_string:
                at = self._end_of_string(data, at)
                if self._in_string:
                    return at
            at = _end(_BETWEEN, data, at)
            if at == len(data):
                return at
            byte = data[at]
            at += 1
            if byte in _OPENING:
                self._depth += 1
            elif byte == _QUOTE:
                self._in_string = True
            else:
                self._depth -= 1
                if not self._depth:
                    return at

    def _end_of_string(self, data: bytes, at: int) -> int:
        """Behind a string that began before; the end of `data` if it goes on."""
        if self._escaped and at < len(data):
            self._escaped = False
            at += 1
        end = _end(_STRING, data, at)
        if end == len(data):
            return end
        if data[end] == _QUOTE:
            self._in_string = False
            return end + 1
        self._escaped = True  # a backslash is the last byte
        return len(data)


def _end(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    """The end of what a pattern that also matches nothing matches at a place."""
    found = pattern.match(data, at)
    assert found is not None
    return found.end()
