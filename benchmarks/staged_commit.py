"""How long a batch takes to be staged, and to be committed, on each engine.

    python -m benchmarks.staged_commit [--messages 10000000] [--engine memory|sqlite|kafka|pulsar ...] [--folder DIR]

One writer stages messages of 100 bytes for a topic of 4 partitions, in entries of 1,000 messages and parts of 60,000 (6 MB), as a task of
Spark does, and commits them. The brokers are those of the tests (`scripts/kafka.sh fetch`, `scripts/pulsar.sh fetch`), one
node each, and the data of all lies in one folder.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.support import kafka_broker, pulsar_broker

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.pipeline.http.stages import StageCount, Stages
from penstock.wire.batch import pack_plain
from penstock.wire.bulk import batch_entry, pack_sections

from . import servers
from .servers import process_cpu_s

ENGINES: Final = ("memory", "sqlite", "kafka", "pulsar")
PARTITIONS: Final = 4
ENTRY: Final = 1_000
PART: Final = 60
VALUE: Final = b"x" * 100
TOPIC: Final = TopicName.parse("committed")


def measure(engine: str, url: str, process: int, messages: int) -> None:
    """Stage and commit; prints one line."""
    with HttpClient(url) as http:
        http.create_topic(TOPIC, PARTITIONS)
    payload = pack_plain([VALUE] * ENTRY)
    with Stages(Access(url=url)) as client:
        client.open_topics([TOPIC])
        begun = time.perf_counter()
        size = parts = 0
        for part, first in enumerate(range(0, messages, ENTRY * PART)):
            entries = [
                batch_entry(payload, ENTRY, producer="bench", sequence_id=number, publish_time=1)
                for number in range(first, min(first + ENTRY * PART, messages), ENTRY)
            ]
            partition = f"{TOPIC}-partition-{part % PARTITIONS}"
            client.stage("bench", 0, "task", part, b"".join(pack_sections([(partition, entries)])))
            size += sum(map(len, entries))
            parts += 1
        staged, before = time.perf_counter(), process_cpu_s(process)
        done = client.commit("bench", 0, [StageCount("task", parts, messages, size)], [TOPIC])
        committed = time.perf_counter()
    assert sum(span["messages"] for span in done["spans"]) == messages
    used = process_cpu_s(process) - before
    print(
        f"{engine:8} {messages:>12,} messages, {size / 1e6:,.0f} MB: staged in {staged - begun:.1f} s, committed in"
        f" {committed - staged:.1f} s, {used:.1f} s of CPU of the server's",
        flush=True,
    )


@contextmanager
def served(engine: str, folder: Path) -> Iterator[tuple[str, int]]:
    """The URL of a server over an engine, and its process."""
    with ExitStack() as opened:
        flags: tuple[str, ...] = ("--memory",) if engine == "memory" else ()
        if engine == "kafka":
            cluster = opened.enter_context(kafka_broker.standalone(folder))
            flags = ("--engine", cluster.service_url)
        elif engine == "pulsar":
            settings = {**pulsar_broker.NUMBERED, "transactionCoordinatorEnabled": "true"}
            broker = opened.enter_context(pulsar_broker.standalone(folder, settings))
            flags = ("--engine", broker.service_url, "--admin", broker.admin_url)
        server = opened.enter_context(servers.penstock(*flags, folder=folder))
        yield f"http://127.0.0.1:{server.port}", server.pid


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=10_000_000, help="a multiple of 1,000")
    parser.add_argument("--engine", choices=ENGINES, nargs="+", default=ENGINES)
    parser.add_argument("--folder", type=Path, help="where data goes (default: the temporary folder)")
    given = parser.parse_args()
    for engine in given.engine:
        with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=given.folder) as name:
            folder = Path(name) / "data"
            folder.mkdir()
            with served(engine, folder) as (url, process):
                measure(engine, url, process, given.messages)


if __name__ == "__main__":
    main()
