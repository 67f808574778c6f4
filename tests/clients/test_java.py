"""The data path of the official Java client. What is expected is what it finds with a Pulsar 4.0.8, unless said."""

from typing import Any, Final

import pytest
from tests.clients.users import User

SIX: Final = ["m0", "m1", "m2", "m3", "m4", "m5"]
REFUSED: Final = "IncompatibleSchemaException"

PRODUCING: Final[dict[str, Any]] = {
    "sync": {
        "entries": [0, 1, 2],
        "value": "m0",
        "key": "k0",
        "ordering": 1,
        "properties": {"n": "0"},
        "event": 1000,
        "sequence": 10,
        "producer": "p",
        "topic": True,
    },
    "async": True,
    "batched": {"same": True, "last": "0:-1:9"},
    "batchedByKey": 30,
    "chunked": {"equal": True, "next": "small"},
    "compressed": {"NONE": True, "LZ4": True, "ZLIB": True, "ZSTD": True, "SNAPPY": True},
    "encrypted": True,
    "partitioned": {"count": 40, "one each": True, "partitions": 4},
    "delayed": {"values": ["now", "later"], "early": False},
    "deduplicated": {"last": [-1, 4], "values": SIX[:5], "more": True},
    "exclusive": {"refused": "ProducerFencedException", "early": False},
    "intercepted": ["before", "acknowledged"],
    "transaction": "PulsarClientException",
    "otherSchema": {"first": 1, "without version": True, "text": "none", "bytes": "none"},
    "tooLarge": "InvalidMessageException",
}

CONSUMING: Final[dict[str, Any]] = {
    "exclusive": {"refused": "ConsumerBusyException", "first": SIX[:2], "second": ["m2"], "more": True},
    "shared": {"all": 20, "count": 20},
    "keyShared": {"count": 60, "single": True, "owners": "babbbaaabbbaaaabbaab"},
    "sticky": {"all": 20, "refused": "ConsumerAssignException"},
    "negative": {"rest": ["m1"], "again": "m0", "count": 1, "more": True},
    "ackTimeout": 1,
    "deadLetter": {"tries": 3, "dead": "m0", "origin": True, "more": True},
    "retryLetter": {"times": ["null", "1", "2"], "dead": "m0"},
    "seek": {"id": "m3", "earliest": "m0", "latest": True, "time": "m0", "inclusive": "m2"},
    "batchReceive": [10, 2],
    "cumulative": SIX[4:],
    # Pulsar without acknowledgmentAtBatchIndexLevelEnabled sends the whole batch again.
    "batchIndex": {"again": [1, 4, 5], "reconnected": [1, 4, 5], "sought": "m2"},
    "batchWhole": {"values": SIX[:4], "more": True},
    "multiTopics": True,
    "pattern": True,
    "unsubscribe": SIX[:2],
    "terminated": {"end": True, "refused": "TopicTerminatedException"},
}

READING: Final[dict[str, Any]] = {
    "starts": {
        "earliest": SIX[:5],
        "after": SIX[3:5],
        "with": SIX[2:5],
        "latest": [],
        "last": SIX[4:5],
        "an hour": SIX[:5],
    },
    "withinBatch": SIX[3:],
    "hashRanges": {"all": 20, "both": 0, "each": True},
    "partitioned": [9, 9],
    "tableView": [{"k0": "v3", "k1": "v4", "k2": "v5"}, "new", 3],
    "lastIds": [True, False],
}

TYPED: Final[dict[str, Any]] = {
    "avro": 15450,
    "json": 15450,
    "protobuf": {"avro": "text", "native": "text"},
    "keyValue": {"SEPARATED": "k 1545 true", "INLINE": "k 1545 false"},
    "automatic": {"typed": "UA 1545 AVRO", "raw": "UA 1545 AVRO", "wrong": "SchemaSerializationException"},
    "evolved": {"new": "1545 null 2 ORD", "old": "1545 2"},
    "renamed": {"renamed": "none", "incompatible": REFUSED, "consumer": REFUSED, "read": 1545},
    "primitives": {
        "int": -5,
        "long": 1 << 40,
        "double": 2.5,
        "bool": True,
        "instant": "1970-01-01T00:00:05.000000007Z",
    },
}

# Confluent's Java client, and Flink's coder of Avro.
REGISTRY: Final[dict[str, Any]] = {
    "calls": [True, False, 409, "NONE", 2, [1, 2], False],
    "coder": {"drink": "tea", "schema": True, "magic": 0},
}


@pytest.mark.parametrize("step", PRODUCING)
def test_producing(java: User, step: str) -> None:
    assert java.run(f"Producing.{step}") == PRODUCING[step]


@pytest.mark.parametrize("step", CONSUMING)
def test_consuming(java: User, step: str) -> None:
    assert java.run(f"Consuming.{step}") == CONSUMING[step]


def test_failover(java: User) -> None:
    found = java.run("Consuming.failover")
    notices = found.pop("told")
    assert found == {"first": SIX[:2], "idle": True, "second": SIX[2:4]}
    assert [one for one in notices if one.startswith("a")] == ["a active"]
    assert [one for one in notices if one.startswith("b")] == ["b inactive", "b active"]


@pytest.mark.parametrize("step", READING)
def test_reading(java: User, step: str) -> None:
    assert java.run(f"Reading.{step}") == READING[step]


@pytest.mark.parametrize("step", TYPED)
def test_schemas(java: User, step: str) -> None:
    assert java.run(f"Typed.{step}") == TYPED[step]


@pytest.mark.parametrize("step", REGISTRY)
def test_registry(java: User, step: str) -> None:
    assert java.run(f"Registry.{step}") == REGISTRY[step]
