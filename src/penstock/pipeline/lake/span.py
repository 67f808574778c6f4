"""One read of archive and live log: option `archive` of the source `penstock`.

What the table has comes from the table, the rest from the server; a message that both have comes once. Where
retention has deleted messages that are archived, the log still begins where the archive does.
"""

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.pipeline.decode.plan import Plan
from penstock.pipeline.errors import DataLoss, PipelineError
from penstock.pipeline.http.logs import Log
from penstock.pipeline.rows import columns
from penstock.pipeline.rows.place import Place
from penstock.pipeline.source.offsets import Range, ranges
from penstock.pipeline.source.query import TopicReader
from penstock.pipeline.source.tasks import Split, raw_include, splits_for

from .options import snapshot_of
from .slices import Slice, offset_at, plan_slices, read_slice
from .store import Location
from .values import OffsetRange, Position


class ArchivedSplit(Split):
    """One task: a range of offsets that the table has."""

    def __init__(self, part: Slice, columns: pa.Schema, include: tuple[str, ...], plan: Plan | None) -> None:
        super().__init__(Place(part.piece.topic, part.piece.partition, -1), include, plan)
        self.part = part
        self.columns = columns

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The messages, with the columns of live ones."""
        with self.part.folder.reached():
            yield from read_slice(self.part, self.columns)


class Span:
    """An archive as it is when a query is planned, beside the logs."""

    def __init__(self, folder: Location, *, fail_on_data_loss: bool = True) -> None:
        self._folder = folder
        self._now = snapshot_of(self._folder)
        self._fail = fail_on_data_loss
        self._begins: dict[tuple[str, int], int] = {}

    def reach_back(self, logs: Sequence[Log]) -> list[Log]:
        """The logs as if nothing archived had been deleted, and the offsets of their times."""
        found = []
        for log in logs:
            self._begins[log.topic, log.partition] = log.earliest
            position = self._position(log.topic, log.partition, log.ledger)
            if position is not None and position.first < log.earliest:
                at = {ms: self._at(log, ms, offset) for ms, offset in log.at.items()}
                log = msgspec.structs.replace(log, earliest=position.first, at=at)
            found.append(log)
        return found

    def cut(self, wanted: Sequence[Range]) -> tuple[list[OffsetRange], list[Range]]:
        """What of the ranges comes from the table, and what from the log.

        Raises DataLoss where neither has some of it; without `fail_on_data_loss` that is left out.
        """
        archived: list[OffsetRange] = []
        live: list[Range] = []
        for each in wanted:
            begin = self._begins[each.topic, each.partition]
            position = self._position(each.topic, each.partition, each.ledger)
            first, end = (position.first, position.end) if position is not None else (each.start, each.start)
            low, high = max(each.start, first), min(each.end, end)
            if low < high:
                archived.append(OffsetRange(each.topic, each.partition, low, high))
                parts = [(each.start, low), (high, each.end)]
            else:
                parts = [(each.start, each.end)]
            for start, stop in parts:
                if start >= stop:
                    continue
                if start < begin and self._fail:
                    raise DataLoss(
                        f"{each.topic}, partition {each.partition}: offsets {start} to {min(begin, stop) - 1} are"
                        f" neither in the archive {self._folder} nor in the log any more"
                    )
                if (start := max(start, begin)) < stop:
                    live.append(msgspec.structs.replace(each, start=start, end=stop))
        return archived, live

    def splits(
        self,
        pieces: Sequence[OffsetRange],
        columns: pa.Schema,
        rows_max: int,
        *,
        include: tuple[str, ...] = (),
        plan: Plan | None = None,
    ) -> list[ArchivedSplit]:
        """The tasks that read raw `columns` from the table and decode them by `plan`.

        Raises PipelineError where it was archived without some column, or with its values decoded.
        """
        for field in columns if pieces else ():
            if field.name not in self._now.schema.names:
                raise PipelineError(f"option archive: the table {self._folder} has no column {field.name}")
            kind = self._now.schema.field(field.name).type
            if field.name == "value" and kind != field.type:
                raise PipelineError(
                    f"option archive: the table {self._folder} keeps values as {kind}, not as bytes"
                )
        parts = plan_slices(self._folder, self._now, pieces, rows_max)
        return [ArchivedSplit(part, columns, include, plan) for part in parts]

    def _at(self, log: Log, ms: int, live: int) -> int:
        """The first offset at a time: where even the log's first message is late enough, it may be archived."""
        if live > log.earliest:
            return live
        found = offset_at(self._folder, self._now, log.topic, log.partition, ms)
        return live if found is None else min(live, found)

    def _position(self, topic: str, partition: int, ledger: int) -> Position | None:
        position = self._now.position(topic, partition)
        if position is not None and position.ledger not in (-1, ledger):
            raise PipelineError(
                f"option archive: the table {self._folder} archives an earlier topic {topic}, which was deleted"
            )
        return position


class ArchiveReader(TopicReader):
    """Reads what the archive has from its table, and the rest from the server."""

    def tasks(self, logs: Sequence[Log]) -> list[InputPartition]:
        """The tasks over table and logs."""
        options, plan = self._options, self._plan
        folder = Location.of(options.archive, options.storage)
        span = Span(folder, fail_on_data_loss=options.fail_on_data_loss)
        reached = span.reach_back(logs)
        wanted = ranges(reached, options.start, options.end, fail_on_data_loss=options.fail_on_data_loss)
        archived, live = span.cut(wanted)
        raw = columns.arrow_schema(raw_include(options.include, plan))
        old = span.splits(archived, raw, options.records_max, include=options.include, plan=plan)
        return [*old, *splits_for(options, live, plan, kafka=self._kafka)]
