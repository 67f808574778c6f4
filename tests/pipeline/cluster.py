"""A standalone Spark cluster on loopback: one master and two workers, from the same wheel, as three JVMs.

The wheel has no scripts to start one, so the classes are started directly. Every port is the system's choice. Each
worker is a host of its own to Spark, 127.0.0.1 and 127.0.0.2: it runs a second copy of a slow task on another host
only.
"""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pyspark

from penstock.pipeline.session import find_java

WORKERS: Final = 2
START_S: Final = 250
FAST_START: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # these machines live for seconds

_HOME: Final = Path(pyspark.__file__).parent
_MODULES: Final = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in [
        "java.lang",
        "java.lang.invoke",
        "java.lang.reflect",
        "java.io",
        "java.net",
        "java.nio",
        "java.util",
        "java.util.concurrent",
        "java.util.concurrent.atomic",
        "jdk.internal.ref",
        "sun.nio.ch",
        "sun.nio.cs",
        "sun.security.action",
        "sun.util.calendar",
    ]
]


class Cluster(NamedTuple):
    """The master's URL, and its workers to be killed."""

    url: str
    workers: list["_Daemon"]


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Yield it once every worker has registered; its files stay in `folder`."""
    daemons: list[_Daemon] = []
    try:
        master = _Daemon(folder, "master", "127.0.0.1", "org.apache.spark.deploy.master.Master")
        daemons.append(master)
        url = master.wait_for(r"Starting Spark master at (spark://\S+)")
        for number in range(WORKERS):
            name = f"worker-{number}"
            worker = _Daemon(
                folder, name, f"127.0.0.{number + 1}", "org.apache.spark.deploy.worker.Worker", "-c", "1", "-m", "1g",
                "-d", str(folder / name), url,
            )  # fmt: skip
            daemons.append(worker)
        for daemon in daemons[1:]:
            daemon.wait_for(r"Successfully registered with master")
        yield Cluster(url, daemons[1:])
    finally:
        for daemon in reversed(daemons):
            daemon.stop()


class _Daemon:
    """One JVM; what it says is kept in `<name>.log`."""

    def __init__(self, folder: Path, name: str, host: str, main: str, *arguments: str) -> None:
        home = find_java()
        command = [
            str(home / "bin" / "java"), "-Xmx256m", *_MODULES, "-cp", f"{_HOME / 'jars'}/*",
            main, "--host", host, "--port", "0", "--webui-port", "0", *arguments,
        ]  # fmt: skip
        environment = os.environ | {
            "JAVA_HOME": str(home),
            "SPARK_HOME": str(_HOME),
            "SPARK_SCALA_VERSION": "2.13",  # else the launcher looks for a build tree
            "SPARK_LOCAL_IP": host,
            "PYSPARK_PYTHON": sys.executable,
            "JAVA_TOOL_OPTIONS": FAST_START,  # the workers' executors have it, too
        }
        environment.pop("PYSPARK_GATEWAY_PORT", None)
        folder.mkdir(exist_ok=True)
        self._log = folder / f"{name}.log"
        self._lines: list[str] = []
        self._grown = threading.Condition()
        self._process = subprocess.Popen(
            command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._log.open("w") as log:
            for line in self._process.stdout:
                log.write(line)
                log.flush()
                with self._grown:
                    self._lines.append(line)
                    self._grown.notify_all()

    def wait_for(self, pattern: str) -> str:
        """The first group (or all) of the first line that matches."""
        found: list[str] = []

        def there() -> bool:
            for line in self._lines:
                if match := re.search(pattern, line):
                    found.append(match[match.re.groups and 1])
                    return True
            return self._process.poll() is not None and not self._reader.is_alive()

        with self._grown:
            ended = self._grown.wait_for(there, START_S)
        if not found:
            said = "".join(self._lines[-20:])
            raise RuntimeError(f"{'it ended' if ended else 'no such line in time'}: {pattern}\n{said}")
        return found[0]

    def kill(self) -> None:
        """SIGKILL, for a worker and its executors at once."""
        children = Path(f"/proc/{self._process.pid}/task").glob("*/children")
        executors = [int(pid) for file in children for pid in file.read_text().split()]
        for pid in (*executors, self._process.pid):
            os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(30)
        assert self._process.stdout is not None
        self._process.stdout.close()
