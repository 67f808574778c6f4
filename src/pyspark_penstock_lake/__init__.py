"""Makes Spark find the data source `penstock_lake` by itself: it imports every top-level module `pyspark_…`.

Every Spark session of an environment imports this module, whether it uses Penstock or not. So nothing else is
imported before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamWriter, DataSourceWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Tables: `spark.read.format("penstock_lake").load(path)`, `df.write.format("penstock_lake").save(path)`."""

    @classmethod
    def name(cls) -> str:
        """The name for `format` and `USING`."""
        return "penstock_lake"

    def schema(self) -> StructType:
        """The table's columns."""
        from penstock.pipeline.lake.reader import table_schema

        return table_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the table as it is now."""
        from penstock.pipeline.lake.reader import reader_for

        return reader_for(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer of one batch."""
        from penstock.pipeline.lake.sink import BatchWriter

        return BatchWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """A writer of a query's batches."""
        from penstock.pipeline.lake.sink import StreamWriter

        return StreamWriter(self.options, schema, overwrite=overwrite)
