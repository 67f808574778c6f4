"""What a failure means for the user: in which pipeline, step and sink it happened, and what of the batch is written.

A failure passes from a task to the driver, and from the driver's callback to Spark and back, as text. So what is known
where it happens is put into the sentence there (`SinkFailed`), with its class.
"""

import re
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.errors import PySparkException

from penstock.pipeline.errors import PipelineError, SinkFailed
from penstock.pipeline.spec.spec import Source, Spec, Step, source_topics

from .causes import Cause, ErrorClass, cause_of

AGAIN = "the next run repeats the batch, and a sink that writes exactly once and has it changes nothing"

# How Py4J says that a query was stopped within a batch.
_STOPPED: Final = re.compile(
    r": java\.(lang\.InterruptedException|io\.InterruptedIOException|nio\.channels\.ClosedByInterruptException)\b"
)


# A task that reads a topic, as `source.fetch` says it; and Spark's own use of a file.
_READING: Final = re.compile(r"reading (\S+), partition \d+, ")
_FILE: Final = re.compile(r"java\.n?io\.[\w.]+: (.+)")


def is_stop(error: Exception) -> bool:
    """Whether Spark interrupted the batch because its query is stopped. Spark takes that for no failure, by the
    text of the error: it is to be raised as it is."""
    return hasattr(error, "java_exception") and _STOPPED.search(str(error)) is not None


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
        """`error` with the batch's number, and what was written of it before."""
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
    """The cause, its sentence beginning with the source or step whose code failed, where that is known."""
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
    """The cause, where Spark itself failed at a file: outside of a batch that is its checkpoint's. `written`: the last batch
    that is written, -1 where there is none."""
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
