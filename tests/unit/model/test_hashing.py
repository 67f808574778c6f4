"""Hashes against what the clients of Pulsar and of Kafka compute, and the reference values of MurmurHash3 and FNV-1a."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.hashing import (
    fnv1a,
    java_string_hash,
    murmur2,
    murmur3_32,
    ring_hash,
    sticky_hash,
)

# Made by `Murmur2.java` beside it, with Kafka's own client.
MURMUR2 = json.loads((Path(__file__).parents[2] / "vectors" / "partitioners" / "murmur2.json").read_text())


@pytest.mark.parametrize(("key", "expected"), MURMUR2)
def test_murmur2_of_kafkas_clients(key: str, expected: int) -> None:
    assert murmur2(bytes.fromhex(key)) == expected & 0x7FFFFFFF


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)],
)
def test_fnv1a_is_the_magnitude_of_the_signed_hash(data: bytes, expected: int) -> None:
    assert fnv1a(data) == abs(expected - (1 << 32) if expected >> 31 else expected)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("keykeykeykeykey1", 434058482),  # beyond 32 bits on the way
        ("keykeykey2", 42978643),  # negative in Java
        ("é", 0xE9),
        ("😀", 0xD83D * 31 + 0xDE00),  # two units in UTF-16
        ("\ud83d", 0xD83D),
    ],
)
def test_java_string_hash_of_known_keys(key: str, expected: int) -> None:
    assert java_string_hash(key) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"k1", 2110152746),
        (b"k2", 1479966664),
        (b"key1", 462881061),
        (b"key2", 1936800180),
        (b"key01", 39696932),
        (b"key02", 751761803),
        (b"", 0),
        (b"hello", 0x248BFA47),
        (b"hello, world", 0x149BBB7F),
        (b"The quick brown fox jumps over the lazy dog", 0x2E4FF723),
        (b"test", 0xBA6BD213 & 0x7FFFFFFF),
    ],
)
def test_murmur3_of_known_keys(data: bytes, expected: int) -> None:
    assert murmur3_32(data) == expected


def test_hashes_of_key_shared_are_never_0() -> None:
    assert murmur3_32(b"") == 0
    assert sticky_hash(b"") == ring_hash(b"") == 1
    assert sticky_hash(b"k1") == 2110152746 % 65536
    assert ring_hash(b"k1") == 2110152746 % 65535 + 1


@given(st.binary(max_size=64), st.text(max_size=20))
def test_hashes_stay_in_range(data: bytes, key: str) -> None:
    assert 0 <= murmur3_32(data) < 2**31
    assert 1 <= sticky_hash(data) < 65536
    assert 1 <= ring_hash(data) < 65536
    assert 0 <= java_string_hash(key) < 2**31
