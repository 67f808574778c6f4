"""Computes a range of time again: the same steps over the messages of that time, as one batch.

Rows belong to the range by their time: a column of a table, the event time of a topic's messages. Of a table, the
rows of the range are replaced in one commit (`column >= from AND column < to`), so that a backfill that is repeated leaves
the same table. Messages published somewhat earlier and later are read too (the margin), as rows of the range may be made of
them. Nothing here touches the pipeline's checkpoint or the writers of its sinks; dead letters are counted, and not
published again.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from penstock.model.errors import PenstockError
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.lake.partitioning import parse
from penstock.pipeline.source.marks import Key
from penstock.pipeline.spec.options import table_options, topic_options
from penstock.pipeline.spec.spec import Sink, Source, Spec, Step
from penstock.pipeline.spec.times import duration_ms, time_ms
from penstock.pipeline.versions import map_in_arrow
from penstock.pipeline.zones import SESSION_ZONE
from penstock.pipeline.zones import UTC as UTC_NAME

from .bounded import between, check_kept, logs_of
from .checks import DEAD
from .failures import at_sink, one_sentence, sink_place
from .lateness import emits_later, watermark_ms, windows_in
from .outputs import collect_outputs
from .preflight import last_marks
from .state import folder_of
from .views import View, build_views, named, session_for
from .writing import RESULT, commit, row_writer

DAY_MS: Final = 86_400_000


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """The range to compute again. Times are ms since the epoch, `start` included and `end` not; `columns` name the time of each
    sink."""

    start: int
    end: int
    margin: int
    columns: dict[str, str]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Rows written by sink, the predicate of those that were replaced in each table, and rows that are dead letters."""

    rows: dict[str, int]
    replaced: dict[str, str]
    dead_letters: int


def plan_backfill(
    spec: Spec,
    start: str | int | datetime,
    end: str | int | datetime,
    *,
    sinks: Iterable[str] = (),
    columns: Mapping[str, str] = {},
    margin: str = "",
    append_topics: bool = False,
) -> tuple[Spec, Backfill]:
    """The spec with the `sinks` that are written (by default all), and the plan.

    `columns`: the time of a sink, by default the one that its table is partitioned by the days or months of. Raises
    PipelineError for a range whose rows cannot be known, and for topics unless `append_topics`.
    """
    for name in (*sinks, *columns):
        if name not in spec.sinks:
            raise PipelineError(f"{spec.file}: there is no sink {name!r}; there are {', '.join(spec.sinks)}")
    for name, source in spec.sources.items():
        with named(spec, f"[sources.{name}]"):
            if source.format:
                raise PipelineError(
                    "format: a backfill reads topics, by the times at which messages were published"
                )
    chosen = {name: sink for name, sink in spec.sinks.items() if not sinks or name in set(sinks)}
    times = {}
    for name, sink in chosen.items():
        with named(spec, f"[sinks.{name}]"):
            if sink.foreign:
                raise PipelineError(
                    "a backfill replaces ranges of tables with a path: choose other sinks with --sink"
                )
            if sink.archive:
                raise PipelineError(
                    "archive: its rows are the topic's messages, which a backfill does not replace: choose other sinks with --sink"
                )
            if not sink.path and not append_topics:
                raise PipelineError(
                    "a topic keeps its messages, so the rows of the range would be there twice: choose other sinks with"
                    " --sink, or say --append-topics"
                )
            times[name] = columns.get(name) or _time_of(sink)
            if sink.keys and times[name] not in sink.keys:
                raise PipelineError(
                    f"keys: a row of the range may replace one outside of it, as {times[name]} is not among the keys"
                )
    keyed = [name for name, sink in chosen.items() if sink.keys]
    if keyed and len(keyed) < len(chosen):
        raise PipelineError(
            f"{spec.file}: tables with keys ({', '.join(keyed)}) are computed from all messages until now, and the others are"
            " not: choose the ones or the others with --sink"
        )
    try:
        first, until = time_ms(start), time_ms(end)
        around = duration_ms(margin) if margin else default_margin(spec)
    except ValueError as error:
        raise PipelineError(f"the range: {error}") from None
    if first >= until:
        raise PipelineError(
            f"the range ends at {_iso(until)}, and begins at {_iso(first)}, which is not before"
        )
    plan = Backfill(start=first, end=until, margin=around, columns=times)
    return msgspec.structs.replace(spec, sinks=chosen), plan


def default_margin(spec: Spec) -> int:
    """A day, for windows and clocks, and the longest delay of a watermark, in ms."""
    views: list[Source | Step] = [*spec.sources.values(), *spec.steps]
    delays = [duration_ms(view.watermark.delay) for view in views if view.watermark]
    return DAY_MS + max(delays, default=0)


def check_backfill(spec: Spec, plan: Backfill) -> None:
    """Raises PipelineError if messages of the range may be gone, or if the pipeline is still to read some of them: it would
    write their rows again."""
    check_kept(spec, max(0, plan.start - plan.margin))
    if all(sink.keys or not sink.path for sink in spec.sinks.values()):
        return
    folder = folder_of(spec)
    owner, reached = folder.owner(), last_marks(folder).spots
    until = plan.end + plan.margin
    for name, source in spec.sources.items():
        begin = source.start if owner is None or owner.start is None else owner.start
        for log in logs_of(spec, name, until):
            spot = reached.get(Key(*log.key))
            there = log.at[until]
            if there > (log.earliest if spot is None else spot.offset) and not (
                spot is None and _begins_behind(begin, until)
            ):
                raise PipelineError(
                    f"{spec.file}: [sources.{name}]: {log.topic}, partition {log.partition}: the pipeline is still to read"
                    f" messages of the range, or of the margin of {plan.margin / 1000:,.0f} s behind it, and would write their"
                    " rows again: run it first, name a smaller margin, or let it begin behind them with reset"
                )


def run_backfill(spec: Spec, spark: SparkSession, plan: Backfill) -> Report:
    """Read, compute, write. Raises PipelineError; a table then has either the rows before or those after."""
    keyed = any(sink.keys for sink in spec.sinks.values())
    with _stopped(spec) if keyed else nullcontext(lambda: None) as confirm:
        session = session_for(spec, spark)
        until = None if keyed else plan.end + plan.margin
        views = build_views(
            spec, session, None, between(spec, session, max(0, plan.start - plan.margin), until)
        )
        _check_emitted(spec, plan, views)
        return _written(spec, plan, views, confirm)


@contextmanager
def _stopped(spec: Spec) -> Iterator[Callable[[], None]]:
    """Keep the pipeline from running: a row that it changed during the backfill would be reverted. Yields a function that raises
    PipelineError if the pipeline has been started elsewhere all the same."""
    folder = folder_of(spec)
    if folder.in_use():
        raise PipelineError(
            f"{spec.file}: a table with keys is not computed again while the pipeline runs: stop it before"
        )
    with folder.locked():
        try:
            yield folder.confirm
        finally:
            with suppress(PenstockError):  # of a store that is away
                folder.vacate()


def _check_emitted(spec: Spec, plan: Backfill, views: Mapping[str, View]) -> None:
    """Raises PipelineError if the pipeline's state may hold windows of the range, whose rows it will add."""
    marked: list[Source | Step] = [*spec.sources.values(), *spec.steps]
    if not any(view.watermark for view in marked):
        return
    folder = folder_of(spec)
    last = folder.last_committed()
    for name, sink in spec.sinks.items():
        frame = views[sink.input].frame
        if last < 0 or sink.keys or not sink.path or not emits_later(frame):
            continue
        windows = windows_in(frame)
        behind = sum(window.size for window in windows) // 1000 if windows else plan.margin
        reached = watermark_ms(folder, last)
        if reached < plan.end + behind:
            raise PipelineError(
                f"{spec.file}: [sinks.{name}]: the pipeline may still hold rows of the range back, and would add them again: its"
                f" watermark is at {_iso(reached)}, and windows of the range end until {_iso(plan.end + behind)}: run it until"
                f" the watermark has passed them, or let the range end at {_iso(max(0, reached - behind))} or before"
            )


def _written(spec: Spec, plan: Backfill, views: Mapping[str, View], confirm: Callable[[], None]) -> Report:
    """Compute, and commit unless `confirm` raises."""
    from penstock.pipeline.lake.sink import BatchWriter
    from penstock.pipeline.sink.writer import TopicWriter

    outputs = collect_outputs(spec, views)
    frame: DataFrame = outputs.frame
    dead = Observation("backfill")
    if outputs.letters:
        frame = frame.observe(dead, f.count_if(f.col(DEAD).isNotNull()).alias("rows"))
    sinks: dict[str, tuple[Any, tuple[str, ...]]] = {}
    columns: list[Column] = []
    replaced: dict[str, str] = {}
    for name, sink in spec.sinks.items():
        column = outputs.columns[name]
        rows: Any = frame.schema[column].dataType
        with named(spec, f"[sinks.{name}]"):
            limits = bounds(spec, rows, plan, plan.columns[name])
        time = f.col(f"{column}.`{plan.columns[name]}`")
        low, high = (f.lit(text).cast(rows[plan.columns[name]].dataType) for text in limits)
        columns.append(f.when((time >= low) & (time < high), f.col(column)).alias(column))
        with at_sink(f"{spec.file}: {sink_place(spec, name)}"):
            if sink.path:
                quoted = plan.columns[name].replace("`", "``")
                replaced[name] = f"`{quoted}` >= '{limits[0]}' AND `{quoted}` < '{limits[1]}'"
                options = table_options(spec, sink)
                writer: Any = BatchWriter(options, rows, overwrite=False, replaces=replaced[name])
            else:
                writer = TopicWriter(topic_options(spec, sink), rows, overwrite=False)
        sinks[name] = writer, (column,)
    write = row_writer(sinks, {name: sink_place(spec, name) for name in sinks})
    with one_sentence(spec):
        found = map_in_arrow(frame.select(*columns), write, RESULT).collect()
    writers = {name: writer for name, (writer, _) in sinks.items()}
    nothing = {name: writers[name].nothing("", 0) for name in replaced}
    confirm()
    commit(writers, found, 0, nothing, lambda name: at_sink(sink_place(spec, name)))
    counts = dict.fromkeys(spec.sinks, 0)
    for row in found:
        counts[row["sink"]] += pickle.loads(row["message"]).rows  # noqa: S301 - of our own tasks
    letters = int(dead.get["rows"]) if outputs.letters else 0
    return Report(rows=counts, replaced=replaced, dead_letters=letters)


def _time_of(sink: Sink) -> str:
    """The column that says when a row was. Raises PipelineError."""
    if not sink.path:
        if sink.event_time:
            return "event_time"
        raise PipelineError("which rows are of the range is not known: event_time is missing")
    found = {by.source for by in parse(",".join(sink.partition_by)) if by.source}
    if len(found) == 1:
        return found.pop()
    raise PipelineError(
        "which rows are of the range is not known: name the column of their time with --column, or partition_by ="
        " ['day(COLUMN)']"
    )


def bounds(spec: Spec, rows: StructType, plan: Backfill, column: str) -> tuple[str, str]:
    """The range as texts of a column's type. Raises PipelineError."""
    if column not in rows.names:
        raise PipelineError(f"there is no column {column!r}; there are {', '.join(rows.names)}")
    kind = rows[column].dataType.simpleString()
    if kind == "timestamp":
        return _iso(plan.start), _iso(plan.end)
    if kind == "bigint" and column == "event_time":  # of a topic: ms
        return str(plan.start), str(plan.end)
    if kind not in ("timestamp_ntz", "date"):
        raise PipelineError(f"column {column} is {kind}, not a time")
    name = spec.spark.get(SESSION_ZONE, UTC_NAME)
    zone = datetime.strptime(name, "%z").tzinfo if name[0] in "+-" else ZoneInfo(name)
    local = [datetime.fromtimestamp(ms / 1000, zone).replace(tzinfo=None) for ms in (plan.start, plan.end)]
    if kind == "timestamp_ntz":
        return local[0].isoformat(), local[1].isoformat()
    if any(time != time.replace(hour=0, minute=0, second=0, microsecond=0) for time in local):
        raise PipelineError(f"column {column} is a date: a range of it begins and ends at midnight in {name}")
    return local[0].date().isoformat(), local[1].date().isoformat()


def _begins_behind(start: Any, until: int) -> bool:
    """Whether a first run begins with messages published at or after a time."""
    if isinstance(start, Mapping) or start == "earliest":
        return False
    return start == "latest" or time_ms(start) >= until


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat().replace("+00:00", "Z")
