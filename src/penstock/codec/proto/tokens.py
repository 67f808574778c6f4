"""The tokens of a `.proto` file (protobuf.dev/reference/protobuf/proto3-spec)."""

import re
from typing import Final

from google.protobuf.text_encoding import CUnescape

_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*|/\*.*?\*/)
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<number>\.?[0-9](?:[eE][+-]|[A-Za-z0-9_.])*)
  | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<symbol>[=;{}\[\]()<>,.:+/-])
    """,
    re.VERBOSE | re.DOTALL,
)


NAME_MAX: Final = (
    512  # characters of a name, with its points: each is looked for in all that it may be within
)


class ProtoError(ValueError):
    """A text is not a supported `.proto` file; names the line."""


class Tokens:
    """The tokens of a text, in order. Every method raises ProtoError if something else comes."""

    def __init__(self, text: str) -> None:
        self._found: list[tuple[str, str, int]] = []  # kind, token, place
        self._text = text
        self._next = 0
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise ProtoError(f"line {self._line(at)}: {text[at]!r} is not expected")
            kind = match.lastgroup or ""
            if kind == "word":
                self.check_name(match.group())
            if kind != "space":
                self._found.append((kind, match.group(), at))
            at = match.end()

    def check_name(self, name: str) -> None:
        """Raise for a name that is too long."""
        if len(name) > NAME_MAX:
            raise self.error(f"a name of more than {NAME_MAX} characters: {name[:40]}…")

    def _line(self, at: int) -> int:
        return self._text.count("\n", 0, at) + 1

    def error(self, what: str) -> ProtoError:
        """An error at the token that was taken last."""
        at = self._found[min(self._next, len(self._found)) - 1][2] if self._found else 0
        return ProtoError(f"line {self._line(at)}: {what}")

    @property
    def more(self) -> bool:
        return self._next < len(self._found)

    def peek(self, ahead: int = 0) -> str:
        """A token that is not taken yet; empty at the end."""
        at = self._next + ahead
        return self._found[at][1] if at < len(self._found) else ""

    def take(self, kind: str = "") -> str:
        """The next token, which is of this kind."""
        if not self.more:
            raise self.error("the text ends here")
        found, token, _ = self._found[self._next]
        self._next += 1
        if kind and found != kind:
            raise self.error(f"a {kind} is expected, not {token!r}")
        return token

    def expect(self, token: str) -> None:
        found = self.take()
        if found != token:
            raise self.error(f"{token!r} is expected, not {found!r}")

    def skip(self, token: str) -> bool:
        """Take the next token if it is this one."""
        if self.peek() != token:
            return False
        self._next += 1
        return True

    def name(self) -> str:
        """A name with points, which may begin with one."""
        found = "." if self.skip(".") else ""
        found += self.take("word")
        while self.skip("."):
            found += "." + self.take("word")
            self.check_name(found)
        return found

    def text(self) -> bytes:
        """A text, in as many pieces as there are."""
        found = bytearray()
        while True:
            try:
                found += CUnescape(self.take("text")[1:-1])
            except ValueError as error:
                raise self.error(f"a text that cannot be read: {error}") from None
            if self.peek()[:1] not in ("'", '"') or not self.peek():
                return bytes(found)

    def integer(self) -> int:
        negative = self.skip("-")
        token = self.take("number")
        try:
            number = int(token, 8) if re.fullmatch(r"0[0-7]+", token) else int(token, 0)
        except ValueError:
            raise self.error(f"an integer is expected, not {token!r}") from None
        return -number if negative else number

    def skip_block(self, opening: str, closing: str) -> None:
        """Take everything up to the end of a block, whose beginning was taken."""
        depth = 1
        while depth:
            token = self.take()
            depth += (token == opening) - (token == closing)
