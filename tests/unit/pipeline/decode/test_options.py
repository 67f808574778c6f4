"""Columns written down."""

import pytest

from penstock.pipeline.decode.options import parse_ddl
from penstock.pipeline.errors import PipelineError


@pytest.mark.parametrize(
    ("text", "simple"),
    [
        ("id bigint, name string", "struct<id:bigint,name:string>"),
        (" id : BIGINT ,`a b` array< map<string , decimal(10,2)> >", None),
        (
            "s struct<a: int, b struct<c date>>, t timestamp",
            "struct<s:struct<a:int,b:struct<c:date>>,t:timestamp>",
        ),
        ("bigint", "bigint"),
        ("array<double>", "array<double>"),
        ("decimal(38)", "decimal(38,0)"),
        ("date date", "struct<date:date>"),
    ],
)
def test_what_is_understood(text: str, simple: str | None) -> None:
    found = parse_ddl(text)
    assert found.simpleString() == (simple or "struct<id:bigint,a b:array<map<string,decimal(10,2)>>>")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("id", "no type 'id'"),
        ("id frog", "no type 'frog'"),
        ("id int,", "it ends too early"),
        ("id int id2 int", "'id2' instead of ','"),
        ("id int, ID string", "column ID is there twice"),
        ("a decimal(39,1)", r"no type decimal\(39,1\)"),
        ("a array<int", "it ends too early"),
        ("a ; b", "' ; b' is not understood"),
        ("a " + "array<" * 60 + "int", "nested too deeply"),
    ],
)
def test_what_is_not(text: str, why: str) -> None:
    with pytest.raises(PipelineError, match=f"option readerSchema: ddl: .*{why}"):
        parse_ddl(text)
