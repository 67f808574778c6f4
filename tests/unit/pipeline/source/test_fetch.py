"""Fetching a range against a scripted server."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any, NamedTuple

import pytest

from penstock.client.access import Access
from penstock.client.http import RemoteError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.errors import DataLoss
from penstock.pipeline.http.retry import AWAY_S, BACKOFF_MAX_S
from penstock.pipeline.source.fetch import ATTEMPTS_MAX, fetch
from penstock.pipeline.source.offsets import Range

SERVER = Access(url="http://127.0.0.1:9")
WANTED = Range("persistent://public/default/t", 0, False, 5, 10, 40)
SIZE = 24 + 3


class Stream(NamedTuple):
    ledger: int
    body: BytesIO
    earliest: int = -1
    latest: int = -1
    dense: bool = True

    def read(self, size: int) -> bytes:
        return self.body.read(size)


class Scripted:
    """Entries of ten messages each; every item of `script` is one answer: bytes to let through, or an error."""

    def __init__(self, *script: int | Exception, first: int = 0, last: int = 100, ledger: int = 5) -> None:
        self.script = list(script)
        self.first, self.last, self.ledger = first, last, ledger
        self.asked: list[tuple[int, int]] = []
        self.slept: list[float] = []

    @contextmanager
    def entries(
        self, server: Access, topic: TopicName, partition: int, start: int, end: int
    ) -> Iterator[Stream]:
        self.asked.append((start, end))
        cut = self.script.pop(0) if self.script else None
        if isinstance(cut, Exception):
            raise cut
        body = b"".join(
            struct.pack(">QIQI", at, 10, at, 3) + b"abc"
            for at in range(self.first, self.last, 10)
            if at + 10 > start and at < end
        )
        yield Stream(self.ledger, BytesIO(body[:cut]))

    def read(self, wanted: Range = WANTED, **options: Any) -> list[int]:
        clock = {"sleep": self.slept.append, "clock": lambda: sum(self.slept)}
        found = fetch(SERVER, wanted, entries=self.entries, **clock, **options)
        return [frame.offset for frame in found]


def test_a_range_may_begin_and_end_within_entries() -> None:
    server = Scripted()
    assert server.read(Range(WANTED.topic, 0, False, 5, 13, 27)) == [10, 20]
    assert server.asked == [(13, 27)]


def test_it_goes_on_where_it_broke() -> None:
    server = Scripted(SIZE + 5, PenstockError(ErrorKind.UNAVAILABLE, "gone"), 0, SIZE)
    assert server.read() == [10, 20, 30]
    assert server.asked == [(10, 40), (20, 40), (20, 40), (20, 40), (30, 40)]


def test_it_gives_up() -> None:
    server = Scripted(*[PenstockError(ErrorKind.UNAVAILABLE, "gone")] * 99)
    with pytest.raises(PenstockError, match="gone"):
        server.read()
    assert AWAY_S - BACKOFF_MAX_S < sum(server.slept) <= AWAY_S
    assert len(server.asked) == len(server.slept) + 1


def test_it_outlasts_a_restart_of_a_minute() -> None:
    server = Scripted(SIZE, *[PenstockError(ErrorKind.UNAVAILABLE, "away")] * 34)
    assert server.read() == [10, 20, 30]
    assert sum(server.slept) > 60


def test_refusals_are_final() -> None:
    server = Scripted(RemoteError(404, 40401, "Topic not found"))
    with pytest.raises(RemoteError, match="Topic not found"):
        server.read()
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("server", "said", "read"),
    [
        (Scripted(first=20), "offsets 10 to 19 are gone", [20, 30]),
        (Scripted(last=30), "the log ends at 30, before 40", [10, 20]),
        (Scripted(ledger=6), "deleted and made anew", []),
    ],
)
def test_what_is_gone_is_said(server: Scripted, said: str, read: list[int]) -> None:
    with pytest.raises(DataLoss, match=said):
        server.read()
    assert len(server.slept) <= ATTEMPTS_MAX, "it is not waited for"
    assert server.read(fail_on_data_loss=False) == read


class Cluster(Scripted):
    """A log of a cluster between two offsets, in which `missing` entries are markers of the cluster's own."""

    def __init__(self, *missing: int, earliest: int, latest: int, ledger: int = -1) -> None:
        super().__init__(ledger=ledger)
        self.missing, self.earliest, self.latest = missing, earliest, latest

    @contextmanager
    def entries(
        self, server: Access, topic: TopicName, partition: int, start: int, end: int
    ) -> Iterator[Stream]:
        self.asked.append((start, end))
        body = b"".join(
            struct.pack(">QIQI", at, 10, at, 3) + b"abc"
            for at in range(self.earliest, self.latest, 10)
            if at + 10 > start and at < end and at not in self.missing
        )
        yield Stream(self.ledger, BytesIO(body), self.earliest, self.latest, dense=False)


MANY = Range(WANTED.topic, 0, False, -1, 10, 40)


@pytest.mark.parametrize(
    ("missing", "read"), [((), [10, 20, 30]), ((20,), [10, 30]), ((10, 30), [20]), ((10, 20, 30), [])]
)
@pytest.mark.parametrize("wanted", [MANY, WANTED], ids=["many ledgers", "one ledger"])
def test_markers_of_a_cluster_are_no_loss(missing: tuple[int, ...], read: list[int], wanted: Range) -> None:
    server = Cluster(*missing, earliest=0, latest=100, ledger=wanted.ledger)
    assert server.read(wanted) == read
    assert len(server.asked) == 1


@pytest.mark.parametrize("wanted", [MANY, WANTED], ids=["many ledgers", "one ledger"])
def test_what_a_cluster_does_not_keep_is_lost(wanted: Range) -> None:
    with pytest.raises(DataLoss, match="offsets 10 to 19 are gone"):
        Cluster(earliest=20, latest=100, ledger=wanted.ledger).read(wanted)
    with pytest.raises(DataLoss, match="the log ends at 30, before 40"):
        Cluster(earliest=0, latest=30, ledger=wanted.ledger).read(wanted)


def test_a_server_that_repeats_itself() -> None:
    class Repeating(Scripted):
        @contextmanager
        def entries(
            self, server: Access, topic: TopicName, partition: int, start: int, end: int
        ) -> Iterator[Stream]:
            self.asked.append((start, end))
            yield Stream(5, BytesIO((struct.pack(">QIQI", 10, 10, 1, 3) + b"abc") * 2))

    server = Repeating()
    with pytest.raises(PenstockError, match="the server sent offset 10 instead of 20"):
        server.read()
