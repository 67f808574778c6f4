"""What tests of declared pipelines share: a server, files to run, and what is in topics and tables afterwards."""

import json
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.pipeline.run.handle import Pipeline
from penstock.pipeline.spec.parse import load_spec

WAIT_S = 500  # for a run on a busy machine

HOUR = 3600


def _as_text(message: dict[str, Any]) -> dict[str, Any]:
    if message["schema_version"] is None:
        message["value"] = b64decode(message["value"]).decode()
    return message


class Bench:
    """A folder with a pipeline's file, and the server that it reads from."""

    def __init__(self, folder: Path, url: str, spark: SparkSession) -> None:
        self.folder = folder
        self.url = url
        self.spark = spark

    def file(self, text: str, name: str = "p.toml") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def pipeline(self, text: str) -> Pipeline:
        return Pipeline(load_spec(self.file(text), url=self.url, state=self.folder / "state"), self.spark)

    def run_once(self, text: str) -> dict[str, Any]:
        """Process what is there; returns the last event."""
        pipeline = self.pipeline(text).start(once=True)
        assert pipeline.await_termination(WAIT_S), "the run did not end"
        return pipeline.progress

    def create(self, topic: str, partitions: int = 0) -> None:
        with HttpClient(self.url) as client:
            client.create_topic(TopicName.parse(topic), partitions)

    def publish(self, topic: str, rows: Sequence[Any], key: str = "k") -> None:
        """Rows as JSON; texts as they are."""
        messages = [
            {
                "key": row.get(key) if isinstance(row, dict) else "?",
                "value": json.dumps(row) if isinstance(row, dict) else row,
                "properties": {"from": "test"},
            }
            for row in rows
        ]
        with HttpClient(self.url) as client:
            client.produce(TopicName.parse(topic), messages)

    def messages(self, topic: str) -> list[dict[str, Any]]:
        """All messages of a topic, by partition and offset; bytes without a schema as text."""
        name = TopicName.parse(topic)
        found: list[dict[str, Any]] = []
        with HttpClient(self.url) as client:
            for partition in range(max(1, client.partitions(name))):
                while True:
                    start = sum(m["partition"] == partition for m in found)
                    got = client.read(name, partition, offset=start)["messages"]
                    if not got:
                        break
                    found += [_as_text(message) for message in got]
        return found

    def table(self, name: str) -> list[dict[str, Any]]:
        rows = self.spark.read.format("penstock_lake").load(str(self.folder / name)).collect()
        return [row.asDict(recursive=True) for row in rows]
