"""The tests of a pipeline: what is read of a file, which rows fit, and how those are shown that do not."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.run.cases import Outcome, difference, fits, load_cases
from penstock.pipeline.run.plain import plain

TEST = '[[tests]]\nname = "{}"\ngiven.s = [{{ value = {{ n = 1 }} }}]\n'


def test_tests_stand_in_the_file_and_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text('name = "p"\n' + TEST.format("one") + TEST.format("two"))
    assert [str(case) for case in load_cases(file)] == ["one", "two"]
    (tmp_path / "p.tests.toml").write_text(TEST.format("three"))
    assert [str(case) for case in load_cases(file)] == ["one", "two", "three"]
    (tmp_path / "p.tests.toml").write_text(TEST.format("one"))
    with pytest.raises(PipelineError, match="two of its tests are called 'one'"):
        load_cases(file)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[tests]\n", "[tests]: tests are written [[tests]]"),
        ("[[tests]]\ngiven = {}\n", "[[tests]] number 1: Object missing required field `name`"),
        (TEST.format("one") + "expects.k = []\n", "[[tests]] one: Object contains unknown field `expects`"),
        (
            TEST.format("one") + "expect.k = {}\n",
            "[[tests]] one: Expected `array`, got `object` - at `$.expect[...]`",
        ),
    ],
)
def test_what_is_no_test_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "p.toml"
    file.write_text(text)
    with pytest.raises(PipelineError) as refused:
        load_cases(file)
    assert refused.value.message == f"{file}: {sentence}"


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (1, 1.0),
        (0.3, 0.1 + 0.2),
        (None, None),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": None}, {"b": 2}),
        ([1, {"a": 1}], [1, {"a": 1, "b": 2}]),
        (float("nan"), float("nan")),
    ],
)
def test_values_that_fit(expected: Any, found: Any) -> None:
    assert fits(expected, found)


@pytest.mark.parametrize(
    ("expected", "found"),
    [(1, 2), (1, "1"), (0.3, 0.31), (None, 0), ({"a": 1}, {"b": 1}), ([1], [1, 2]), ({}, []), (0.3, None)],
)
def test_values_that_do_not(expected: Any, found: Any) -> None:
    assert not fits(expected, found)


def test_rows_fit_in_any_order_each_once() -> None:
    found = [{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 3}]
    assert difference("v", [{"a": 2}, {"a": 1}, {"a": 1, "b": 1}], found) is None
    wrong = difference("v", [{"a": 1}, {"a": 1}, {"a": 1}], found)
    assert wrong is not None
    assert (wrong.missing, wrong.unexpected) == ([{"a": 1}], [{"a": 2}])
    none = difference("v", [], found[:1])
    assert none is not None
    assert none.lines() == ["v:", '  + {"a": 1, "b": 1}']


def test_rows_that_differ_are_shown_with_the_likest() -> None:
    wrong = difference("v", [{"a": 1, "b": 1, "c": 1}], [{"a": 9, "b": 9, "c": 1}, {"a": 1, "b": 1, "c": 2}])
    assert wrong is not None
    assert Outcome(test="t", passed=False, seconds=0, differences=[wrong]).lines() == [
        "v:",
        '  - {"a": 1, "b": 1, "c": 1}',
        '  + {"a": 1, "b": 1, "c": 2}',
        "  ? c: 2, not 1",
        '  + {"a": 9, "b": 9, "c": 1}',
    ]


def test_plain_values_are_those_of_json() -> None:
    assert plain(
        {
            "text": b"text",
            "bytes": b"\xff\x00",
            "at": datetime(2026, 1, 31, 8, tzinfo=UTC),
            "local": datetime.fromisoformat("2026-01-31T08:00:00.0005"),
            "day": date(2026, 1, 31),
            "price": Decimal("3.50"),
            "wide": Decimal("1234567890123456789.5"),
            "list": [None, True, (1, 2.5)],
        }
    ) == {
        "text": "text",
        "bytes": {"base64": "/wA="},
        "at": "2026-01-31T08:00:00Z",
        "local": "2026-01-31T08:00:00.000500",
        "day": "2026-01-31",
        "price": 3.5,
        "wide": "1234567890123456789.5",
        "list": [None, True, [1, 2.5]],
    }
