"""Runs the declared pipeline `delays.toml`, and asks its table who is late, and when."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

PIPELINE: Final = "delays.toml"

_QUERY: Final = """
SELECT carrier, hour, sum(flights) AS flights, sum(departed) AS departed,
       round(sum(delay * departed) / sum(departed), 1) AS delay
FROM delays
GROUP BY carrier, hour
ORDER BY carrier, hour
"""


class Delays:
    """The pipeline with its state and its table in a folder, and the Spark session that it runs in."""

    def __init__(self, url: str, folder: Path) -> None:
        self.file = folder / PIPELINE
        self._url = url
        self._folder = folder
        self._spark: Any = None

    def __enter__(self) -> Self:
        from penstock.pipeline.session import session

        shutil.copyfile(Path(__file__).with_name(PIPELINE), self.file)
        self._spark = session("penstock-demo")
        self._spark.sparkContext.setLogLevel("ERROR")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spark.stop()

    def run(self, listener: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Process what is there; returns the last event."""
        from penstock.pipeline.run.handle import Pipeline
        from penstock.pipeline.spec.parse import load_spec

        spec = load_spec(self.file, url=self._url, state=self._folder / "state")
        pipeline = Pipeline(spec, self._spark, listener).start()
        pipeline.await_termination()
        return pipeline.progress

    def query(self) -> list[dict[str, Any]]:
        """Flights, those that departed, and their mean delay (minutes) per carrier and scheduled hour."""
        table = self._spark.read.format("penstock_lake").load(str(self._folder / "delays"))
        table.createOrReplaceTempView("delays")
        return [row.asDict() for row in self._spark.sql(_QUERY).collect()]
