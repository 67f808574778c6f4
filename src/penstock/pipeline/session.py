"""Makes a Spark session as pipelines need it: any Java, the right Python, quiet, in UTC."""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from .class_data import class_data
from .errors import PipelineError
from .gateway import Gateway, has_java, was_submitted
from .java import chosen_java, find_java
from .python import fork_script
from .versions import CHECKPOINTING, WRAPPED
from .versions import be_active as be_active  # for users, too

HEAP: Final = "1g"  # measured: half of it serves, twice as much is no faster

# Spark's 200 is meant for terabytes: each one is a task and a store of state in every batch of a stream, and a
# checkpoint keeps the number that it began with.
CLUSTER_SHUFFLE: Final = "16"

_DAEMON: Final = "spark.python.use.daemon"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_MEMORY: Final = "spark.driver.memory"

_LOGGING: Final = Path(__file__).with_name("log4j2.properties")

# The other one, which Spark prefers, starts `readlink` sixteen times a batch where the checkpoint is on this machine:
# a sixth of what a small batch costs. Either writes a file beside and renames it.
_LOCAL_CHECKPOINTS: Final = (
    f"org.apache.spark.sql.execution.streaming.{CHECKPOINTING}FileSystemBasedCheckpointFileManager"
)

# Java compiles what it has run often with its slow compiler: half of the CPU of a run of seconds, in which little pays
# that back. So ten times as often; what a batch of 100,000 rows does for each of them is compiled all the same.
_COMPILE: Final = tuple(
    f"-XX:Tier4{name}={times}"
    for name, times in (
        ("InvocationThreshold", 50_000),
        ("MinInvocationThreshold", 6_000),
        ("CompileThreshold", 150_000),
        ("BackEdgeThreshold", 400_000),
    )
)

# Not at all in a run that is over before the slow compiler pays (`run.backlog`).
_COMPILE_QUICKLY: Final = ("-XX:TieredStopAtLevel=1",)

# With few processors and Spark's own heap the concurrent collector costs more than the pauses that it saves: its threads,
# and what it has the compilers put into all code.
_COLLECT: Final = ("-XX:+UseSerialGC",)
_FEW_PROCESSORS: Final = 4
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w*GC\b")
_JAVA_VARIABLES: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")

# Else the heap is collected each time that this has doubled, from 21 MB on.
_CLASSES: Final = ("-XX:MetaspaceSize=256m",)

_CONF: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.python.filterPushdown.enabled": "true",  # else a source that could filter cannot be read at all
    _MEMORY: HEAP,
    **WRAPPED,
}


def session(
    name: str = "penstock", master: str = "local[*]", *, scratch: Path | None = None, **conf: str
) -> SparkSession:
    """Start a session, or return the one there is. `conf` is Spark's own and wins: `**{"spark.…": "…"}`.

    What Spark writes beside its results (spilled and cached data, copies of state, artifacts, its warehouse) goes to
    the system's folder for temporary files, or to `scratch`, where it is easily removed after a kill.

    Within `spark-submit` its master and Java are taken. Else Spark's processes get JAVA_HOME and, on this machine,
    PYSPARK_PYTHON in their environment; this process's own is as before. Raises PipelineError where there is no Java.
    """
    return Starting(name, master, scratch=scratch, short=False, **conf).session()


class Starting:
    """A session that starts: Java does already, and `session` waits for it. Arguments as those of the function `session`."""

    def __init__(
        self,
        name: str = "penstock",
        master: str = "local[*]",
        *,
        scratch: Path | None = None,
        short: bool = False,
        **conf: str,
    ) -> None:
        """`short`: for a run that is over soon, see `run.backlog`. Raises PipelineError where there is no Java."""
        self._environment: dict[str, str] = {}
        self._kept: list[str] = []
        self._gateway: Gateway | None = None
        submitted, launching = was_submitted(), not has_java()
        if SparkSession.getActiveSession() is None and not submitted:
            self._environment["JAVA_HOME"] = str(find_java())
        if submitted:
            master = _submitted_master(master)
        if master.startswith("local"):
            # Else Spark takes the first python3 on PATH, which need not have Penstock or Arrow.
            python = _python(conf, None if submitted else scratch)
            self._environment |= {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
        settings = settings_for(master, conf, short=short)
        if launching:
            if _JAVA_OPTIONS not in conf:
                self._kept = class_data(chosen_java()).using()
                settings = with_java_options(settings, self._kept)
            if scratch is not None:
                settings = _within(settings, scratch, conf)
        self._builder = SparkSession.builder.appName(name).master(master)
        for key, value in settings.items():
            self._builder = self._builder.config(key, value)
        if launching:
            with _environment(self._environment):
                self._gateway = Gateway(settings)

    def session(self) -> SparkSession:
        """The session, when it is there. Raises PipelineError where Java does not start with the classes it has kept."""
        gateway, self._gateway = self._gateway, None
        with _environment(self._environment):
            if gateway is not None:
                try:
                    gateway.connect()
                except PySparkRuntimeError as error:
                    if not self._kept:
                        raise
                    raise PipelineError(
                        f"Java did not start with {self._kept[0]}: if that file is damaged, this removes it:"
                        " penstock pipeline prepare-java --remove"
                    ) from error
            made = self._builder.getOrCreate()
        _write_from_any_thread()
        return made

    def cancel(self) -> None:
        """End the Java that nobody waits for any more."""
        if self._gateway is not None:
            self._gateway.kill()
            self._gateway = None


def _write_from_any_thread() -> None:
    """Call `be_active` for every writer that is made. Spark looks for the formats of Python in the thread's active session,
    which it sets in the thread that made the session, and for reads."""
    for writer in (DataFrameWriter, DataStreamWriter):
        begin = writer.__init__
        if not hasattr(begin, "__wrapped__"):
            setattr(writer, "__init__", _active_first(begin))  # noqa: B010 - which mypy takes for a mistake


def _active_first(begin: Callable[[Any, DataFrame], None]) -> Callable[[Any, DataFrame], None]:
    @wraps(begin)
    def __init__(self: Any, df: DataFrame) -> None:  # noqa: N807 - in place of it
        be_active(df.sparkSession)
        begin(self, df)

    return __init__


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


def java_options(conf: Mapping[str, Any], *, short: bool = False) -> str:
    """Options of the driver's JVM beside those that `conf` sets; `short`: for a run that is over soon."""
    words = [f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}", *_CLASSES]
    words += _COMPILE_QUICKLY if short else _COMPILE
    if _MEMORY not in conf and (os.cpu_count() or 1) <= _FEW_PROCESSORS and not _names_collector(conf):
        words += _COLLECT
    return " ".join(words)


def _names_collector(conf: Mapping[str, Any]) -> bool:
    """Whether the user chose a garbage collector where Java and Spark look: Java does not start with two."""
    texts = [os.environ.get(name, "") for name in _JAVA_VARIABLES]
    texts.append(str(conf.get("spark.driver.defaultJavaOptions", "")))
    folder = os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf")
    with suppress(OSError):
        texts.append(Path(folder, "spark-defaults.conf").read_text("utf-8", "replace"))
    return any(_COLLECTOR.search(text) for text in texts)


def settings_for(master: str, conf: Mapping[str, Any], *, short: bool = False) -> dict[str, str]:
    """Spark's configuration for a master; what `conf` says wins."""
    settings = {**_CONF, _JAVA_OPTIONS: java_options(conf, short=short)}
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
