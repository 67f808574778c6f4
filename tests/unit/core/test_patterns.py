"""Strangers' regular expressions: the same answers as Python's, in time that nobody can blow up."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.patterns import PATTERN_CHARACTERS_MAX, Pattern
from penstock.model.errors import ErrorKind, PenstockError

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
        expected = re.compile(text)
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
    ],
)
def test_what_it_takes(text: str, name: str, matches: bool) -> None:
    assert Pattern(text).fullmatch(name) is matches


@pytest.mark.parametrize(
    "text",
    ["(a+)+b", "(a|a)*b", "(a*)*b", ".*.*.*.*.*.*b", "(a|aa)+b", "a?" * 60 + "a" * 60, "(.*a){20}b"],
)
def test_no_pattern_takes_long(text: str) -> None:
    began = time.process_time()
    assert not Pattern(text).fullmatch("a" * 512 + "c")
    assert time.process_time() - began < 2  # Python's takes from minutes to for ever


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
            r"\b",
        ),
        *("\\", "[[a]]", "[a&&b]", "(?P=x)", "(?x)a", "a{9999}", "(a{100}){100}", "(" * 60 + ")" * 60),
        "a" * (PATTERN_CHARACTERS_MAX + 1),
    ],
)
def test_what_it_does_not(text: str) -> None:
    with pytest.raises(PenstockError, match="no regular expression that is matched here") as refused:
        Pattern(text)
    assert refused.value.kind is ErrorKind.BAD_PARAMETER
    assert len(refused.value.message) < 300
