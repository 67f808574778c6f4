"""Makes the views of a pipeline: sources, tables and steps, each by its name in one Spark session."""

import importlib
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark import cloudpickle
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import TimestampNTZType, TimestampType

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.spec.options import lookup_options, source_options
from penstock.pipeline.spec.spec import Source, Spec, Step
from penstock.pipeline.spec.times import mentions, windows_of

from .causes import spark_sentence
from .checks import passed, rejects, warned, with_reasons

# Of a pipeline's session; the spec wins.
_CONF: Final = {
    # transformWithState needs it; memory is bounded
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.noDataProgressEventInterval": "2000",
}


class View(msgspec.Struct):
    """A source or step: the rows that passed its checks and, where it rejects rows, all rows with the reasons."""

    name: str
    frame: Any  # DataFrame; msgspec need not know it
    checked: Any = None


def build_views(spec: Spec, spark: SparkSession, checkpoint: Path) -> dict[str, View]:
    """All sources and steps, analysed. Raises PipelineError, which names the place."""
    views: dict[str, View] = {}
    for name, table in spec.tables.items():
        with _named(spec, f"[tables.{name}]"):
            reader = spark.read.format("penstock_lake").options(**lookup_options(spec, table))
            reader.load().createOrReplaceTempView(name)
    for name, source in spec.sources.items():
        with _named(spec, f"[sources.{name}]"):
            reader_options = source_options(spec, name, source)
            stream = spark.readStream.format("penstock").options(**reader_options).load()
            views[name] = _view(spec, name, source, stream, checkpoint)
    for step in spec.steps:
        with _named(spec, f"[[steps]] {step.name}"):
            views[step.name] = _view(spec, step.name, step, _made(spec, spark, step), checkpoint)
    return views


def session_for(spec: Spec, spark: SparkSession) -> SparkSession:
    """A session of the pipeline's own beside a given one: its own views and settings, the same Spark."""
    mine = spark.newSession()
    for key, value in {**_CONF, **spec.spark}.items():
        # The others belong to Spark as a whole, and are set where it is started.
        if key.startswith("spark.sql."):
            mine.conf.set(key, value)
    return mine


def feeds_steps(spec: Spec, name: str) -> bool:
    """Whether some step reads a view."""
    return any(mentions(step, name) for step in spec.steps if step.name != name)


def _view(spec: Spec, name: str, view: Source | Step, frame: DataFrame, checkpoint: Path) -> View:
    if view.watermark is not None:
        _check_time(frame, view.watermark.column)
    for one in view.expect:  # each by itself, so that a refusal can name it
        with _named(spec, f"{_place(name, view)}: expect {one.name!r}"):
            frame.selectExpr(f"CAST(({one.predicate}) AS BOOLEAN)")
    checked = None
    if rejects(view) or any(one.action == "fail" for one in view.expect):
        checked = with_reasons(frame, name, view, checkpoint, windows_of(spec, name))
        checked = warned(checked, name, view.expect)
        frame = passed(checked, view)
    else:
        frame = warned(frame, name, view.expect)
    if view.watermark is not None:
        frame = frame.withWatermark(view.watermark.column, view.watermark.delay)
    frame.createOrReplaceTempView(name)
    return View(name, frame, checked if rejects(view) else None)


def _place(name: str, view: Source | Step) -> str:
    return f"[sources.{name}]" if isinstance(view, Source) else f"[[steps]] {name}"


def _made(spec: Spec, spark: SparkSession, step: Step) -> DataFrame:
    if step.sql:
        return _queried(spark, step.sql)
    inputs = [spark.table(name) for name in step.inputs]
    if step.python:
        function = _load_callable(spec.folder, step.python, "python")
        return _called(function, step.python, inputs)
    frame = inputs[0]
    if step.deduplicate:
        _check_columns(frame, "deduplicate", step.deduplicate)
        return frame.dropDuplicatesWithinWatermark(list(step.deduplicate))
    _check_columns(frame, "keys", step.keys)
    processor = _load_callable(spec.folder, step.stateful, "stateful")
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
        raise PipelineError(f"sql: {spark_sentence(error)}") from None
    try:
        return spark.sql(sql)
    except AnalysisException as error:
        raise PipelineError(f"sql: {spark_sentence(error)}") from None


def _load_callable(folder: Path, text: str, where: str) -> Any:
    """The user's own Python that `module:name` names; modules are looked for in the file's folder first.

    A module of that folder travels to Spark's workers whole, as they need not have the folder. Raises
    PipelineError, which names the place.
    """
    module_name, _, name = text.partition(":")
    with _first(folder):
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
def _first(folder: Path) -> Iterator[None]:
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


def _check_columns(frame: DataFrame, key: str, names: tuple[str, ...]) -> None:
    for name in names:
        if name not in frame.columns:
            raise PipelineError(f"{key}: there is no column {name!r}; there are {', '.join(frame.columns)}")


def _check_time(frame: DataFrame, column: str) -> None:
    _check_columns(frame, "watermark", (column,))
    kind = frame.schema[column].dataType
    if not isinstance(kind, TimestampType | TimestampNTZType):
        raise PipelineError(f"watermark: column {column} is {kind.simpleString()}, not timestamp")


@contextmanager
def _named(spec: Spec, place: str) -> Iterator[None]:
    """Let every refusal begin with the file and the place."""
    try:
        yield
    except PipelineError as error:
        if error.message.startswith(f"{spec.file}: "):
            raise
        raise type(error)(f"{spec.file}: {place}: {error.message}", error.kind) from None
    except PySparkException as error:
        raise PipelineError(f"{spec.file}: {place}: {spark_sentence(error)}") from None
