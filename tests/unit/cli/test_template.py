"""Templates of `--output`: fields of the answer's JSON, and nothing else."""

import click
import pytest

from penstock.cli.output import Format, Template, _cell

ANSWER = {"topic": "a", "n": 12345, "none": None, "yes": True, "in": {"x": [{"y": "z"}]}, "list": ["b"]}


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("{topic}: {n:>8,}|", "a:   12,345|"),
        (r"{topic}\t{in.x[0].y}", "a\tz"),
        ("{none}{yes} {list} {list[0]}", 'true ["b"] b'),
        ("{none:>4d}|{none:>4}|{yes:d}", "    |    |true"),
        ("{{{topic}}}", "{a}"),
        ("plain", "plain"),
    ],
)
def test_fields(template: str, line: str) -> None:
    assert Template(template).filled(ANSWER) == line


def test_a_field_that_is_not_there_is_empty_and_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    template = Template("<{topik}{in.x[7].y}{list.b}>")
    assert [template.filled(ANSWER), template.filled(ANSWER)] == ["<>", "<>"]
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 3
    assert "topik" in said[0]
    assert "topic, n" in said[0]


@pytest.mark.parametrize("field", ["topic.__class__", "topic.upper", "in.keys", "list.append", "n.real"])
def test_no_attribute_can_be_reached(field: str) -> None:
    assert Template(f"{{{field}}}").filled(ANSWER) == ""


def test_an_answer_that_is_no_object_is_value() -> None:
    assert Template("{value}").filled(["x"]) == '["x"]'


@pytest.mark.parametrize(
    "text", ["template={topic", "template={}", "template=", "template", "jsn", "json=x", ""]
)
def test_formats_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Format.parse(text)


def test_a_format_that_does_not_fit() -> None:
    with pytest.raises(click.ClickException, match="does not fit"):
        Template("{topic:d}").filled(ANSWER)


@pytest.mark.parametrize("text", ["{a:c}", "{b:>99999999999999999}", "{c:d}"])
def test_formats_that_do_not_fit(text: str) -> None:
    with pytest.raises(click.ClickException, match=r"does not fit: .+"):
        Template(text).filled({"a": 1 << 60, "b": "x", "c": "y"})


def test_times_that_no_calendar_has() -> None:
    assert str(_cell(253_402_300_799_000, "expires_timestamp")) == "9999-12-31 23:59:59.000+00:00"
    assert str(_cell(253_402_300_800_000, "expires_timestamp")) == "253,402,300,800,000"
