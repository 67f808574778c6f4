"""What a failure means for the user: in which pipeline, step and sink it happened, and what of the batch is written.

A failure passes from a task to the driver, and from the driver's callback to Spark and back, as text. So known facts
are put into the sentence where the failure happens (`SinkFailed`), with its class. Of text that Spark passes on, the last line of
Python's traceback matters, and in whose code it was raised.
"""

import errno
import os
import re
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Final, NamedTuple

from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException

from penstock.model.errors import ErrorKind, PenstockError
from penstock.pipeline.errors import DataLoss, PipelineError, SchemaChanged, SinkFailed
from penstock.pipeline.spec.spec import Source, Spec, Step, source_topics

AGAIN = "the next run repeats the batch, and a sink that writes exactly once and has it changes nothing"

# How Py4J says that a query was stopped within a batch.
_STOPPED: Final = re.compile(
    r": java\.(lang\.InterruptedException|io\.InterruptedIOException|nio\.channels\.ClosedByInterruptException)\b"
)

# A task that reads a topic, as `source.fetch` says it; and Spark's own use of a file.
_READING: Final = re.compile(r"reading (\S+), partition \d+, ")
_FILE: Final = re.compile(r"java\.n?io\.[\w.]+: (.+)")

_DEPTH_MAX: Final = 20

# A line of a traceback that names an exception, and one that names a place in the code.
_RAISED: Final = re.compile(
    r"^(?:[\w.]+\.PythonException: )?([A-Za-z_][\w.]*): (.*)$|^([A-Za-z_][\w.]*(?:Error|Exception|DataLoss))$",
    re.MULTILINE,
)
_PLACE: Final = re.compile(r'^  File "([^"]+)", line (\d+), in (.+)$', re.MULTILINE)
_TRACEBACK: Final = "Traceback (most recent call last):"
_STATE: Final = re.compile(r"\s*SQLSTATE: \w{5}\.?")
_POSITION: Final = re.compile(r"[;,]?\s*\(?line (\d+),? pos (\d+)\)?;?")
_CONDITION: Final = re.compile(r"^\[[\w.]+\]\s*")
_MARK: Final = re.compile(r"^(\[PENSTOCK_[\w ]+\]\s*)+")
_TROUBLE: Final = re.compile(r"^\[PENSTOCK_TROUBLE (\w+)\] ")

# A value that an expression of the user's does not take, or an error that it raises: the same next time.
_DATA: Final = re.compile(r"SQLSTATE: (?:22\w{3}|P0001)")
_QUERY: Final = re.compile(r"^== SQL.* ==\n(.*)\n( *)(\^+)", re.MULTILINE)

_LIBRARIES: Final = ("/lib/python3", "/site-packages/", "/pyspark/", "/pyspark.zip/")
_ERRNO: Final = re.compile(r"\[Errno (\d+)\] (.*?)(?:: '(.*?)')?(?: -> '(.*?)')?$")
_REFUSED: Final = (errno.EPERM, errno.EACCES, errno.EROFS)
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_EXPECTATION: Final = re.compile(r"expectation '.*' of \w+ does not hold: .*")

# Spark's names for state that the steps, or the schema of what they read, no longer fit.
_STATE_CHANGED: Final = re.compile(
    r"\[(?:STATE_STORE_(?:KEY_SCHEMA_NOT_COMPATIBLE|VALUE_SCHEMA_NOT_COMPATIBLE|INVALID_VALUE_SCHEMA_EVOLUTION"
    r"|INVALID_VARIABLE_TYPE_CHANGE|INVALID_CONFIG_AFTER_RESTART|COLUMN_FAMILY_SCHEMA_INCOMPATIBLE"
    r"|VALUE_SCHEMA_EVOLUTION_THRESHOLD_EXCEEDED)"
    r"|STREAMING_STATEFUL_OPERATOR_(?:NOT_MATCH_IN_STATE_METADATA|MISSING_STATE_DIRECTORY))\b"
)
NEW_CHECKPOINT: Final = (
    "the steps now keep other state than the checkpoint has, as they or the schema of what they read have changed: a"
    " new checkpoint is needed; run full-refresh, or give the pipeline another name"
)

# A step or sink that was added or removed may change how often the query reads its sources, each with separate offsets.
_READINGS_CHANGED: Final = re.compile(
    r"There are \[\d+\] sources in the checkpoint offsets and now there are"
)
READINGS: Final = (
    "steps or sinks were added or removed, so that the query reads its sources another number of times than the checkpoint"
    " has: a new checkpoint is needed; run full-refresh, or reset with the time from which to go on, or put them back"
)

_ACCESS: Final = (ErrorKind.UNAUTHENTICATED, ErrorKind.FORBIDDEN)


def is_stop(error: Exception) -> bool:
    """Whether Spark interrupted the batch because its query is stopped. Spark takes that for no failure, by the
    text of the error: it is raised unchanged."""
    return hasattr(error, "java_exception") and _STOPPED.search(str(error)) is not None


class ErrorClass(Enum):
    """Whose fault it is."""

    PLAN = "plan"  # the file does not fit its topics, tables or checkpoint
    ACCESS = "access"
    DATA_LOSS = "data_loss"
    SCHEMA = "schema"
    NEW_SCHEMA = "new_schema"  # on_new_schema = restart asks for a new plan
    EXPECTATION = "expectation"
    USER_CODE = "user_code"
    BROKER = "broker"
    UNKNOWN = "unknown"

    @property
    def retried(self) -> bool:
        """Whether the same may go well later."""
        return self in (ErrorClass.NEW_SCHEMA, ErrorClass.BROKER, ErrorClass.UNKNOWN)


class Cause(NamedTuple):
    """Why a pipeline failed. `code` names the place: the part of a query, or the file of a function."""

    kind: ErrorClass
    sentence: str
    code: str = ""


class BatchSinks:
    """The sinks of a batch, as they are written. Threads may write several at once."""

    def __init__(self, spec: Spec, number: int, *, at_once: bool, may_repeat: bool) -> None:
        self._spec = spec
        self._number = number
        self._at_once = at_once
        self._may_repeat = may_repeat
        self._begun: list[str] = []
        self._written: list[str] = []
        self._lock = threading.Lock()

    @contextmanager
    def writing(self, name: str) -> Iterator[None]:
        """Write the batch to a sink. What goes wrong is raised as SinkFailed, which names it."""
        with self._lock:
            self._begun.append(name)
        with at_sink(sink_place(self._spec, name)):
            yield
        with self._lock:
            self._written.append(name)

    def failed(self, error: Exception) -> SinkFailed:
        """`error` with the batch's number, and the sinks that had it before."""
        cause = placed(self._spec, cause_of(error))
        failed = set(self._begun) - set(self._written)
        has, lack = _listed(self._written), f"{_listed(failed)} not"
        if failed and cause.kind is ErrorClass.BROKER:  # the answer is missing, not the commit
            lack = f"{', '.join(sorted(failed))} may have it"
        if has:
            state = f"{has} batch {self._number}, {lack}: {AGAIN}"
        elif failed and cause.kind is ErrorClass.BROKER:
            state = f"of batch {self._number}, {lack}: {AGAIN}"
        elif self._may_repeat:
            state = (
                f"this run wrote batch {self._number} to no sink; an earlier one, that ended within the batch, may"
                f" have: {AGAIN}"
            )
        else:
            state = f"no sink has batch {self._number}: the next run repeats it"
        if self._at_once:
            state += "; a sink that writes at once may have some of its rows"
        return SinkFailed.of(cause.kind.value, f"{cause.sentence}; {state}")


@contextmanager
def of_batch(
    spec: Spec, number: int, *, at_once: bool = False, may_repeat: bool = False
) -> Iterator[BatchSinks]:
    """A batch that is written. Raises SinkFailed, which says what of it was written.

    `at_once`: some sink's rows are seen before the batch is committed. `may_repeat`: a run before this one may have
    begun the batch, and ended between two commits.
    """
    sinks = BatchSinks(spec, number, at_once=at_once, may_repeat=may_repeat)
    try:
        yield sinks
    except Exception as error:
        if is_stop(error):
            raise
        raise sinks.failed(error) from None


@contextmanager
def at_sink(place: str) -> Iterator[None]:
    """Let what goes wrong be a SinkFailed that names the sink; on the driver and in tasks."""
    try:
        yield
    except Exception as error:
        if is_stop(error):
            raise
        cause = cause_of(error)
        raise SinkFailed.of(cause.kind.value, f"{place}: {cause.sentence}") from None


def sink_place(spec: Spec, name: str) -> str:
    """A sink as messages name it; that of dead letters, which the file does not list, too."""
    sink = spec.sinks.get(name)
    if sink is None:
        return f"dead_letters (topic {spec.dead_letters})"
    if sink.path:
        return f"[sinks.{name}] (table {sink.path})"
    if sink.foreign:
        return f"[sinks.{name}] ({sink.target})"
    where = f"topic {sink.topic}" if sink.topic else f"topics by column {sink.topic_column}"
    return f"[sinks.{name}] ({where})"


def placed(spec: Spec, cause: Cause) -> Cause:
    """The cause, its sentence beginning with the source or step whose code failed, if known."""
    if found := _READING.match(cause.sentence):
        names = [name for name, topics in source_topics(spec).items() if found[1] in topics.split(",")]
        place = " or ".join(f"[sources.{name}]" for name in names)
        return cause._replace(sentence=f"{place}: {cause.sentence}") if place else cause
    if not cause.code or cause.sentence.startswith("["):
        return cause
    sources = [f"[sources.{name}]" for name, source in spec.sources.items() if _says(source, cause.code)]
    steps = [
        f"[[steps]] {step.name}"
        for step in spec.steps
        if _says(step, cause.code) or cause.code in step.sql or _made_by(spec, step, cause.code)
    ]
    places = " or ".join(sources + steps)
    return cause._replace(sentence=f"{places}: {cause.sentence}", code="") if places else cause


def at_checkpoint(cause: Cause, home: object, written: int) -> Cause:
    """The cause, if Spark itself failed at a file: outside of a batch that is its checkpoint's. `written`: the last batch
    that is written, -1 if there is none."""
    found = _FILE.match(cause.sentence)
    if cause.kind is not ErrorClass.UNKNOWN or found is None:
        return cause
    has = f"every sink has the batches up to {written}" if written >= 0 else "no sink has a batch"
    sentence = f"the checkpoint in {home} cannot be used: {found[1]}; {has}: the next run goes on there"
    return cause._replace(sentence=sentence)


@contextmanager
def one_sentence(spec: Spec) -> Iterator[None]:
    """Let what Spark raises be a PipelineError that names the pipeline, and the place."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, PySparkException) and not hasattr(error, "java_exception"):
            raise
        raise PipelineError(told(spec, cause_of(error)).sentence) from None


def told(spec: Spec, cause: Cause) -> Cause:
    """The cause as a user gets it: with the pipeline's name, and the place."""
    cause = placed(spec, cause)
    if cause.sentence.startswith((f"pipeline {spec.name}: ", f"{spec.file}: ")):
        return cause
    return cause._replace(sentence=f"pipeline {spec.name}: {cause.sentence}")


def _says(view: Source | Step, code: str) -> bool:
    return any(code in one.predicate or one.predicate in code for one in view.expect)


def _made_by(spec: Spec, step: Step, file: str) -> bool:
    """Whether a step's Python is in a file."""
    module = (step.python or step.stateful).partition(":")[0]
    return bool(module) and file == str(spec.folder.joinpath(*module.split("."))) + ".py"


def _listed(names: Collection[str]) -> str:
    return f"{', '.join(sorted(names))} {'has' if len(names) == 1 else 'have'}" if names else ""


_CLASSES: Final = {
    "DataLoss": ErrorClass.DATA_LOSS,
    "SchemaChanged": ErrorClass.NEW_SCHEMA,
    "PipelineError": ErrorClass.PLAN,
    "BatchConflict": ErrorClass.PLAN,
}


def cause_of(error: BaseException) -> Cause:
    """The class and the sentence of whatever a pipeline failed with."""
    if isinstance(error, PenstockError):
        return _marked(error.message) or Cause(_kind(error), _MARK.sub("", error.message))
    if isinstance(error, PySparkException):
        return _spark_cause(error)
    if (java := getattr(error, "java_exception", None)) is not None:  # which has no exception of Python's
        return Cause(ErrorClass.UNKNOWN, _first_line(str(java.getMessage())))
    if isinstance(error, OSError):
        return _of_system(type(error).__name__, str(error))
    return Cause(
        ErrorClass.UNKNOWN, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    )


def _kind(error: PenstockError) -> ErrorClass:
    if isinstance(error, DataLoss):
        return ErrorClass.DATA_LOSS
    if isinstance(error, SchemaChanged):
        return ErrorClass.NEW_SCHEMA
    if error.kind in _ACCESS:
        return ErrorClass.ACCESS
    if error.kind is ErrorKind.INCOMPATIBLE_SCHEMA:
        return ErrorClass.SCHEMA
    if error.retriable or error.kind is ErrorKind.INTERNAL:
        return ErrorClass.BROKER
    return ErrorClass.PLAN


def _spark_cause(error: PySparkException) -> Cause:
    text = _deepest(error)
    if _STATE_CHANGED.search(text):
        return Cause(ErrorClass.PLAN, NEW_CHECKPOINT)
    if _READINGS_CHANGED.search(text):
        return Cause(ErrorClass.PLAN, READINGS)
    if found := _EXPECTATION.search(text):
        return Cause(ErrorClass.EXPECTATION, _STATE.sub("", found[0]).strip())
    if _TRACEBACK in text:
        return _python_cause(text.rpartition(_TRACEBACK)[2])
    if _DATA.search(text):
        return _of_query(text)
    plan = isinstance(error, AnalysisException) and not isinstance(error, StreamingQueryException)
    return Cause(ErrorClass.PLAN if plan else ErrorClass.UNKNOWN, _first_line(text))


def _deepest(error: BaseException) -> str:
    """The root causes: those of a query's exception, which only says that it has one."""
    texts: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(texts) < _DEPTH_MAX:
        texts.append(str(getattr(cause, "_desc", None) or cause))
        cause = getattr(cause, "_cause", None) or cause.__cause__
    for text in reversed(texts):
        if _TRACEBACK in text or _EXPECTATION.search(text):
            return text
    return next((text for text in reversed(texts) if text.strip()), "")


def _python_cause(trace: str) -> Cause:
    """From the end of a traceback."""
    trace = re.split(r"^\s+at [\w.$]+\(|^\tat ", trace, maxsplit=1, flags=re.MULTILINE)[0]
    raised = [match for match in _RAISED.finditer(trace) if not match[0].startswith("SQLSTATE")]
    places = _PLACE.findall(trace)
    if not raised:
        return Cause(ErrorClass.UNKNOWN, _first_line(trace))
    full = raised[-1][1] or raised[-1][3]
    said = _MARK.sub("", _STATE.sub("", raised[-1][2] or "").strip())
    name = full.rpartition(".")[2]
    if full.startswith("penstock.") and "(option onNewSchema=fail)" in said:
        return Cause(ErrorClass.SCHEMA, said)
    if full.startswith("penstock.") and (marked := _marked(raised[-1][2] or "")):
        return marked
    if full.startswith("penstock."):
        return Cause(_CLASSES.get(name, _remote(said)), said or name)
    if full.startswith("pyspark.errors.") and _DATA.search(trace):
        return _of_query(trace[raised[-1].start(2) :])
    place = next((place for place in reversed(places) if not _is_library(place[0])), None)
    place = place or (places[-1] if places else None)
    if place and any(part in place[0] for part in ("/penstock/", "/pyspark/", "/pyspark.zip/")):
        return _of_system(name, said)
    where = f" ({place[0]}, line {place[1]}, in {place[2]})" if place else ""
    sentence = f"{name}: {said}{where}" if said else f"{name}{where}"
    return Cause(ErrorClass.USER_CODE, sentence, place[0] if place else "")


def _is_library(file: str) -> bool:
    """Whether a place in a traceback says less than the one that called it."""
    if "/penstock/" in file:
        return False
    return not file.startswith("/") or any(part in file for part in _LIBRARIES)


def _marked(message: str) -> Cause | None:
    """The cause that was recorded where it happened."""
    found = _TROUBLE.match(message)
    return Cause(ErrorClass(found[1]), message[found.end() :]) if found else None


def _of_system(name: str, said: str) -> Cause:
    """What the system refused to our own code, and whatever else was raised there."""
    found = _ERRNO.match(said)
    if found is None:
        return Cause(ErrorClass.UNKNOWN, f"{name}: {said}" if said else name)
    kind = ErrorClass.ACCESS if int(found[1]) in _REFUSED else ErrorClass.UNKNOWN
    place = f"{found[3]}: " if found[3] else ""
    if int(found[1]) in _FULL:
        return Cause(kind, f"{place}{os.strerror(int(found[1]))}")
    return Cause(kind, f"{place}{found[2]}" if place else f"{name}: {said}")


def _of_query(text: str) -> Cause:
    """A value that a query does not take, with the part of the query that says so."""
    sentence, found = _first_line(text), _QUERY.search(text)
    if found is None:
        return Cause(ErrorClass.USER_CODE, sentence)
    part = found[1][len(found[2]) : len(found[2]) + len(found[3])]
    return Cause(ErrorClass.USER_CODE, f"{sentence} (in {part})", part)


def _remote(said: str) -> ErrorClass:
    """A server's refusal of which only the words are left."""
    if re.search(
        r"\b(token|unauthenticated|forbidden|permission|not allowed|may not)\b", said, re.IGNORECASE
    ):
        return ErrorClass.ACCESS
    return ErrorClass.BROKER


def _first_line(text: str) -> str:
    line = next((line for line in text.splitlines() if line.strip()), "Spark gives no reason").strip()
    position = _POSITION.search(line)
    line = _CONDITION.sub("", _STATE.sub("", _POSITION.sub("", line))).strip().rstrip(";")
    line = line.removesuffix(".")
    return f"{line} (line {position[1]}, column {int(position[2]) + 1})" if position else line
