"""Which partition a message goes to, by its key."""

from base64 import b64encode

import pytest

from penstock.engines.shared.publishing import Router
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.hashing import java_string_hash, murmur2, murmur3_32
from penstock.model.partitioning import Partitioner
from penstock.model.policy import Routing

COUNT = 1000


def router(partitioner: Partitioner, count: int = COUNT) -> Router:
    return Router(count, Routing.ROUND_ROBIN, partitioner)


def test_kafkas_partitioners_hash_the_bytes_of_the_record_and_pulsars_the_text() -> None:
    content = b"\xff\x00k"
    text = b64encode(content).decode()
    assert router(Partitioner.MURMUR2).choose(text, None, content) == murmur2(content) % COUNT
    assert router(Partitioner.MURMUR2).choose("ключ", None) == murmur2("ключ".encode()) % COUNT
    assert router(Partitioner.JAVA).choose(text, None, content) == java_string_hash(text) % COUNT
    assert router(Partitioner.MURMUR3).choose(text, None, content) == murmur3_32(text.encode()) % COUNT


@pytest.mark.parametrize("partitioner", Partitioner)
def test_a_partition_that_is_named_wins_over_the_key(partitioner: Partitioner) -> None:
    assert router(partitioner, 4).choose("key", 3) == 3
    with pytest.raises(PenstockError) as caught:
        router(partitioner, 4).choose("key", 4)
    assert caught.value.kind is ErrorKind.PARTITION_NOT_FOUND


def test_an_empty_key_is_a_key_and_none_goes_in_turn() -> None:
    turns = router(Partitioner.MURMUR2, 3)
    first = turns.choose(None, None)
    assert turns.choose("", None) == murmur2(b"") % 3
    assert [turns.choose(None, None) for _ in range(3)] == [(first + n) % 3 for n in (1, 2, 3)]
