"""`penstock pipeline prepare-java`: has Java keep Spark's classes as it has loaded them, for quicker starts.

Java writes down what it loaded in a run. So one is made: a server of its own, some thousand messages, a declared pipeline
with all that most pipelines have, and queries.
"""

import fcntl
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.pipeline import class_data
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.extras import need_extras
from penstock.pipeline.java import chosen_java, probe

from . import output
from .options import output_option
from .pipeline_group import pipeline_command

MESSAGES: Final = 20_000
BATCH: Final = 1_000
WRITE_S: Final = 600.0  # Java needs 15 to 40 s of CPU to write it
NEW: Final = "new-"
STARTED: Final = "java.json"  # the arguments of the Java that writes it

PIPELINE: Final = """
name = "prepare"
trigger = "available_now"
dead_letters = "dead"
[sources.s]
topics = ["in"]
[[steps]]
name = "read"
sql = '''
SELECT f.word, f.number, to_timestamp(f.at) AS at, key, value, properties, topic, partition, offset
FROM (SELECT *, from_json(CAST(value AS STRING), 'word STRING, number DOUBLE, at STRING') AS f FROM s)
'''
expect = [
  { name = "readable", predicate = "word IS NOT NULL", action = "dead_letter" },
  { name = "small", predicate = "number < 1e6", action = "warn" },
]
watermark = { column = "at", delay = "1 minute", late = "dead_letter" }
[[steps]]
name = "counted"
sql = "SELECT window.start AS at, word, count(*) AS c, avg(number) AS mean FROM read GROUP BY window(at, '1 minute'), word"
[sinks.topic]
input = "counted"
topic = "out"
key = "word"
[sinks.table]
input = "counted"
path = "table"
"""
QUERY: Final = """
SELECT * FROM (SELECT word, sum(c) AS c FROM table GROUP BY word ORDER BY word) JOIN (SELECT count(*) AS n FROM out)
"""


@pipeline_command.command("prepare-java")
@click.option("--remove", is_flag=True, help="Remove what this command has written, for every Java.")
@output_option
def prepare_java(remove: bool) -> None:
    """Let Spark start with less CPU from now on, for 180 to 210 MB of disk.

    Takes a minute or so. Java writes Spark's classes, as it has loaded them, to a file in the user's folder for caches
    (`$XDG_CACHE_HOME/penstock/java`, else in ~/.cache). Every start on this Java and Spark uses it. After an upgrade of
    either it is not used any more: call this again.
    """
    folder = class_data.folder()
    if remove:
        removed = _remove(folder) if folder.is_dir() else []
        output.done(f"removed {len(removed)} files", removed=[str(path) for path in removed])
        return
    need_extras(tables=True)
    archive = class_data.class_data(chosen_java())
    folder.mkdir(parents=True, exist_ok=True)
    _protect(folder)
    with _alone(folder), tempfile.TemporaryDirectory(dir=folder, prefix=NEW) as name:
        new = Path(name, "classes")
        options = archive.writing(new)
        click.echo("Spark runs a small pipeline, and Java writes what it loaded: about a minute …", err=True)
        _run(Path(name), options)
        _check(archive, new, json.loads(Path(name, STARTED).read_bytes()), options)
        _protect(new)
        size = new.stat().st_size
        file = archive.file_of(size)
        # A file that has its name and its size, but not all that is in it, makes every start crash.
        _sync(new)
        new.replace(file)
        _sync(folder)
    for old in archive.older():
        old.unlink()
    output.done(
        f"{file} ({size / 1e6:.0f} MB) makes Spark start with less CPU; --remove removes it",
        file=str(file),
        bytes=size,
    )


def _remove(folder: Path) -> list[Path]:
    """Remove all that this command has written; what that was."""
    with _alone(folder) as left:
        files = list(folder.glob("*.classes"))
        for file in files:
            file.unlink()
        return files + left


@contextmanager
def _alone(folder: Path) -> Iterator[list[Path]]:
    """No other run of this command works in the folder meanwhile: else raises PipelineError. Removes what runs that
    were killed have left, and yields what that was."""
    file = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineError(f"another prepare-java works in {folder}: wait for its end") from None
        except OSError:
            pass  # NFS locks no folder
        left = list(folder.glob(f"{NEW}*"))
        for path in left:
            shutil.rmtree(path, ignore_errors=True)
        yield left
    finally:
        os.close(file)


def _check(archive: class_data.ClassData, new: Path, started: list[str], writing: list[str]) -> None:
    """Raises PipelineError unless Java, started as Spark did, takes what it has written: a disk may be full."""
    as_spark = [argument for argument in started if argument not in writing]
    java = archive.java.home / "bin" / "java"
    if not new.is_file() or probe(java, *as_spark, *archive.reading(new), archive.strict) is None:
        raise PipelineError(f"the Java in {archive.java.home} does not take the classes that it has written")


def _protect(path: Path) -> None:
    """Let no other user write there, whatever the umask. Others may read: an image is built by root."""
    about = path.stat()
    if about.st_uid == os.getuid():
        path.chmod(stat.S_IMODE(about.st_mode) & ~0o022)
    if not class_data.is_safe(path):
        raise PipelineError(f"{path} belongs to another user: set XDG_CACHE_HOME to a folder of this one's")


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _run(folder: Path, options: list[str]) -> None:
    """Spark on a JVM with these options, to its end, in a process of its own: Java says much as it writes."""
    command = [sys.executable, "-m", __name__, str(folder), *options]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        raise PipelineError(f"Spark could not be run: {said[-1]}")


def main() -> None:
    """`python -m penstock.cli.pipeline_java FOLDER OPTION…`"""
    from penstock.pipeline.gateway import end_java
    from penstock.pipeline.session import java_options, session, with_java_options
    from penstock.testing.server import launch  # imports a whole server: not for every command of the group

    folder, key = Path(sys.argv[1]), "spark.driver.extraJavaOptions"
    settings: dict[str, Any] = with_java_options({key: java_options({})}, sys.argv[2:])
    with launch(folder / "data", "--set", "log.level=error") as server:
        _publish(server.url)
        spark = session("prepare-java", **settings)
        try:
            spark.sparkContext.setLogLevel("ERROR")
            (folder / STARTED).write_text(json.dumps(_arguments(spark)))
            _load_classes(spark, server.url, folder)
            spark.stop()
        finally:
            end_java(WRITE_S)


def _arguments(spark: Any) -> list[str]:
    """What the JVM was started with: its class path and its options, which an archive must fit."""
    java = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    return ["-cp", java.getClassPath(), *java.getInputArguments()]


def _publish(url: str) -> None:
    topic = TopicName.parse("in")
    with HttpClient(url) as client:
        client.create_topic(topic, 2)
        for first in range(0, MESSAGES, BATCH):
            client.produce(topic, [_message(number) for number in range(first, first + BATCH)])


def _message(number: int) -> dict[str, str]:
    minute, second = divmod(number // 10, 60)
    at = f"2026-01-31T{minute // 60:02}:{minute % 60:02}:{second:02}Z"
    value = json.dumps({"word": f"word {number % 7}", "number": number / 3, "at": at})
    return {"key": str(number % 7), "value": value if number % BATCH else "no JSON"}


def _load_classes(spark: Any, url: str, folder: Path) -> None:
    """What pipelines and queries do, so that their classes are loaded."""
    from penstock.pipeline.run.handle import Pipeline
    from penstock.pipeline.spec.parse import load_spec

    file = folder / "prepare.toml"
    file.write_text(PIPELINE, encoding="utf-8")
    Pipeline(load_spec(file, url=url, state=folder / "state"), spark).start().await_termination()
    reader = spark.read.format("penstock").option("url", url)
    reader.option("subscribe", "out").load().createOrReplaceTempView("out")
    spark.read.format("penstock_lake").load(str(folder / "table")).createOrReplaceTempView("table")
    spark.sql(QUERY).collect()


if __name__ == "__main__":
    main()
