"""Regular expressions of clients over names of topics, matched in time that grows with the name and no faster.

Python's own matcher goes back and tries again: `(a+)+b` over forty letters takes it hours, and nothing else is served
meanwhile. RE2 follows all ways at once, in memory that is bounded; this is the one module that imports it (decision
record 0036). What cannot be matched so, back references and looking around, is refused; so is what RE2 reads otherwise
than Java, whose expressions Pulsar's clients send.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import re2

from penstock.model.errors import ErrorKind, PenstockError

PATTERN_CHARACTERS_MAX: Final = 2000
# Of one pattern: its program and the states that RE2 remembers. A program that fits has about 4,000 steps, which is
# also the bound of the time for one character.
MEMORY_BYTES_MAX: Final = 128 * 1024
COMPILED_MAX: Final = 256  # kept; others are compiled again when they are used

# Quoted text and escapes first: their content is literal.
_PIECE: Final = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?|\]|&&|\(\?[a-zA-Z]*-?[a-zA-Z]*", re.DOTALL)


class Pattern:
    """One pattern; equal ones are compiled once. Raises BAD_PARAMETER for invalid and for refused patterns."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_CHARACTERS_MAX:
            raise _bad(text, f"is longer than {PATTERN_CHARACTERS_MAX} characters")
        _compiled(text)
        self.text: Final = text

    def fullmatch(self, name: str) -> bool:
        """Whether the whole of a name matches."""
        return _compiled(self.text)(name.encode()) is not None


@lru_cache(maxsize=COMPILED_MAX)
def _compiled(text: str) -> Callable[[bytes], object]:
    _check_meaning(text)
    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.never_capture = True  # groups cost time, and only the whole counts
    options.dot_nl = True
    options.log_errors = False
    try:
        # Of UTF-8: the wrapper would count characters for positions that are not asked for.
        matches: Callable[[bytes], object] = re2.compile(text.encode(), options).fullmatch
    except re2.error as error:
        why = error.args[0] if error.args else b""
        said = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        raise _bad(text, f"has a mistake: {said[:120]}") from None
    except UnicodeEncodeError:
        raise _bad(text, "is no valid Unicode") from None
    return matches


def _check_meaning(text: str) -> None:
    """Refuse what RE2 takes and Java understands otherwise."""
    in_set = False
    for found in _PIECE.finditer(text):
        piece = found[0]
        if piece.startswith("\\"):
            # \C is half a character, \v is one character and not all of vertical space, \1 is not an octal number.
            if piece[1] in "Cv" or piece[1] in "123456789":
                raise _bad(text, f"has {piece}")
        elif piece.startswith("["):
            if in_set:
                raise _bad(text, "has a set within a set")
            in_set = True
        elif piece == "]":
            in_set = False
        elif piece == "&&":
            if in_set:
                raise _bad(text, "has a set within a set")
        elif not in_set and "U" in piece:
            raise _bad(text, "has the flag U")


def _bad(text: str, why: str) -> PenstockError:
    return PenstockError(
        ErrorKind.BAD_PARAMETER, f"{text[:80]!r} is no regular expression that is matched here: it {why}"
    )
