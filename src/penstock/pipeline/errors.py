"""The errors of pipelines.

Spark hands errors of its workers back as text, within a stack of its own. So errors that a program must distinguish
carry a marker, which survives.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError

# How a conflict of batches ends.
RECIPE: Final = (
    "batch numbers of a writer go up, and a repeated batch has the rows that it had: see 'Batches that come again' in"
    " docs/spark.md"
)

# For a user of the Parquet tables of earlier versions.
DELTA_ONLY: Final = "tables are Delta only: see 'From Parquet to Delta' in docs/lake.md"

NEEDS_DELTA: Final = "tables need the package deltalake: pip install 'penstock[delta]'"


class PipelineError(PenstockError):
    """A pipeline cannot be planned or run, in one sentence that names the option or the place."""

    def __init__(self, message: str, kind: ErrorKind = ErrorKind.BAD_PARAMETER) -> None:
        super().__init__(kind, message)

    def __reduce__(self) -> tuple[type["PipelineError"], tuple[str, ErrorKind]]:  # type: ignore[override]
        return type(self), (self.message, self.kind)


class DataLoss(PipelineError):
    """Messages that were to be read are not there: retention took them, or the topic was deleted and created again."""

    def __init__(self, message: str, kind: ErrorKind = ErrorKind.MESSAGE_NOT_FOUND) -> None:
        super().__init__(_marked("[PENSTOCK_DATA_LOSS]", message), kind)


class SchemaChanged(PipelineError):
    """A schema that the query was not planned with: the query is planned again, from the same checkpoint."""

    def __init__(self, message: str, kind: ErrorKind = ErrorKind.INCOMPATIBLE_SCHEMA) -> None:
        super().__init__(_marked("[PENSTOCK_SCHEMA_CHANGED]", message), kind)


class BatchConflict(PipelineError):
    """A batch that is neither new nor a repeat of the last: to write it would store rows twice, or lose some."""

    def __init__(self, message: str, kind: ErrorKind = ErrorKind.BATCH_CONFLICT) -> None:
        super().__init__(message if message.endswith(RECIPE) else f"{message}; {RECIPE}", kind)


class SinkFailed(PipelineError):
    """Rows could not be written to a sink. The message begins with a mark that holds the class of the trouble."""

    @classmethod
    def of(cls, trouble: str, sentence: str) -> "SinkFailed":
        """`trouble` is a class of `run.failures`, by its name there."""
        return cls(
            f"[PENSTOCK_TROUBLE {trouble}] {' '.join(sentence.split())}"
        )  # one line, as Spark hands on text


@contextmanager
def as_pipeline_errors() -> Iterator[None]:
    """Let what other packages raise of schemas and values be a PipelineError."""
    try:
        yield
    except PipelineError:
        raise
    except PenstockError as error:
        raise PipelineError(error.message, error.kind) from None


def _marked(mark: str, message: str) -> str:
    return message if message.startswith(mark) else f"{mark} {message}"
