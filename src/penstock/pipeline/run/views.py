"""Makes the views of a pipeline: sources, tables and steps, each by its name in one Spark session."""

import importlib
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark import cloudpickle
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType, TimestampNTZType, TimestampType

from penstock.model.errors import PenstockError
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.spec.options import lookup_options, source_options
from penstock.pipeline.spec.spec import Source, Spec, Step
from penstock.pipeline.spec.times import mentions
from penstock.pipeline.versions import WRAPPED, check_stateful
from penstock.pipeline.zones import SESSION_ZONE, UTC

from .checks import DEAD, WHY, counted, dead_column, makes_dead_letters, passed, rejects, rules, with_reasons
from .failures import cause_of
from .formats import read_format
from .lateness import BatchWatermark, Window, deciding_windows, marked

# Of a pipeline's session; the spec wins.
_CONF: Final = {
    # transformWithState needs it; memory is bounded
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.noDataProgressEventInterval": "2000",
    SESSION_ZONE: UTC,  # a file means the same in every session
    **WRAPPED,
}

# Spark measures a batch of Arrow after each row that it puts in, and Arrow goes through all rows behind the last map that is not
# null to answer: a batch costs the square of its rows. Dead letters have maps, and most rows are not dead letters.
_ROWS_WITH_MAPS: Final = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1000"}

_TASK: Final = "_task"
ROW: Final = "row"

# Nodes that keep state, or that Spark would have to run twice anyway.
_STATEFUL: Final = re.compile(
    r"^[\s:+\-~*]*(Aggregate|Distinct|Deduplicate\w*|TransformWithState\w*|FlatMapGroups\w*|MapGroups\w*|Join|\w*Limit)\b",
    re.MULTILINE,
)


class View(msgspec.Struct):
    """A source or step: the rows that passed its checks, and those of the others that become dead letters.

    What goes out of a view that no step reads is `whole`, with the dead letters in column `dead`. Else `letters` are a
    separate branch, of that column alone.
    """

    name: str
    frame: Any  # DataFrame; msgspec need not know it
    whole: Any = None
    letters: Any = None
    shared: bool = False  # whether several branches read it, and it is computed once for all of them


def build_views(
    spec: Spec, spark: SparkSession, watermark: BatchWatermark | None, given: Mapping[str, DataFrame] = {}
) -> dict[str, View]:
    """All sources and steps, analysed. Raises PipelineError, which names the place.

    `given` are rows in place of those of sources and tables. Without a `watermark` all sources are given, and steps run as a
    batch: only rows without an event time are late.
    """
    for name, table in spec.tables.items():
        with named(spec, f"[tables.{name}]"):
            rows = given.get(name)
            if rows is None and table.format:
                rows = read_format(spec, spark, table, stream=False)
            elif rows is None:
                rows = spark.read.format("penstock_lake").options(**lookup_options(spec, table)).load()
            rows.createOrReplaceTempView(name)
    streams: dict[str, DataFrame] = {}
    for name, source in spec.sources.items():
        with named(spec, f"[sources.{name}]"):
            if name in given:
                streams[name] = given[name]
                continue
            if source.format:
                streams[name] = read_format(spec, spark, source, stream=True)
                continue
            reader_options = source_options(spec, name, source)
            streams[name] = spark.readStream.format("penstock").options(**reader_options).load()
    windows = {} if watermark is None else _windows(spec, spark, streams)
    views: dict[str, View] = {}
    for name, view, frame in _frames(spec, spark, streams):
        with named(spec, _place(name, view)):
            late = None
            if view.watermark is not None:
                time = f.col(view.watermark.column)
                late = time.isNull() if watermark is None else watermark.late(time, windows[name])
            views[name] = _view(spec, name, view, frame, late)
    return views


def _frames(
    spec: Spec, spark: SparkSession, streams: Mapping[str, DataFrame]
) -> Iterator[tuple[str, Source | Step, DataFrame]]:
    """Sources and steps in their order, checked: each step is made from the views registered before it."""
    views: list[tuple[str, Source | Step]] = [*spec.sources.items(), *((s.name, s) for s in spec.steps)]
    for name, view in views:
        place = _place(name, view)
        with named(spec, place):
            frame = streams[name] if isinstance(view, Source) else _made(spec, spark, view)
            if view.watermark is not None:
                check_time(frame.schema, view.watermark.column)
            for one in view.expect:  # each by itself, so that a refusal can name it
                with named(spec, f"{place}: expect {one.name!r}"):
                    frame.selectExpr(f"CAST(({one.predicate}) AS BOOLEAN)")
        yield name, view, frame


def _windows(
    spec: Spec, spark: SparkSession, streams: Mapping[str, DataFrame]
) -> dict[str, tuple[Window, ...]]:
    """By view with a watermark, the windows whose ends decide which of its rows are late; none if the event time itself
    decides. They are known when all steps are: so all are made twice, here without what rejects late rows."""
    every: list[Source | Step] = [*spec.sources.values(), *spec.steps]
    if not any(view.watermark for view in every):
        return {}
    numbers: dict[str, int] = {}
    bounds: dict[int, set[Window | None]] = {}
    for name, view, frame in _frames(spec, spark, streams):
        with named(spec, _place(name, view)):
            draft = passed(with_reasons(frame, name, view, None), view) if _checks(view) else frame
            if view.watermark is not None:
                numbers[name] = len(numbers) + 1
                draft = marked(draft, view.watermark.column, numbers[name])
            draft.createOrReplaceTempView(name)
            if isinstance(view, Step):
                for number, found in deciding_windows(draft).items():
                    bounds.setdefault(number, set()).update(found)
    windows: dict[str, tuple[Window, ...]] = {}
    for name, number in numbers.items():
        decisive = bounds.get(number, set())
        windows[name] = (
            () if None in decisive else tuple(sorted(each for each in decisive if each is not None))
        )
    return windows


def session_for(spec: Spec, spark: SparkSession) -> SparkSession:
    """A separate session next to a given one: its own views and settings, the same Spark."""
    mine = spark.newSession()
    maps = spec.dead_letters or any(sink.properties for sink in spec.sinks.values())
    for key, value in {**_CONF, **(_ROWS_WITH_MAPS if maps else {}), **spec.spark}.items():
        # The others belong to Spark as a whole, as do some of these, and are set at its start.
        if key.startswith("spark.sql.") and mine.conf.get(key, None) != value:
            mine.conf.set(key, value)
    return mine


def readings(spec: Spec, views: Mapping[str, View], ends: Iterable[str]) -> int:
    """How often a batch of a source is read, at most, for the views in which the query's branches end."""
    counts: Counter[str] = Counter()
    met: set[str] = set()
    names = [*spec.sources, *(step.name for step in spec.steps)]
    steps = {step.name: step for step in spec.steps}
    waiting = list(ends)
    while waiting:
        name = waiting.pop()
        if name in met:
            continue
        if views[name].shared:
            met.add(name)
        if name in steps:
            waiting += [one for one in names[: names.index(name)] if mentions(steps[name], one)]
        else:
            counts[name] += 1
    return max(counts.values(), default=0)


def _readers(spec: Spec, name: str) -> tuple[int, bool]:
    """How many steps read a view, and whether sinks do."""
    steps = sum(mentions(step, name) for step in spec.steps if step.name != name)
    return steps, any(sink.input == name for sink in spec.sinks.values())


def _checks(view: Source | Step) -> bool:
    """Whether rows of a view may be rejected, or fail the batch."""
    return rejects(view) or any(one.action == "fail" for one in view.expect)


def _view(spec: Spec, name: str, view: Source | Step, frame: DataFrame, late: Column | None) -> View:
    """`late` is true of rows that come after the view's watermark."""
    found = View(name, frame)
    steps, sunk = _readers(spec, name)
    if _checks(view):
        checked = counted(with_reasons(frame, name, view, late), name, view)
        if makes_dead_letters(view):
            _part(found, checked, view, steps, may_share=not _ordered(spec))
        else:
            found.frame = passed(checked, view)
    elif any(rules(view)):
        found.frame = counted(with_reasons(frame, name, view, late), name, view).drop(WHY)
    if found.letters is None and steps + sunk > 1 and not _ordered(spec):
        frame, found.frame = found.frame, read_twice(found.frame)
        found.shared = found.frame is not frame
    if view.watermark is not None:
        found.frame = found.frame.withWatermark(view.watermark.column, view.watermark.delay)
    found.frame.createOrReplaceTempView(name)
    return found


def _ordered(spec: Spec) -> bool:
    """Whether a sink counts on rows that come in the same order again: none does that behind a shuffle."""
    return any(sink.ordered for sink in spec.sinks.values())


def _part(
    found: View, checked: DataFrame, view: Source | Step, steps: int, *, may_share: bool = True
) -> None:
    """The rows of a view that passed, and its dead letters."""
    dead = dead_column(checked)
    good = passed(checked, view)
    if not steps:
        found.frame, found.whole = good, checked.withColumn(DEAD, dead)
        return
    found.shared = may_share and shareable(checked)
    if not found.shared:
        found.frame = good
        found.letters = checked.where(f.col(WHY).isNotNull()).select(dead.alias(DEAD))
        return
    row = f.when(f.col(WHY).isNull(), f.struct(*(f.col(f"`{name}`") for name in good.columns)))
    rows = shared(checked, **{ROW: row, DEAD: dead})
    found.frame = branch(rows, f.col(ROW).isNotNull() & f.col(DEAD).isNull()).select(f"{ROW}.*")
    found.letters = branch(rows, f.col(DEAD).isNotNull() & f.col(ROW).isNull()).select(DEAD)


def _place(name: str, view: Source | Step) -> str:
    return f"[sources.{name}]" if isinstance(view, Source) else f"[[steps]] {name}"


def _made(spec: Spec, spark: SparkSession, step: Step) -> DataFrame:
    if step.sql:
        return _queried(spark, step.sql)
    inputs = [spark.table(name) for name in step.inputs]
    if step.python:
        function = load_callable(spec.folder, step.python, "python")
        return _called(function, step.python, inputs)
    frame = inputs[0]
    if step.deduplicate:
        check_columns(frame.schema, "deduplicate", step.deduplicate)
        columns = list(step.deduplicate)
        return (
            frame.dropDuplicatesWithinWatermark(columns)
            if frame.isStreaming
            else frame.dropDuplicates(columns)
        )
    check_stateful()
    check_columns(frame.schema, "keys", step.keys)
    processor = load_callable(spec.folder, step.stateful, "stateful")
    time_mode = {"none": "None", "processing_time": "ProcessingTime", "event_time": "EventTime"}[
        step.time_mode
    ]
    return frame.groupBy(*step.keys).transformWithState(
        processor(), outputStructType=step.columns, outputMode=spec.output, timeMode=time_mode
    )


def _queried(spark: SparkSession, sql: str) -> DataFrame:
    """The rows of a query; a statement that does something is refused before it does."""
    try:
        spark._jsparkSession.sessionState().sqlParser().parseQuery(sql)
    except ParseException as error:
        raise PipelineError(f"sql: {cause_of(error).sentence}") from None
    try:
        return spark.sql(sql)
    except AnalysisException as error:
        raise PipelineError(f"sql: {cause_of(error).sentence}") from None


def load_callable(folder: Path, text: str, where: str) -> Any:
    """The user's own Python that `module:name` names; modules are looked for in the file's folder first.

    A module of that folder travels to Spark's workers whole, as they need not have the folder. Raises
    PipelineError, which names the place.
    """
    module_name, _, name = text.partition(":")
    with first_on_path(folder):
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            raise PipelineError(f"{where}: module {module_name} cannot be imported: {error}") from None
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            raise PipelineError(
                f"{where}: module {module_name} fails when it is imported: {type(error).__name__}: {error}"
                f" ({place.filename}, line {place.lineno})"
            ) from None
    found = getattr(module, name, None)
    if not callable(found):
        raise PipelineError(f"{where}: module {module_name} has no function or class {name}")
    file = getattr(module, "__file__", None)
    if file is not None and Path(file).is_relative_to(folder):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return found


@contextmanager
def first_on_path(folder: Path) -> Iterator[None]:
    """Look for modules in a folder first."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _called(function: Callable[..., Any], text: str, inputs: list[DataFrame]) -> DataFrame:
    try:
        made = function(*inputs)
    except PySparkException:
        raise
    except Exception as error:
        raise PipelineError(f"python: {text} fails: {type(error).__name__}: {error}") from error
    if not isinstance(made, DataFrame):
        raise PipelineError(f"python: {text} returns {type(made).__name__}, not a DataFrame")
    return made


def check_columns(schema: StructType, key: str, names: tuple[str, ...]) -> None:
    """Raises PipelineError for a name that a key of the file has, and rows have not."""
    for name in names:
        if name not in schema.names:
            raise PipelineError(f"{key}: there is no column {name!r}; there are {', '.join(schema.names)}")


def check_time(schema: StructType, column: str) -> None:
    """Raises PipelineError if a watermark's column is none, or no time."""
    check_columns(schema, "watermark", (column,))
    kind = schema[column].dataType
    if not isinstance(kind, TimestampType | TimestampNTZType):
        raise PipelineError(f"watermark: column {column} is {kind.simpleString()}, not timestamp")


@contextmanager
def named(spec: Spec, place: str) -> Iterator[None]:
    """Let every refusal begin with the file and the place."""
    try:
        yield
    except PipelineError as error:
        if error.message.startswith(f"{spec.file}: "):
            raise
        raise type(error)(f"{spec.file}: {place}: {error.message}", error.kind) from None
    except PenstockError as error:
        raise PipelineError(f"{spec.file}: {place}: {error.message}", error.kind) from None
    except PySparkException as error:
        raise PipelineError(f"{spec.file}: {place}: {cause_of(error).sentence}") from None


def shareable(frame: DataFrame) -> bool:
    """Whether `shared` may be put on rows: not behind state, whose operators Spark distinguishes in each branch, not if two
    columns have one name, and not if there is nothing to read, as all rows are in the plan."""
    names = [name.lower() for name in frame.columns]
    plan: Any = frame._jdf.queryExecution().analyzed()
    leaves = plan.collectLeaves()
    if all(leaves.apply(number).nodeName() == "LocalRelation" for number in range(leaves.size())):
        return False
    return len(set(names)) == len(names) and _STATEFUL.search(plan.treeString()) is None


def shared(frame: DataFrame, **columns: Column) -> DataFrame:
    """Columns of `frame`, computed once for all branches. To be read with `branch` only.

    Spark has no node that hands its rows to two others, but of two equal shuffles it runs one. So the rows go through a shuffle
    that is equal in every branch. It stays so: a filter that is not deterministic, always true, and names every column keeps
    the optimizer from pushing a branch's own filter or choice of columns below it. Rows of a partition stay in order.
    """
    placed = frame.select(
        *(column.alias(name) for name, column in columns.items()), f.spark_partition_id().alias(_TASK)
    )
    partitions = int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    if hasattr(placed, "repartitionById"):  # since Spark 4.1
        return placed.repartitionById(partitions, _TASK)
    return placed.repartition(partitions, _TASK)


def branch(rows: DataFrame, which: Column) -> DataFrame:
    """Those of the rows of `shared` for which `which` is true. It must name every column but the task's own."""
    return rows.where(f.when(f.spark_partition_id() >= 0, which))


def read_twice(frame: DataFrame) -> DataFrame:
    """The same rows, to be read by several branches; `frame` itself if that is not possible."""
    if not shareable(frame):
        return frame
    row = f.struct(*(f.col(f"`{name}`") for name in frame.columns))
    # What can be null, as far as the optimizer knows: else it would forget the filter and choose columns again.
    rows = shared(frame, **{ROW: f.when(f.spark_partition_id() >= 0, row)})
    found = branch(rows, f.col(ROW).isNotNull()).select(f"{ROW}.*")
    # A watermark lives in the columns' metadata.
    kept = [each.metadata for each in found.schema] == [each.metadata for each in frame.schema]
    return found if kept else frame
