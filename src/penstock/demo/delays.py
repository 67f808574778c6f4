"""The declared pipeline of the demonstrations, in a Spark session of its own."""

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import click
from rich.console import Console

from penstock.model.names import TopicName
from penstock.testing.server import Address

from .flights import COUNT, publish_trouble
from .steps import say

_QUERY: Final = """
SELECT carrier, hour, sum(flights) AS flights, sum(departed) AS departed,
       round(sum(delay * departed) / sum(departed), 1) AS delay
FROM delays
GROUP BY carrier, hour
ORDER BY carrier, hour
"""


def spark(
    console: Console, server: Address, topic: TopicName, folder: Path, declared: str
) -> tuple[int, int, list[dict[str, Any]]]:
    """Run the declared pipeline over the flights of a topic, publish what it has to turn away, and run it again.

    Returns how many are late, how many are broken, and the rows of a query over its table.
    """
    started = time.perf_counter()
    with console.status("   Spark starts …") as status:

        def show_progress(event: dict[str, Any]) -> None:
            if event.get("batch") is not None:
                status.update(
                    f"   batch {event['batch']}: {event['rows_total']:,} messages, {event['batch_ms']:,} ms"
                )

        with Delays(server.url, folder, declared) as pipeline:
            ready = time.perf_counter()
            first = pipeline.run(show_progress)
            seconds = time.perf_counter() - ready
            if first["rows_total"] != COUNT:
                raise click.ClickException(f"Spark read {first['rows_total']:,} flights of {COUNT:,}")
            say(
                console,
                f"   {COUNT:,} messages read and grouped in {seconds:.1f} s, after {ready - started:.1f} s for Spark to"
                " start",
            )
            late, broken = publish_trouble(server.url, topic)
            second = pipeline.run(show_progress)
            rows = pipeline.query()
    if second["rejected"] != late + broken:
        raise click.ClickException(f"{second['rejected']} rows were turned away, not {late + broken}")
    if (counted := sum(row["flights"] for row in rows)) != COUNT:
        raise click.ClickException(f"the table counts {counted:,} flights of {COUNT:,}")
    return late, broken, rows


class Delays:
    """A declared pipeline with its state and its table in a folder, and the Spark session that it runs in."""

    def __init__(self, url: str, folder: Path, declared: str) -> None:
        """`declared` is the text of its file."""
        self.file = folder / "delays.toml"
        self._declared = declared
        self._url = url
        self._folder = folder
        self._spark: Any = None

    def __enter__(self) -> Self:
        from penstock.pipeline.session import session, short_run

        self.file.write_text(self._declared, encoding="utf-8")
        short = short_run({})  # as `pipeline run --once` finds out by itself
        self._spark = session("penstock-demo", scratch=None, **short)
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
