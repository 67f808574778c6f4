import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.errors import DataLoss, PipelineError
from penstock.pipeline.http.logs import Log
from penstock.pipeline.source.offsets import (
    End,
    Listed,
    ListedTimes,
    Range,
    Time,
    parse,
    parse_times,
    parse_where,
    ranges,
    times,
    write,
)

T = "persistent://public/default/t"
LOG = Log(T, 0, False, 5, 10, 100, {77: 40})


def one(start: object, end: object, **options: bool) -> tuple[int, int] | None:
    found = ranges([LOG], start, end, **options)  # type: ignore[arg-type]
    return (found[0].start, found[0].end) if found else None


def test_json() -> None:
    assert parse("startingOffsets", '{"t": {"1": 5, "0": -2}}') == {T: {0: -2, 1: 5}}
    assert write({"b": {10: 1, 9: 2}, "a": {0: 3}}) == '{"a":{"0":3},"b":{"9":2,"10":1}}'


@given(st.dictionaries(st.sampled_from("abc"), st.dictionaries(st.integers(0, 99), st.integers(0, 2**62))))
def test_the_same_offsets_are_the_same_text(offsets: dict[str, dict[int, int]]) -> None:
    turned = {t: dict(reversed(ps.items())) for t, ps in reversed(offsets.items())}
    assert write(offsets) == write(turned)
    named = {f"persistent://public/default/{t}": ps for t, ps in offsets.items()}
    assert parse("o", write(named)) == named


@pytest.mark.parametrize(
    "text",
    ["", "first", "[]", '{"t": 5}', '{"t": {"x": 5}}', '{"t": {"0": -3}}', '{"t": {"-1": 3}}', '{"a/b": {}}'],
)
def test_bad_json(text: str) -> None:
    with pytest.raises(PipelineError, match="option startingOffsets"):
        parse_where("startingOffsets", text)


def test_ends() -> None:
    assert parse_where("o", " Earliest ") is End.EARLIEST
    assert one(End.EARLIEST, End.LATEST) == (10, 100)
    assert one(End.LATEST, End.LATEST) is None


def test_listed_times() -> None:
    where = parse_times("o", '{"t": {"0": 77}}')
    assert times(where, Time(5)) == [5, 77]
    assert one(where, End.LATEST) == (40, 100)
    assert one(End.EARLIEST, where) == (10, 40)
    assert one(ListedTimes({}), End.LATEST) == (10, 100)
    with pytest.raises(PipelineError, match="partition 3, is not part of the query"):
        one(ListedTimes({T: {3: 77}}), End.LATEST)
    with pytest.raises(PipelineError, match="option o: a time is ms since the epoch"):
        parse_times("o", '{"t": {"0": -1}}')


def test_listed() -> None:
    assert one(Listed({T: {0: 20}}), Listed({T: {0: 30}})) == (20, 30)
    assert one(Listed({T: {0: -2}}), Listed({T: {0: -1}})) == (10, 100)
    assert one(Listed({}), Listed({})) == (10, 100)
    assert one(Listed({T: {0: 30}}), Listed({T: {0: 20}})) is None


def test_times() -> None:
    assert times(Time(77), End.LATEST, Time(77), Time(5)) == [5, 77]
    assert one(Time(77), End.LATEST) == (40, 100)
    assert one(End.EARLIEST, Time(77)) == (10, 40)


def test_what_is_gone_is_said() -> None:
    with pytest.raises(DataLoss, match="offset 3 is asked for, but the log begins at 10"):
        one(Listed({T: {0: 3}}), End.LATEST)
    assert one(Listed({T: {0: 3}}), End.LATEST, fail_on_data_loss=False) == (10, 100)


@pytest.mark.parametrize("which", [{"start": 101}, {"end": 101}])
def test_what_is_not_there_yet(which: dict[str, int]) -> None:
    start = Listed({T: {0: which["start"]}}) if "start" in which else End.EARLIEST
    end = Listed({T: {0: which["end"]}}) if "end" in which else End.LATEST
    with pytest.raises(PipelineError, match="offset 101 is asked for, but the log ends at 100"):
        one(start, end)


def test_slips_of_the_pen() -> None:
    with pytest.raises(PipelineError, match=r"option endingOffsets: .*partition 1, is not part of the query"):
        one(End.EARLIEST, Listed({T: {1: 3}}))


def test_ranges_know_their_log() -> None:
    assert ranges([LOG], End.EARLIEST, End.LATEST) == [Range(T, 0, False, 5, 10, 100)]
