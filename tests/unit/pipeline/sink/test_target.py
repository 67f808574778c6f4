"""A key's partition is the same for every producer of the project."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engines.shared.routing import Router as CoreRouter
from penstock.model.hashing import java_string_hash
from penstock.model.policy import Hashing, Routing
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.sink.target import Router, hashes

KEYS = (
    st.none()
    | st.text("abcXYZ019-_/", max_size=70)
    | st.text(max_size=8).filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text))
)


def binary(keys: list[str | None]) -> pa.Array:
    return pa.array([None if key is None else key.encode() for key in keys], pa.binary())


@given(keys=st.lists(KEYS, min_size=1, max_size=30), cut=st.integers(0, 3))
def test_hashes_are_javas(keys: list[str | None], cut: int) -> None:
    found = hashes(binary(keys).slice(cut)).tolist()
    assert found == [0 if key is None else java_string_hash(key) for key in keys[cut:]]


@given(
    keys=st.lists(KEYS.filter(lambda key: key is not None), min_size=1, max_size=30), count=st.integers(1, 9)
)
def test_partitions_are_those_of_other_producers(keys: list[str], count: int) -> None:
    other = CoreRouter(count, Routing.ROUND_ROBIN, Hashing.JAVA_STRING)
    chosen = Router("t", count, 5, 100).choose(binary([*keys]), None, len(keys)).tolist()
    assert chosen == [other.choose(key, None) for key in keys]


def test_rows_without_a_key_go_in_runs_to_each_partition_in_turn() -> None:
    router = Router("t", 3, 1, 2)
    assert router.choose(None, None, 5).tolist() == [1, 1, 2, 2, 0]
    assert router.choose(binary([None, "k", None]), None, 3).tolist() == [0, java_string_hash("k") % 3, 1]


def test_a_partition_that_is_named_wins_and_must_be_there() -> None:
    router = Router("t", 3, 0, 1)
    wanted = pa.array([2, None, 0], pa.int32())
    assert router.choose(binary(["a", "b", "c"]), wanted, 3).tolist() == [2, java_string_hash("b") % 3, 0]
    for bad in (3, -1):
        with pytest.raises(PipelineError, match=f"t has no partition {bad}; it has 3"):
            router.choose(None, pa.array([bad]), 1)
