"""Regular expressions of clients: the same answers as Python's, in bounded time and memory."""

import random
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.patterns import COMPILED_MAX, MEMORY_BYTES_MAX, PATTERN_CHARACTERS_MAX, Pattern

_ONE = st.sampled_from(["a", "b", ".", r"\.", "[ab]", "[^a]", r"\w", r"\d", "[a-c0]", "^", "$", "é", "-"])


def _more(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("({}|{})".format, inner, inner),
        st.builds(
            "(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0}", "{2,}", "*?"])
        ),
        st.builds("(?P<x>{})".format, _ONE),
    )


PATTERNS = st.recursive(_ONE, _more, max_leaves=8)


@given(PATTERNS, st.text(alphabet="abc.é0-", max_size=7))
def test_it_answers_as_pythons(text: str, name: str) -> None:
    try:
        expected = re.compile(text, re.ASCII | re.DOTALL)  # as in Java
    except re.error:  # a name twice
        return
    pattern = Pattern(text)
    assert pattern.fullmatch(name) == (expected.fullmatch(name) is not None)


@pytest.mark.parametrize(
    ("text", "name", "matches"),
    [
        ("", "", True),
        ("orders-.*", "orders-2026", True),
        (r"\Qa.b\E.*", "a.bc", True),
        (r"\Qa.b\E.*", "aXbc", False),
        ("(?i)AbC[x-z]", "aBcY", True),
        (r"a\-b\/c", "a-b/c", True),
        ("a|b", "ab", False),
        ("a{,2}", "a{,2}", True),
        ("(?<name>a)(?P<other>b)", "ab", True),
        ("a.*?b+?", "acb", True),
        ("^a$|^b$", "b", True),
        (r"\Aa\z", "a", True),
        (r"a\b.*", "a-b", True),
        (r"[\[\]&]+", "[&]", True),
        (r"\Q[[&&\E", "[[&&", True),
        ("[]a]+", "]a", True),
        ("a&&b", "a&&b", True),
        (r"\p{L}+", "aé", True),
        (r"\w+", "é", False),
        ("(?s).", "\n", True),
        ("persistent|public/default/[^/]+", "public/default/é", True),
    ],
)
def test_what_it_takes(text: str, name: str, matches: bool) -> None:
    assert Pattern(text).fullmatch(name) is matches


@pytest.mark.parametrize(
    "text",
    ["(a+)+b", "(a|a)*b", "(a*)*b", ".*.*.*.*.*.*b", "(a|aa)+b", "a?" * 60 + "a" * 60, "(.*a){20}b"],
)
def test_no_pattern_takes_long(text: str) -> None:
    began = time.thread_time()
    assert not Pattern(text).fullmatch("a" * 512 + "c")
    assert time.thread_time() - began < 2  # Python's takes from minutes to for ever


def test_a_pattern_of_many_states_takes_no_long_time() -> None:
    """A table of all sets of states does not fit into any memory: 2 to the power of 230."""
    dice = random.Random(1)
    names = ["".join(dice.choice("ab") for _ in range(250)) for _ in range(100)]
    began = time.thread_time()
    pattern = Pattern("[ab]*a[ab]{230}")
    found = [pattern.fullmatch(name) for name in names]
    assert time.thread_time() - began < 2  # some 20 ms
    assert found == [name[-231] == "a" for name in names]


def test_the_memory_of_patterns_is_bounded() -> None:
    """As many as are kept, each of which fills what it may remember."""
    dice = random.Random(2)
    names = ["".join(dice.choice("ab") for _ in range(500)) for _ in range(20)]
    before = resident_kib()
    for number in range(2 * COMPILED_MAX):
        pattern = Pattern(f"[ab]*a[ab]{{{number % 400}}}.{{{number // 400}}}")
        for name in names:
            pattern.fullmatch(name)
    # RE2's own cache keeps half as many once more.
    assert resident_kib() - before < 3 * COMPILED_MAX * MEMORY_BYTES_MAX // 1024


def resident_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


@pytest.mark.parametrize(
    "text",
    [
        *(
            "(",
            ")",
            "[",
            "*",
            "+a",
            "a**",
            "a++",
            "a{2}{2}",
            "a{3,2}",
            "[z-a]",
            "(?=a)",
            "(?<!a)",
            r"(a)\1",
            r"\123",
            r"\C",
            r"\Z",
            r"\h",
        ),
        *(
            "\\",
            "[[a]]",
            "[a&&b]",
            "[[:alpha:]]",
            "[^a[b]]",
            "(?P=x)",
            "(?x)a",
            "(?U)a",
            "(?i-U:a)",
            "(?>a)",
            "a{1,}+",
        ),
        *("a{9999}", "(a{100}){100}", r"\pL{999}" * 200, "a{900}" * 300, "\ud800"),
        "a" * (PATTERN_CHARACTERS_MAX + 1),
    ],
)
def test_what_it_does_not(text: str) -> None:
    with pytest.raises(PenstockError, match="no regular expression that is matched here") as refused:
        Pattern(text)
    assert refused.value.kind is ErrorKind.BAD_PARAMETER
    assert len(refused.value.message) < 300
