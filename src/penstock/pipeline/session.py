"""One function that makes a Spark session as pipelines need it: any Java, the right Python, quiet, in UTC."""

import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from .class_data import class_data
from .errors import PipelineError
from .java import chosen_java, find_java
from .python import fork_script
from .versions import CHECKPOINTING, WRAPPED

HEAP: Final = "1g"  # measured: half of it serves, twice as much is no faster

# Spark's 200 is meant for terabytes: each one is a task and a store of state in every batch of a stream, and a
# checkpoint keeps the number that it began with.
CLUSTER_SHUFFLE: Final = "16"

_DAEMON: Final = "spark.python.use.daemon"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"

_LOGGING: Final = Path(__file__).with_name("log4j2.properties")

# The other one, which Spark prefers, starts `readlink` sixteen times a batch where the checkpoint is on this machine:
# a sixth of what a small batch costs. Either writes a file beside and renames it.
_LOCAL_CHECKPOINTS: Final = (
    f"org.apache.spark.sql.execution.streaming.{CHECKPOINTING}FileSystemBasedCheckpointFileManager"
)

# Java compiles what it has run often with its slow compiler: half of the CPU of a run of seconds, in which little pays
# that back. So ten times as often; what a batch of 100,000 rows does for each of them is compiled all the same.
_COMPILE: Final = " ".join(
    f"-XX:Tier4{name}={times}"
    for name, times in (
        ("InvocationThreshold", 50_000),
        ("MinInvocationThreshold", 6_000),
        ("CompileThreshold", 150_000),
        ("BackEdgeThreshold", 400_000),
    )
)

JAVA_OPTIONS: Final = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} {_COMPILE}"

_CONF: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.python.filterPushdown.enabled": "true",  # else a source that could filter cannot be read at all
    "spark.driver.memory": HEAP,
    _JAVA_OPTIONS: JAVA_OPTIONS,
    **WRAPPED,
}

# Spark asks for the module and Java says that it is experimental; Spark's Java options are those of its
# oldest Java, and newer ones find fault with them. Java has no switch for either.
_NOISE: Final = (
    b"WARNING: Using incubator modules: jdk.incubator.vector",
    b"WARNING: package sun.security.action not in java.base",
)


def session(
    name: str = "penstock", master: str = "local[*]", *, scratch: Path | None = None, **conf: str
) -> SparkSession:
    """Start a session, or return the one there is. `conf` is Spark's own and wins: `**{"spark.…": "…"}`.

    What Spark writes beside its results (spilled and cached data, copies of state, artifacts, its warehouse) goes to
    the system's folder for temporary files, or to `scratch`, where it is easily removed after a kill.

    Within `spark-submit` its master and Java are taken. Else Spark's processes get JAVA_HOME and, on this machine,
    PYSPARK_PYTHON in their environment; this process's own is as before. Raises PipelineError where there is no Java.
    """
    changed: dict[str, str] = {}
    if SparkSession.getActiveSession() is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        changed["JAVA_HOME"] = str(find_java())
    if submitted := "PYSPARK_GATEWAY_PORT" in os.environ:
        master = _submitted_master(master)
    if master.startswith("local"):
        # Else Spark takes the first python3 on PATH, which need not have Penstock or Arrow.
        python = _python(conf, None if submitted else scratch)
        changed["PYSPARK_PYTHON"] = changed["PYSPARK_DRIVER_PYTHON"] = python
    settings = settings_for(master, conf)
    kept: list[str] = []
    if SparkContext._gateway is None and not submitted:  # the JVM is still to be started
        if _JAVA_OPTIONS not in conf:
            kept = class_data(chosen_java()).using()
            settings = with_java_options(settings, kept)
        if scratch is not None:
            settings = _within(settings, scratch, conf)
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _environment(changed):
        try:
            _launch(settings)
        except PySparkRuntimeError as error:
            if not kept:
                raise
            raise PipelineError(
                f"Java did not start with {kept[0]}: if that file is damaged, this removes it:"
                " penstock pipeline prepare-java --remove"
            ) from error
        return builder.getOrCreate()


@contextmanager
def _environment(changed: Mapping[str, str]) -> Iterator[None]:
    """Variables for the JVM, and for PySpark as it starts a context. They stay out of what else this process starts, or
    a later session with another master: their paths are of this process, on this machine."""
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _python(conf: Mapping[str, Any], scratch: Path | None) -> str:
    """What Spark is to run as Python; a script, unless Spark's processes are not to be forked."""
    return sys.executable if str(conf.get(_DAEMON, "true")).lower() == "false" else fork_script(scratch)


def settings_for(master: str, conf: Mapping[str, Any]) -> dict[str, str]:
    """Spark's configuration for a master; what `conf` says wins."""
    settings = dict(_CONF)
    if master.startswith("local"):
        # One port of Spark's on an outer address is one too many; and a host name need not resolve.
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
        settings["spark.sql.shuffle.partitions"] = str(threads(master))
        settings["spark.sql.streaming.checkpointFileManagerClass"] = _LOCAL_CHECKPOINTS
    else:
        settings["spark.sql.shuffle.partitions"] = CLUSTER_SHUFFLE
    settings |= {key: str(value) for key, value in conf.items()}
    return settings


def _submitted_master(master: str) -> str:
    """The master that `spark-submit` was given: it runs this process, and is stronger."""
    SparkContext._ensure_initialized()
    return SparkConf().get("spark.master", master) or master


def _within(settings: Mapping[str, str], scratch: Path, conf: Mapping[str, Any]) -> dict[str, str]:
    """The settings with Spark's temporary files in a folder; this process's and its children's go there too."""
    scratch.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(scratch)
    warehouse = str(conf.get("spark.sql.warehouse.dir", scratch / "warehouse"))
    return with_java_options(settings, [f"-Djava.io.tmpdir={scratch}"]) | {
        "spark.sql.warehouse.dir": warehouse
    }


def with_java_options(settings: Mapping[str, str], options: Iterable[str]) -> dict[str, str]:
    """The settings with further options of the driver's JVM."""
    words = [settings.get(_JAVA_OPTIONS, ""), *(f'"{option}"' for option in options)]
    return {**settings, _JAVA_OPTIONS: " ".join(words).strip()}


def threads(master: str) -> int:
    """How many tasks `local[…]` runs at once."""
    inside = master.removeprefix("local").strip("[]").split(",")[0].strip()
    if inside == "*":
        return os.cpu_count() or 1
    return int(inside) if inside.isdigit() else 1


def _launch(settings: Mapping[str, str]) -> None:
    """Start the JVM, unless this process has one or was started by one.

    A JVM prints lines at its start that call for no action: they are left out.
    """
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    reading, writing = os.pipe()
    threading.Thread(
        target=_relay, args=(os.fdopen(reading, "rb"),), name="spark-stderr", daemon=True
    ).start()
    conf = SparkConf(loadDefaults=False)
    for key, value in settings.items():
        conf.set(key, value)
    try:
        gateway = launch_gateway(conf, {"stderr": writing})  # type: ignore[no-untyped-call]
    finally:
        os.close(writing)  # the JVM has its own; ours would keep the relay waiting after its end
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def end_java(timeout_s: float) -> None:
    """End the JVM, whose session is stopped, and wait for what it does at its end; after `timeout_s` it is killed."""
    java: Any = SparkContext._gateway.proc  # type: ignore[union-attr]
    with suppress(OSError):
        java.stdin.close()  # its order to end
    try:
        java.wait(timeout_s)
    finally:
        java.kill()


def _relay(lines: IO[bytes]) -> None:
    """Hand on what the JVM writes, line by line, but for the noise."""
    with lines:
        for line in lines:
            if not line.startswith(_NOISE):
                sys.stderr.write(line.decode(errors="replace"))
                sys.stderr.flush()
