"""Parts of a query that are read from somewhere else than the log, like an archive."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.pipeline.decode.plan import Plan
from penstock.pipeline.rows.rows import Place


class Elsewhere(InputPartition):
    """A task that knows itself where its messages are; they are decoded as those of the log."""

    def __init__(self, place: Place, include: tuple[str, ...], plan: Plan | None) -> None:
        super().__init__(None)
        self.place = place
        self.include = include
        self.plan = plan

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The raw messages in the order of their offsets, each once."""
        raise NotImplementedError
