"""Where two schemas differ, by place."""

import pytest

from penstock.cli.output import CHOSEN, Format
from penstock.cli.schemas import Side, changed, show_difference

OLD = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int"}]}'
NEW = '{"name":"R","type":"record","fields":[{"name":"b","type":["null","int"]},{"name":"c","type":"int"}]}'


def test_fields_go_by_their_names() -> None:
    assert list(changed(Side("0", "AVRO", OLD), Side("1", "JSON", NEW))) == [
        {"change": "changed", "at": "type", "old": "AVRO", "new": "JSON"},
        {"change": "removed", "at": "fields.a", "old": {"name": "a", "type": "int"}},
        {"change": "changed", "at": "fields.b.type", "old": "int", "new": ["null", "int"]},
        {"change": "added", "at": "fields.c", "new": {"name": "c", "type": "int"}},
    ]


@pytest.mark.parametrize("definition", [OLD, "", "no JSON"])
def test_the_same(definition: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert show_difference(Side("0", "AVRO", definition), Side("1", "AVRO", definition)) == 0
    assert capsys.readouterr().out == ""


def test_no_definition_and_one() -> None:
    assert [one["at"] for one in changed(Side("0", "STRING", ""), Side("1", "JSON", '{"type":"int"}'))] == [
        "type",
        "type",
    ]


def test_as_lines(capsys: pytest.CaptureFixture[str]) -> None:
    import click

    with click.Context(click.Command("diff")) as context:
        context.meta[CHOSEN] = Format("table")
        assert show_difference(Side("old", "AVRO", OLD), Side("new", "AVRO", NEW)) == 1
    said = capsys.readouterr().out
    assert said.startswith("--- old\n+++ new\n")
    assert '-      "name": "a",' in said
