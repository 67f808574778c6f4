"""Makes Spark find the data source `penstock` by itself: it imports every top-level module `pyspark_…`.

Every Spark session of an environment imports this module, whether it uses Penstock or not. So nothing else is
imported before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader

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
        from penstock.pipeline.source.batch import table_schema

        return table_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of what is there now."""
        from penstock.pipeline.source.batch import TopicReader

        return TopicReader(self.options, schema)
