"""Pauses between attempts, and which files may share a session."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.run.supervise import FIRST_S, HEALTHY_S, MOST_S, Backoff
from penstock.pipeline.spec.parse import parse_spec
from penstock.pipeline.spec.rules import check_together
from penstock.pipeline.spec.spec import Spec


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_waits_grow_to_a_cap_and_never_vanish(dice: list[float]) -> None:
    rolls = iter(dice)
    backoff = Backoff(lambda: next(rolls))
    for failure in range(len(dice)):
        most = min(MOST_S, FIRST_S * 2**failure)
        assert most / 2 <= backoff.next_s(0.0) <= most


def test_health_begins_anew() -> None:
    backoff = Backoff(lambda: 1.0)
    assert [backoff.next_s(1.0) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert backoff.next_s(HEALTHY_S) == FIRST_S
    assert backoff.next_s(1.0) == 2


def spec(name: str, folder: str = "/f", **more: object) -> Spec:
    content = {
        "name": name,
        "sources": {"s": {"topics": ["in"]}},
        "sinks": {"o": {"input": "s", "topic": "out"}},
    }
    return parse_spec({**content, **more}, f"{folder}/{name}.toml", Path(folder))


CODE = {"steps": [{"name": "v", "inputs": ["s"], "python": "mine:f"}]}


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (spec("a", "/g"), "pipeline a is named twice"),
        (spec("b", master="local[1]"), "master: local[1] is not that of /f/a.toml"),
        (spec("b", spark={"spark.driver.memory": "2g"}), "settings other than spark.sql"),
        (spec("b", "/g", **CODE), "/f/a.toml and /g/b.toml are in different folders"),
    ],
)
def test_files_that_cannot_share_a_session_are_refused(second: Spec, reason: str) -> None:
    with pytest.raises(PipelineError) as refused:
        check_together([spec("a", **CODE), second])
    assert reason in refused.value.message


def test_settings_of_sql_and_functions_of_one_folder_may_differ() -> None:
    check_together([spec("a", **CODE), spec("b", **CODE, spark={"spark.sql.shuffle.partitions": "1"})])
