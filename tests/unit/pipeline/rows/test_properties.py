"""Properties as a column of maps, also those that are not written as everybody writes them."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import varint
from penstock.pipeline.rows.rows import properties


def field(tag: int, text: bytes) -> bytes:
    return bytes((tag,)) + varint(len(text)) + text


def pair(key: bytes, value: bytes) -> bytes:
    return field(0x0A, key) + field(0x12, value)


def made(messages: Sequence[Sequence[bytes]]) -> list[list[tuple[str, str]]]:
    """The maps of messages with these properties, which lie as the messages' fields do: step by step."""
    data = b"".join(b"--" + each for message in messages for each in message)
    steps: dict[int, list[tuple[int, int, int]]] = {}
    at = 0
    for row, message in enumerate(messages):
        for step, each in enumerate(message):
            steps.setdefault(step, []).append((at + 2, at + 2 + len(each), row))
            at += 2 + len(each)
    found = [
        (np.array([b for b, _, _ in s]), np.array([e for _, e, _ in s]), np.array([r for _, _, r in s]))
        for s in steps.values()
    ]
    column = properties(pa.py_buffer(data), found, len(messages))
    column.validate(full=True)
    maps: list[list[tuple[str, str]]] = column.to_pylist()
    return maps


A, B = pair(b"a", b"1"), pair(b"b", b"2")


@pytest.mark.parametrize("odd", [[], [field(0x12, b"x") + field(0x0A, b"k")]], ids=["at once", "one by one"])
def test_each_message_has_its_own_in_order(odd: list[bytes]) -> None:
    tail = [[("k", "x")]] if odd else [[]]
    long = pair(b"k" * 300, b"v" * 20_000)
    assert made([[B, A], [], [A], [long, pair(b"", b"")], odd]) == [
        [("b", "2"), ("a", "1")],
        [],
        [("a", "1")],
        [("k" * 300, "v" * 20_000), ("", "")],
        *tail,
    ]


def test_no_message_has_any() -> None:
    assert made([[], []]) == [[], []]


def test_of_a_key_that_comes_twice_the_last_value_counts() -> None:
    assert made([[A, B, pair(b"a", b"3")], [A]]) == [[("a", "3"), ("b", "2")], [("a", "1")]]


def test_the_same_key_in_messages_side_by_side_is_no_key_twice() -> None:
    assert made([[A], [A, B], [B, A]]) == [
        [("a", "1")],
        [("a", "1"), ("b", "2")],
        [("b", "2"), ("a", "1")],
    ]


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (field(0x0A, b"k"), ("k", "")),
        (b"", ("", "")),
        (field(0x12, b"v"), ("", "v")),
        (field(0x0A, b"x") + pair(b"k", b"v"), ("k", "v")),
        (pair(b"k", b"v") + field(0x1A, b"more"), ("k", "v")),
        (pair(b"\xff", b"\xed\xa0\x80"), ("�", "���")),
    ],
)
def test_other_forms(raw: bytes, shown: tuple[str, str]) -> None:
    assert made([[A], [raw]]) == [[("a", "1")], [shown]]


@pytest.mark.parametrize("raw", [b"\x08\x01abc", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"])
def test_broken_ones_are_refused(raw: bytes) -> None:
    with pytest.raises((PenstockError, ValueError)) as caught:
        made([[raw]])
    if isinstance(caught.value, PenstockError):
        assert caught.value.kind is ErrorKind.BAD_ENCODING
