"""Makes Spark find the data source `penstock` by itself: it imports every top-level module `pyspark_…`.

Every Spark session of an environment imports this module, whether it uses Penstock or not. So nothing else is
imported before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Topics as tables: `spark.read.format("penstock").option("url", …).option("subscribe", …).load()`."""

    @classmethod
    def name(cls) -> str:
        """The name for `format` and `USING`."""
        return "penstock"

    def schema(self) -> StructType:
        """The columns, as the options choose them."""
        from penstock.pipeline.source.query import table_schema

        return table_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of what is there now."""
        from penstock.pipeline.source.query import reader_for

        return reader_for(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A reader of what comes."""
        from penstock.pipeline.versions import LIMITS

        if not LIMITS:
            from penstock.pipeline.source.unasked import UnaskedStreamReader

            return UnaskedStreamReader(self.options, schema)
        from penstock.pipeline.source.stream import TopicStreamReader

        return TopicStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer into topics."""
        from penstock.pipeline.sink.writer import TopicWriter

        return TopicWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """A writer of a stream into topics."""
        from penstock.pipeline.sink.writer import TopicStreamWriter

        return TopicStreamWriter(self.options, schema)
