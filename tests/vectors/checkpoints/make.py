"""Makes the state of a pipeline, with the server's data and the table that belong to it, by any version.

How the archives beside this file were made, each by the last commit whose version of the checkpoint it has:

    PYTHONPATH=THAT/src python make.py version-N.tar.gz

Version 1: commit bf742262; 2: the commit that brought it.
"""

import sys
import tarfile
import tempfile
from pathlib import Path

from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.pipeline.run.handle import Pipeline
from penstock.pipeline.session import session
from penstock.pipeline.spec.parse import load_spec
from penstock.testing.server import running

FILE = """
name = "kept"
dead_letters = "dead"
spark."spark.sql.shuffle.partitions" = 1
[sources.s]
topics = ["in"]
[[steps]]
name = "read"
sql = "SELECT CAST(value AS STRING) AS n, timestamp, key, value, properties, topic, partition, offset FROM s"
expect = [{ name = "a number", predicate = "n RLIKE '^[0-9]+$'", action = "dead_letter" }]
watermark = { column = "timestamp", delay = "36500 days" }
[[steps]]
name = "once"
deduplicate = ["n"]
inputs = ["read"]
[sinks.out]
input = "once"
topic = "out"
value = "n"
[sinks.table]
input = "once"
path = "table"
"""


def make(archive: Path) -> None:
    """Two batches, of which the second is in both sinks, and not yet over as far as Spark knows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "p.toml").write_text(FILE)
        spark = session("vector", "local[1]")
        with running(folder / "data") as server, HttpClient(server.url) as client:
            spec = load_spec(folder / "p.toml", url=server.url, state=folder / "state")
            client.create_topic(TopicName.parse("in"), 0)
            for values in (["0", "1", "x", "2"], ["1", "3", "y", "4"]):
                client.produce(TopicName.parse("in"), [{"value": value} for value in values])
                pipeline = Pipeline(spec, spark).start(once=True)
                assert pipeline.await_termination(300)
        spark.stop()
        commits = folder / "state" / "kept" / "checkpoint" / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)
        with tarfile.open(archive, "w:gz") as tar:
            for part in ("data", "state", "table"):
                tar.add(folder / part, part)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
