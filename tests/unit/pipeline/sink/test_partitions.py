"""A key's partition is the same for every producer of the project."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engines.shared.publishing import Router as CoreRouter
from penstock.model.hashing import java_string_hash, murmur2
from penstock.model.partitioning import Partitioner, hash_of_bytes, hash_of_text
from penstock.model.policy import Routing
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.sink.messages import Keys, keys_of
from penstock.pipeline.sink.target import Router, hashes

TEXTS = st.text("abcXYZ019-_/", max_size=70) | st.text(max_size=8).filter(
    lambda text: not any("\ud800" <= c <= "\udfff" for c in text)
)
PARTITIONERS = st.sampled_from(Partitioner)
OF_BYTES = st.sampled_from([one for one in Partitioner if one.hashes_bytes])


def texts(*keys: str | None) -> Keys:
    return Keys(pa.array([None if key is None else key.encode() for key in keys], pa.binary()))


@given(keys=st.lists(st.none() | TEXTS, min_size=1, max_size=30), cut=st.integers(0, 3), by=PARTITIONERS)
def test_hashes_of_columns_are_those_of_keys(keys: list[str | None], cut: int, by: Partitioner) -> None:
    found = hashes(texts(*keys).texts.slice(cut), by).tolist()
    for key, value in zip(keys[cut:], found, strict=True):
        if key is not None:
            assert value == (hash_of_bytes(by, key.encode()) if by.hashes_bytes else hash_of_text(by, key))


@given(keys=st.lists(st.binary(max_size=70), min_size=1, max_size=30), by=OF_BYTES)
def test_hashes_of_bytes(keys: list[bytes], by: Partitioner) -> None:
    assert hashes(pa.array(keys, pa.binary()), by).tolist() == [hash_of_bytes(by, key) for key in keys]


@given(keys=st.lists(TEXTS, min_size=1, max_size=30), count=st.integers(1, 9), by=PARTITIONERS)
def test_partitions_are_those_of_other_producers(keys: list[str], count: int, by: Partitioner) -> None:
    other = CoreRouter(count, Routing.ROUND_ROBIN, by)
    chosen = Router("t", count, 5, 100, by).choose(texts(*keys), None, len(keys)).tolist()
    assert chosen == [other.choose(key, None) for key in keys]


def test_bytes_that_are_no_text_are_hashed_as_bytes_before_kafka_and_as_base64_elsewhere() -> None:
    column = pa.array([b"\xff\x00", b"text", None], pa.binary())
    keys = keys_of(column)
    by_bytes = Router("t", 1000, 0, 1, Partitioner.MURMUR2).choose(keys, None, 3).tolist()
    assert by_bytes == [murmur2(b"\xff\x00") % 1000, murmur2(b"text") % 1000, 0]
    by_text = Router("t", 1000, 0, 1, Partitioner.JAVA).choose(keys, None, 3).tolist()
    assert by_text == [java_string_hash("/wA=") % 1000, java_string_hash("text") % 1000, 0]


def test_a_registrys_framing_is_hashed_with_the_key() -> None:
    head = b"\0\0\0\0\7"
    router = Router("t", 1000, 0, 1, Partitioner.MURMUR2, head)
    assert router.choose(texts("a", None, "bc"), None, 3).tolist() == [
        murmur2(head + b"a") % 1000,
        0,
        murmur2(head + b"bc") % 1000,
    ]


def test_rows_without_a_key_go_in_runs_to_each_partition_in_turn() -> None:
    router = Router("t", 3, 1, 2)
    assert router.choose(None, None, 5).tolist() == [1, 1, 2, 2, 0]
    assert router.choose(texts(None, "k", None), None, 3).tolist() == [0, java_string_hash("k") % 3, 1]


def test_a_partition_that_is_named_wins_and_must_be_there() -> None:
    router = Router("t", 3, 0, 1)
    wanted = pa.array([2, None, 0], pa.int32())
    assert router.choose(texts("a", "b", "c"), wanted, 3).tolist() == [2, java_string_hash("b") % 3, 0]
    for bad in (3, -1):
        with pytest.raises(PipelineError, match=f"t has no partition {bad}; it has 3"):
            router.choose(None, pa.array([bad]), 1)
