"""The tasks of a query: how ranges of offsets are cut into them, and the rows of each.

A task fetches the raw entries of its ranges and decodes them where it runs. What it needs travels in its partition,
so that readers of batches and of streams share it. What fetches and decodes is imported there and not before: each
stream has a process on the driver that plans its batches, and starts with the query.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.client.access import Access
from penstock.model.errors import ErrorKind
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.garbage import freeze_modules
from penstock.pipeline.rows.columns import VERSION
from penstock.pipeline.rows.place import Place

from .cluster import KafkaTopic
from .filters import Bounds, passing
from .offsets import Range
from .options import Options

if TYPE_CHECKING:
    from penstock.pipeline.decode.plan import Plan

# A task of Spark costs as much as so many messages; ranges that are smaller share one.
TOGETHER_ROWS: Final = 16_384
TOGETHER_RANGES: Final = 8  # one is asked for after the other


class Split(InputPartition):
    """Messages of a log's partition, and how they are decoded. Kinds differ in their source."""

    def __init__(self, place: Place, include: tuple[str, ...], plan: "Plan | None") -> None:
        super().__init__(None)
        self.place = place
        self.include = include
        self.plan = plan

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The raw messages in the order of their offsets, each once."""
        raise NotImplementedError


class LogSplit(Split):
    """A range of offsets of a log."""

    def __init__(
        self,
        server: Access,
        wanted: Range,
        include: tuple[str, ...],
        *,
        fail_on_data_loss: bool,
        plan: "Plan | None" = None,
        times: Bounds | None = None,
    ) -> None:
        place = Place(wanted.topic, wanted.partition, wanted.ledger, wanted.partitioned)
        super().__init__(place, include, plan)
        self.server = server
        self.wanted = wanted
        self.fail_on_data_loss = fail_on_data_loss
        self.times = times

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The messages, fetched from the server."""
        from penstock.pipeline.rows.rows import decode

        from .fetch import fetch

        frames = fetch(self.server, self.wanted, fail_on_data_loss=self.fail_on_data_loss)
        include = raw_include(self.include, self.plan)
        found = decode(self.place, frames, self.wanted.start, self.wanted.end, include)
        return found if self.times is None else passing(found, self.times)


class DirectSplit(LogSplit):
    """A range of offsets of a topic of Kafka, which the task reads from its brokers."""

    kafka: Mapping[str, str]
    topic: KafkaTopic

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The messages, read from the brokers."""
        try:
            from .direct import read_direct
        except ImportError as error:
            raise PipelineError(
                f"option fetch=direct needs a package on the workers: pip install 'penstock[spark,kafka]' ({error})",
                ErrorKind.NOT_SUPPORTED,
            ) from None
        found = read_direct(
            self.server,
            self.kafka,
            self.topic,
            self.wanted,
            self.place,
            raw_include(self.include, self.plan),
            fail_on_data_loss=self.fail_on_data_loss,
        )
        return found if self.times is None else passing(found, self.times)


class Together(InputPartition):
    """Small ranges that one task reads, one after the other."""

    def __init__(self, splits: Sequence[Split]) -> None:
        super().__init__(None)
        self.splits = tuple(splits)


def splits_for(
    options: Options,
    ranges: Sequence[Range],
    plan: "Plan | None" = None,
    times: Bounds | None = None,
    kafka: Mapping[str, KafkaTopic] = {},
) -> list[InputPartition]:
    """The tasks that read ranges of logs, cut alike each time; of their rows those whose timestamps are within `times`. Topics in
    `kafka` are read from their brokers."""

    def made(piece: Range) -> LogSplit:
        kind = DirectSplit if piece.topic in kafka else LogSplit
        fail = options.fail_on_data_loss
        split = kind(options.server, piece, options.include, fail_on_data_loss=fail, plan=plan, times=times)
        if isinstance(split, DirectSplit):
            split.kafka, split.topic = options.kafka, kafka[piece.topic]
        return split

    pieces = split(ranges, rows_max=options.records_max, pieces_min=options.partitions_min)
    groups = together(pieces, rows_max=options.records_max, pieces_min=options.partitions_min)
    return [
        made(group[0]) if len(group) == 1 else Together([made(each) for each in group]) for group in groups
    ]


def split(ranges: Sequence[Range], *, rows_max: int, pieces_min: int = 1) -> list[Range]:
    """Cut into pieces of at most `rows_max` messages, and into about `pieces_min` of them at least.

    The pieces of a range are of equal size (give or take one). There are fewer than `pieces_min` only if
    there are fewer messages. A pure function, so that a batch that is run again is cut alike.
    """
    total = sum(each.size for each in ranges)
    pieces: list[Range] = []
    for each in ranges:
        wanted = max(-(-each.size // rows_max), -(-each.size * pieces_min // total))
        wanted = min(wanted, each.size)
        cuts = [each.start + each.size * n // wanted for n in range(wanted + 1)]
        pieces += [
            Range(each.topic, each.partition, each.partitioned, each.ledger, start, end)
            for start, end in pairwise(cuts)
        ]
    return pieces


def together(pieces: Sequence[Range], *, rows_max: int, pieces_min: int = 1) -> Iterator[list[Range]]:
    """Ranges in their order, those of one task at a time: small ones share a task of at most `rows_max` messages, as far as
    `pieces_min` tasks are left.

    A pure function, as `split`.
    """
    total = sum(each.size for each in pieces)
    most = min(TOGETHER_ROWS, rows_max, total // pieces_min)
    group: list[Range] = []
    size = 0
    for each in pieces:
        if group and (size + each.size > most or len(group) == TOGETHER_RANGES):
            yield group
            group, size = [], 0
        group.append(each)
        size += each.size
    if group:
        yield group


def read_split(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of one task, their values as the query's options want them.

    Spark makes a task without a range if there is nothing to read.
    """
    if isinstance(partition, Split):
        yield from _rows(partition)
    elif isinstance(partition, Together):
        for each in partition.splits:
            yield from _rows(each)
    freeze_modules("read")


def _rows(split: Split) -> Iterator[pa.RecordBatch]:
    if split.plan is None:
        yield from split.rows()
        return
    from penstock.pipeline.decode.typed import TypedRows

    decoder = TypedRows(split.plan, split.place, keep_version=VERSION in split.include)
    for batch in split.rows():
        yield decoder.apply(batch)


def raw_include(include: tuple[str, ...], plan: "Plan | None") -> tuple[str, ...]:
    """The further columns that decoding starts from: it needs each row's schema version."""
    return include if plan is None or VERSION in include else (*include, VERSION)
