"""Many logs in one call: their bounds, and the position of a subscription in each."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName

from .calls import Caller

_OFFSETS: Final = "/topics/offsets"
_SIZES: Final = "/topics/sizes"
_CURSORS: Final = "/topics/cursors"


class Log(msgspec.Struct, frozen=True, order=True):
    """A topic's partition as it was at one moment: it begins at `earliest`, ends before `latest`, and takes `bytes`.

    A topic that is not `partitioned` is its own partition 0. `at` are the first offsets published since the times
    that were asked for (ms since the epoch), by time. In a log that is not `dense`, some offsets belong to no message.
    """

    topic: str
    partition: int
    partitioned: bool
    ledger: int
    earliest: int
    latest: int
    at: dict[int, int] = {}
    bytes: int = 0
    dense: bool = True

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.partition


class Look(NamedTuple):
    """All logs at one moment, and the topics that are not there; None if nothing changed since `seen`."""

    seen: str
    logs: list[Log] | None
    missing: list[str]


def look(
    client: Caller,
    topics: Sequence[TopicName] = (),
    patterns: Sequence[tuple[NamespaceName, str]] = (),
    *,
    times: Sequence[int] = (),
    seen: str | None = None,
    wait_ms: int = 0,
) -> Look:
    """The logs of `topics` and of those that match `patterns` (regular expressions for local names).

    With `seen`, waits for at most `wait_ms` until there is something new.
    """
    answer = client.call(
        "POST",
        _OFFSETS,
        body={
            "topics": [str(topic) for topic in topics],
            "patterns": [{"namespace": str(namespace), "regex": regex} for namespace, regex in patterns],
            "publish_times": list(times),
            "seen": seen,
            "wait_ms": wait_ms,
        },
    )
    if not answer["changed"]:
        return Look(answer["seen"], None, [])
    logs = [
        Log(
            topic["topic"],
            partition,
            topic["partitioned"],
            log["ledger"],
            log["earliest"],
            log["latest"],
            dict(zip(times, log.get("at", ()), strict=True)),
            log["bytes"],
            log.get("dense", log["ledger"] >= 0),
        )
        for topic in answer["topics"]
        for partition, log in enumerate(topic["partitions"])
    ]
    return Look(answer["seen"], logs, answer["missing"])


class Size(NamedTuple):
    """`total` bytes up to a log's end; `bytes` of them up to the offset `end`."""

    total: int
    bytes: int
    end: int


def sizes(client: Caller, ranges: Sequence[tuple[str, int, int, int | None]]) -> list[Size]:
    """How much there is in logs from an offset on, and how far a number of bytes goes, but an entry at least:
    `(topic, partition, offset, bytes)`."""
    body = [dict(zip(("topic", "partition", "offset", "bytes"), each, strict=True)) for each in ranges]
    answer = client.call("POST", _SIZES, body={"ranges": body})
    return [Size(each["total"], each["bytes"], each["end"]) for each in answer["ranges"]]


class Mark(NamedTuple):
    """Everything below `offset` of a log is done with."""

    topic: str
    partition: int
    ledger: int
    offset: int


def set_marks(
    client: Caller, subscription: str, marks: Sequence[Mark], *, exact: bool = False
) -> Mapping[Mark, str]:
    """Move a durable subscription after a reader; created if missing, moved back only if `exact`.

    Returns what could not be moved, and why.
    """
    answer = client.call(
        "POST",
        _CURSORS,
        body={"subscription": subscription, "marks": [mark._asdict() for mark in marks], "exact": exact},
    )
    results = answer["marks"]
    if len(results) != len(marks):
        raise PenstockError(ErrorKind.INTERNAL, f"{client.url} answers {len(results)} marks of {len(marks)}")
    return {
        mark: result["error"] for mark, result in zip(marks, results, strict=True) if result["offset"] is None
    }
