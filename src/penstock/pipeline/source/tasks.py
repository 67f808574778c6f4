"""The tasks of a query: how ranges of offsets are cut into them, and the rows of each.

A task fetches the raw entries of one range and decodes them where it runs. What it needs travels in its partition,
so that readers of batches and of streams share it.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.client.access import Access
from penstock.pipeline.decode.plan import Plan
from penstock.pipeline.decode.typed import VERSION, TypedRows
from penstock.pipeline.rows.rows import Place, decode

from .fetch import fetch
from .offsets import Range
from .options import Options


class Split(InputPartition):
    """One task: a range of offsets and how to read it."""

    def __init__(
        self,
        server: Access,
        wanted: Range,
        include: tuple[str, ...],
        *,
        fail_on_data_loss: bool,
        plan: Plan | None = None,
    ) -> None:
        super().__init__(None)
        self.server = server
        self.wanted = wanted
        self.include = include
        self.fail_on_data_loss = fail_on_data_loss
        self.plan = plan


class Elsewhere(InputPartition):
    """A task that reads from somewhere else than the log, like an archive, and knows itself from where.

    Its messages are decoded as those of the log.
    """

    def __init__(self, place: Place, include: tuple[str, ...], plan: Plan | None) -> None:
        super().__init__(None)
        self.place = place
        self.include = include
        self.plan = plan

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The raw messages in the order of their offsets, each once."""
        raise NotImplementedError


def splits_for(options: Options, ranges: Sequence[Range], plan: Plan | None = None) -> list[InputPartition]:
    """The tasks that read ranges of logs, cut alike each time."""
    pieces = split(ranges, rows_max=options.records_max, pieces_min=options.partitions_min)
    return [
        Split(options.server, piece, options.include, fail_on_data_loss=options.fail_on_data_loss, plan=plan)
        for piece in pieces
    ]


def split(ranges: Sequence[Range], *, rows_max: int, pieces_min: int = 1) -> list[Range]:
    """Cut into pieces of at most `rows_max` messages, and into about `pieces_min` of them at least.

    The pieces of a range are of equal size (give or take one). There are fewer than `pieces_min` only where
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


def read_split(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of one task; Spark makes one without a range of its own where there is nothing to read."""
    if isinstance(partition, Elsewhere):
        yield from _typed(partition.rows(), partition.place, partition.include, partition.plan)
    if not isinstance(partition, Split):
        return
    wanted = partition.wanted
    place = Place(wanted.topic, wanted.partition, wanted.ledger, wanted.partitioned)
    frames = fetch(partition.server, wanted, fail_on_data_loss=partition.fail_on_data_loss)
    include = raw_include(partition.include, partition.plan)
    rows = decode(place, frames, wanted.start, wanted.end, include)
    yield from _typed(rows, place, partition.include, partition.plan)


def raw_include(include: tuple[str, ...], plan: Plan | None) -> tuple[str, ...]:
    """The further columns that decoding starts from: it needs each row's schema version."""
    return include if plan is None or VERSION in include else (*include, VERSION)


def _typed(
    rows: Iterable[pa.RecordBatch], place: Place, include: tuple[str, ...], plan: Plan | None
) -> Iterator[pa.RecordBatch]:
    """Messages as the query's options want their values."""
    if plan is None:
        yield from rows
        return
    decoder = TypedRows(plan, place, keep_version=VERSION in include)
    for batch in rows:
        yield decoder.apply(batch)
