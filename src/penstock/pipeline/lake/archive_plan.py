"""What is archived, what the next commit brings, planned from the table and the logs, and what is reported. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from penstock.client.access import Access
from penstock.model.errors import ErrorKind
from penstock.pipeline.errors import DataLoss, PipelineError
from penstock.pipeline.http.logs import Log
from penstock.pipeline.options import shown
from penstock.pipeline.rows.columns import INCLUDABLE
from penstock.pipeline.source.limits import share

from .options import check_format
from .snapshot import Snapshot
from .store import Location
from .values import Position

ROWS_MAX: Final = 2_000_000  # of a commit: a few hundred MB, a few seconds
EVERY_MS: Final = 10_000  # between commits while the topic grows: each makes a file or more

Key = tuple[str, int]


class ArchiveSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is archived, from where, into which table.

    `table` is a path or a URL, whose object store has the options `storage`.
    One of `topics` and `pattern` (as in `subscribePattern`). `start` is where partitions begin of which the table
    has nothing: `earliest` or, unless `once`, `latest`. `decode` and `reading` (further options of the source:
    readerSchema, mode, …) make typed columns of the values; `none` keeps the bytes. `subscription`: by default `archive-` and the
    table's name; "" for none. `once` stops when everything that was there at the start is archived.
    """

    server: Access
    table: str
    topics: tuple[str, ...] = ()
    pattern: str = ""
    kind: str = "delta"
    partition_by: str = "day(timestamp)"
    start: str = "earliest"
    decode: str = "none"
    include: tuple[str, ...] = tuple(INCLUDABLE)
    reading: dict[str, str] = {}
    subscription: str | None = None
    once: bool = True
    every_ms: int = EVERY_MS
    rows_max: int = ROWS_MAX
    partitions_min: int = 1
    compact: bool = True
    target_bytes: int = 0  # 0: the sink's own
    storage: dict[str, str] = {}

    def __post_init__(self) -> None:
        check_format(self.kind)

    def __repr__(self) -> str:
        return shown(self, "storage")

    @property
    def follower(self) -> str:
        """The subscription's name."""
        if self.subscription is not None:
            return self.subscription
        return f"archive-{Location.of(self.table).name}"


class Step(msgspec.Struct, frozen=True):
    """What one commit reads of a partition: the offsets `start .. end-1`."""

    log: Log
    start: int
    end: int

    @property
    def key(self) -> Key:
        return self.log.key


def plan(
    spec: ArchiveSpec,
    now: Snapshot | None,
    logs: Sequence[Log],
    ends: Mapping[Key, int] | None,
    starts: Mapping[Key, int] = {},
) -> list[Step]:
    """What the next commit brings: from where the table ends, or `starts`, up to `ends`.

    Raises DataLoss where messages are gone that the table has not, and PipelineError where a topic was made again.
    """
    begins: dict[Key, int] = {}
    latest: dict[Key, int] = {}
    for log in logs:
        key = log.key
        if ends is not None and key not in ends:
            continue  # came later: the next time
        position = now.position(log.topic, log.partition) if now is not None else None
        begins[key] = _begin(log, position, starts.get(key, log.earliest))
        latest[key] = log.latest if ends is None else min(log.latest, ends[key])
    backlog = {key: max(0, latest[key] - begin) for key, begin in begins.items()}
    takes = share(backlog, spec.rows_max, sum(begins.values()))
    return [Step(log, begins[key], begins[key] + takes[key]) for log in logs if takes.get(key := log.key, 0)]


def _begin(log: Log, position: Position | None, start: int) -> int:
    where = f"{log.topic}, partition {log.partition}"
    if position is None:
        return max(start, log.earliest)
    if position.ledger not in (-1, log.ledger):
        raise PipelineError(
            f"{where}: the topic was deleted and made anew since it was archived; archive it into another table",
            ErrorKind.ALREADY_EXISTS,
        )
    if position.end < log.earliest:
        raise DataLoss(
            f"{where}: the archive ends at {position.end}, and the log begins at {log.earliest}; what lay between"
            " is gone"
        )
    if position.end > log.latest:
        raise DataLoss(f"{where}: the archive ends at {position.end}, after the log's end {log.latest}")
    return position.end


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that was committed. `lag`: messages that are still to come, as far as is known."""

    batch: int
    rows: int
    rows_total: int
    lag: int
    seconds: float

    @property
    def rate(self) -> float:
        """Rows a second of this batch."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0


class Report(msgspec.Struct):
    """What was done in all."""

    batches: int = 0
    rows: int = 0
