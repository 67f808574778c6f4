"""Query parameters."""

import pytest

from penstock.model.errors import PenstockError
from penstock.protocols.http.params import Parameter, Params


def test_reading() -> None:
    params = Params(
        b"n=5&f=true&e=&t=a%20b&authoritative=false",
        [Parameter(name, "", {"enum": ["a", "b"]}) for name in "nfetx"],
    )
    assert params.number("n") == 5
    assert params.number("n", most=3) == 3
    assert params.number("x") is None
    assert params.flag("f")
    assert params.flag("e")
    assert not params.flag("x")
    assert params.text("t") == "a b"
    assert params.choice("x") == "a"


@pytest.mark.parametrize(
    "query",
    [
        b"n=-1",
        b"n=x",
        b"n=",
        b"n=1.5",
        b"n=%C2%B2",
        b"n=99999999999999999999",
        b"n=1&n=2",
        b"zzz=1",
        b"n=\xff",
    ],
)
def test_bad(query: bytes) -> None:
    with pytest.raises(PenstockError):
        Params(query, [Parameter("n", "")]).number("n")


def test_bad_choice_and_flag() -> None:
    params = Params(b"a=q", [Parameter("a", "", {"enum": ["x", "y"]})])
    with pytest.raises(PenstockError, match="a must be one of"):
        params.choice("a")
    with pytest.raises(PenstockError, match="true or false"):
        params.flag("a")
