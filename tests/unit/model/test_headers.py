import pytest

from penstock.model.headers import HEADERS, Headers, headers_of, properties_of


@pytest.mark.parametrize(
    ("headers", "properties"),
    [
        ([], None),
        ([("a", b"x"), ("b", "ü".encode())], {"a": "x", "b": "ü"}),
        ([("a", b"")], {"a": ""}),
        ([("a", b"x"), ("a", b"y")], {"a": "y", HEADERS: '[["a","eA=="],["a","eQ=="]]'}),
        ([("a", None)], {"a": "", HEADERS: '[["a",null]]'}),
        ([("a", b"\xff")], {HEADERS: '[["a","/w=="]]'}),
        ([(HEADERS, b"x")], {HEADERS: '[["penstock-headers","eA=="]]'}),
    ],
)
def test_headers_come_back(headers: Headers, properties: dict[str, str] | None) -> None:
    assert properties_of(headers) == properties
    assert list(headers_of(properties or {})) == list(headers)


@pytest.mark.parametrize("text", ["", "x", "{}", '[["a"]]', '[["a","!!"]]'])
def test_a_property_of_that_name_that_says_no_headers_is_one(text: str) -> None:
    assert list(headers_of({HEADERS: text})) == [(HEADERS, text.encode())]
