"""Regular expressions of strangers over names of topics, matched in time that grows with the name and no faster.

Python's own matcher goes back and tries again: `(a+)+b` over forty letters takes it hours, and holds up everybody.
Here a pattern is a set of states that is followed through the name once (Thompson 1968). What cannot be had that way,
back references and looking around, is refused; so is what means different things to Python and to Java.
"""

import re
from typing import Final, NamedTuple

from penstock.model.errors import ErrorKind, PenstockError

PATTERN_CHARACTERS_MAX: Final = 2000
STATES_MAX: Final = 500  # beside one for each character of the pattern: a{100} is a hundred of them
DEPTH_MAX: Final = 50  # of groups in groups
MOVES_MAX: Final = 10_000  # remembered of one pattern

_CLASS: Final = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_AMBIGUOUS: Final = re.compile(r"(?<!\\)(\[|--|&&|~~|\|\|)", re.DOTALL)  # in a class
_COUNT: Final = re.compile(r"\{(\d{1,4})(?:(,)(\d{0,4}))?\}", re.ASCII)
_GROUP: Final = re.compile(r"\?(?::|P?<[A-Za-z]\w*>)", re.ASCII)
_ESCAPES: Final = frozenset("dDwWsStnrfv")


class _Part(NamedTuple):
    """A piece of a program: what enters it, and the exits that are still to be led on."""

    first: int
    exits: list[tuple[int, int]]


# What a state is: a step over one character that an atom matches, a fork, or a place.
_STEP, _FORK, _START, _END, _DONE = range(5)


class Pattern:
    """One pattern. Raises BAD_PARAMETER for what is none, and for what is not matched here."""

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_CHARACTERS_MAX:
            raise _bad(text, f"is longer than {PATTERN_CHARACTERS_MAX} characters")
        self._text = text
        self._at = 0
        self._depth = 0
        self._flags = re.NOFLAG
        self._states: list[list[int]] = []  # kind, atom, next, other
        self._atoms: dict[str, int] = {}
        self._tests: list[re.Pattern[str]] = []
        if text.startswith("(?i)"):
            self._flags, self._at = re.IGNORECASE, 4
        part = self._either()
        if self._at < len(text):
            raise _bad(text, "has a ) without its (")
        done = self._state(_DONE)
        self._lead(part.exits, done)
        self._begin = self._closure((part.first,), at_start=True)
        self._moves: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def fullmatch(self, name: str) -> bool:
        """Whether the whole of a name matches."""
        now = self._begin
        for character in name:
            found = self._moves.get((now, character))
            if found is None:
                found = self._move(now, character)
            if not found:
                return False
            now = found
        last = self._closure(now, at_start=not name, at_end=True)
        return any(self._states[state][0] == _DONE for state in last)

    def _move(self, now: frozenset[int], character: str) -> frozenset[int]:
        fits = [test.fullmatch(character) is not None for test in self._tests]
        states = self._states
        after = [states[n][2] for n in now if states[n][0] == _STEP and fits[states[n][1]]]
        found = self._closure(after)
        if len(self._moves) >= MOVES_MAX:
            self._moves.clear()
        self._moves[now, character] = found
        return found

    def _closure(
        self,
        begin: frozenset[int] | list[int] | tuple[int, ...],
        *,
        at_start: bool = False,
        at_end: bool = False,
    ) -> frozenset[int]:
        """The states that are reached without a character."""
        found: set[int] = set()
        waiting = list(begin)
        while waiting:
            state = waiting.pop()
            if state in found:
                continue
            found.add(state)
            kind, _, onward, other = self._states[state]
            if kind == _FORK:
                waiting += (onward, other)
            elif (kind == _START and at_start) or (kind == _END and at_end):
                waiting.append(onward)
        return frozenset(n for n in found if self._states[n][0] != _FORK)

    # -- from text to states

    def _state(self, kind: int, atom: int = -1, onward: int = -1, other: int = -1) -> int:
        if len(self._states) >= STATES_MAX + len(self._text):
            raise _bad(self._text, "repeats too much")
        self._states.append([kind, atom, onward, other])
        return len(self._states) - 1

    def _lead(self, exits: list[tuple[int, int]], to: int) -> None:
        for state, slot in exits:
            self._states[state][slot] = to

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _either(self) -> _Part:
        part = self._sequence()
        while self._peek() == "|":
            self._at += 1
            other = self._sequence()
            fork = self._state(_FORK, onward=part.first, other=other.first)
            part = _Part(fork, part.exits + other.exits)
        return part

    def _sequence(self) -> _Part:
        whole = self._nothing()
        while self._peek() not in ("", "|", ")"):
            begin = self._at
            part = self._atom()
            part = self._repeated(part, begin, self._at)
            self._lead(whole.exits, part.first)
            whole = _Part(whole.first, part.exits)
        return whole

    def _nothing(self) -> _Part:
        state = self._state(_FORK)
        return _Part(state, [(state, 2), (state, 3)])

    def _repeated(self, part: _Part, begin: int, end: int) -> _Part:
        """What a quantifier makes of the atom that the text has between `begin` and `end`."""
        sign = self._peek()
        count = _COUNT.match(self._text, self._at) if sign == "{" else None
        if count is not None:
            least = int(count[1])
            most = least if count[2] is None else int(count[3]) if count[3] else None
            self._at = count.end()
        elif sign and sign in "*+?":
            least, most = (1 if sign == "+" else 0), (1 if sign == "?" else None)
            self._at += 1
        else:
            return part
        if self._peek() == "?":  # how much it would take at first: for a whole name the same
            self._at += 1
        elif (self._peek() and self._peek() in "*+") or _COUNT.match(self._text, self._at):
            raise _bad(self._text, "has a quantifier after another")
        if most is not None and most < least:
            raise _bad(self._text, "has a quantifier whose most is less than its least")
        after = self._at
        whole = self._nothing()
        for number in range(max(least, 1 if most is None else most)):
            if number:
                part = self._again(begin, end)
            if most is None and number >= least - 1:
                part = self._looped(part, optional=least == 0)
            elif number >= least:
                part = self._optional(part)
            self._lead(whole.exits, part.first)
            whole = _Part(whole.first, part.exits)
        self._at = after
        return whole

    def _again(self, begin: int, end: int) -> _Part:
        self._at = begin
        part = self._atom()
        assert self._at == end
        return part

    def _optional(self, part: _Part) -> _Part:
        fork = self._state(_FORK, onward=part.first)
        return _Part(fork, [*part.exits, (fork, 3)])

    def _looped(self, part: _Part, *, optional: bool) -> _Part:
        fork = self._state(_FORK, onward=part.first)
        self._lead(part.exits, fork)
        return _Part(fork if optional else part.first, [(fork, 3)])

    def _atom(self) -> _Part:
        sign = self._peek()
        if sign == "(":
            return self._group()
        if sign in ("^", "$"):
            self._at += 1
            return self._place(_START if sign == "^" else _END)
        if sign == "\\":
            return self._escape()
        if sign == "[":
            found = _CLASS.match(self._text, self._at)
            if found is None:
                raise _bad(self._text, "has a [ without its ]")
            self._at = found.end()
            if _AMBIGUOUS.search(found[0], 1):
                raise _bad(self._text, "has a set within a set")
            return self._step(found[0])
        if sign in "*+?":
            raise _bad(self._text, "has a quantifier of nothing")
        self._at += 1
        return self._step("." if sign == "." else re.escape(sign))

    def _group(self) -> _Part:
        self._at += 1
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise _bad(self._text, "has too many groups in groups")
        if self._peek() == "?":
            kind = _GROUP.match(self._text, self._at)
            if kind is None:
                raise _bad(self._text, "has a group of another kind than (…), (?:…) and (?<name>…)")
            self._at = kind.end()
        part = self._either()
        if self._peek() != ")":
            raise _bad(self._text, "has a ( without its )")
        self._at += 1
        self._depth -= 1
        return part

    def _escape(self) -> _Part:
        letter = self._text[self._at + 1 : self._at + 2]
        self._at += 2
        if letter == "Q":  # Java's quotation
            quoted, end, _ = self._text[self._at :].partition("\\E")
            self._at += len(quoted) + len(end)
            whole = self._nothing()
            for character in quoted:
                part = self._step(re.escape(character))
                self._lead(whole.exits, part.first)
                whole = _Part(whole.first, part.exits)
            return whole
        if letter in _ESCAPES:
            return self._step("\\" + letter)
        if letter in ("A", "Z", "z"):
            return self._place(_START if letter == "A" else _END)
        if not letter or letter.isalnum():
            raise _bad(self._text, f"has \\{letter}")
        return self._step(re.escape(letter))

    def _place(self, kind: int) -> _Part:
        state = self._state(kind)
        return _Part(state, [(state, 2)])

    def _step(self, one: str) -> _Part:
        """A step over what `one`, an expression for a single character, matches."""
        atom = self._atoms.get(one)
        if atom is None:
            try:
                self._tests.append(re.compile(one, self._flags | re.DOTALL))
            except re.error as error:
                raise _bad(self._text, f"has {one[:80]}: {error.msg}") from None
            atom = self._atoms[one] = len(self._tests) - 1
        state = self._state(_STEP, atom)
        return _Part(state, [(state, 2)])


def _bad(text: str, why: str) -> PenstockError:
    return PenstockError(
        ErrorKind.BAD_PARAMETER, f"{text[:80]!r} is no regular expression that is matched here: it {why}"
    )
