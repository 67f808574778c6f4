"""What went wrong, in one sentence and one class: whether it helps to try again.

Spark hands on what Python raised as text: in a query's exception, around a job's, around a task's, around a
traceback. What matters is the last line of that traceback, and in whose code it was raised.
"""

import errno
import os
import re
from enum import Enum
from typing import Final, NamedTuple

from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException

from penstock.model.errors import ErrorKind, PenstockError
from penstock.pipeline.errors import DataLoss, SchemaChanged


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
    """Why a pipeline failed. `code` is what tells the place: the part of a query, or the file of a function."""

    kind: ErrorClass
    sentence: str
    code: str = ""


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

# A step or sink that was added or removed may change how often the query reads its sources, each with offsets of its own.
_READINGS_CHANGED: Final = re.compile(
    r"There are \[\d+\] sources in the checkpoint offsets and now there are"
)
READINGS: Final = (
    "steps or sinks were added or removed, so that the query reads its sources another number of times than the checkpoint"
    " has: a new checkpoint is needed; run full-refresh, or reset with the time from which to go on, or put them back"
)

_ACCESS: Final = (ErrorKind.UNAUTHENTICATED, ErrorKind.FORBIDDEN)
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


def spark_sentence(error: PySparkException) -> str:
    """What Spark says, in one line."""
    return _spark_cause(error).sentence


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
    """What is said where it all began: the causes of a query's exception, which only says that it has one."""
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
    """The cause that was told where it happened."""
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
