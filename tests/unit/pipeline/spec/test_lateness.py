"""When a row is late is decided as Spark decides it."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.spec.parse import parse_spec
from penstock.pipeline.spec.times import Window, late_us, windows_of

HOUR = 3_600_000


def windows(*steps: str, view: str = "s") -> tuple[Window, ...]:
    text = 'name = "p"\n[sources.s]\ntopics = ["t"]\n[sources.other]\ntopics = ["o"]\n[sinks.k]\ninput = "s"\npath = "x"\n'
    for number, step in enumerate(steps):
        text += f'[[steps]]\nname = "v{number}"\n{step}\n'
    return windows_of(parse_spec(tomllib.loads(text), "p.toml", Path("/")), view)


def sql(text: str) -> str:
    return f'sql = """{text}"""'


def test_a_row_of_an_open_window_is_not_late() -> None:
    found = windows(sql("SELECT window(at, '1 hour'), count(*) FROM s GROUP BY window(at, '1 hour')"))
    assert set(found) == {Window(HOUR, HOUR)}


def test_windows_are_found_through_steps_without_state() -> None:
    found = windows(
        sql("SELECT a AS at FROM s -- window(x, '9 days')"),
        sql("SELECT count(*) FROM v0 GROUP BY k, WINDOW (at, '2 hours', '30 minutes', '5 minutes')"),
    )
    assert found == (Window(2 * HOUR, HOUR // 2, 300_000),)


@pytest.mark.parametrize(
    "step",
    [
        'inputs = ["s"]\ndeduplicate = ["id"]',
        'inputs = ["s"]\npython = "a:b"',
        sql("SELECT k, count(*) FROM s GROUP BY k"),
        sql("SELECT * FROM s JOIN other ON s.id = other.id"),
        sql("SELECT count(*) FROM s GROUP BY window(at, concat('1', ' hour'))"),
        sql("SELECT count(*) FROM s GROUP BY session_window(at, '5 minutes')"),
    ],
)
def test_elsewhere_the_event_time_decides(step: str) -> None:
    assert windows(step) == ()


def test_a_step_that_reads_something_else_does_not_matter() -> None:
    assert windows(
        'inputs = ["other"]\ndeduplicate = ["id"]',
        sql("SELECT count(*) FROM s GROUP BY window(at, '1 hour')"),
    ) == (Window(HOUR, HOUR),)


@given(
    st.integers(-(10**15), 10**15),
    st.integers(1, 10**6),
    st.integers(1, 100),
    st.integers(0, 10**6),
)
def test_the_last_window_that_holds_a_time(event_us: int, slide: int, times: int, offset: int) -> None:
    window = Window(slide * times, slide, offset % slide)
    end = window.end_us(event_us)
    start = end - window.size * 1000
    assert start <= event_us < start + slide * 1000, "it holds the time, and the next one does not"
    assert (start - window.offset * 1000) % (slide * 1000) == 0
    assert late_us((window,), event_us) == end
    assert late_us((), event_us) == event_us
