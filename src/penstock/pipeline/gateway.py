"""Starts the JVM of Spark's session, and connects to it; what it says at its start without need is left out.

The two are apart, as PySpark has them in one: a JVM takes seconds until it listens, in which this process may import what
else it needs. No thread waits for it, since modules that are imported by two threads at a time may be seen half made.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

LOOK_S: Final = 0.02  # whether the JVM listens

_PORT: Final = "PYSPARK_GATEWAY_PORT"
_SECRET: Final = "PYSPARK_GATEWAY_SECRET"  # noqa: S105 - the name of a variable

# Spark asks for the module and Java says that it is experimental; Spark's Java options are those of its
# oldest Java, and newer ones find fault with them. Java has no switch for either.
_NOISE: Final = (
    b"WARNING: Using incubator modules: jdk.incubator.vector",
    b"WARNING: package sun.security.action not in java.base",
)


def was_submitted() -> bool:
    """Whether `spark-submit` started this process, so that there is a JVM to connect to."""
    return _PORT in os.environ


def has_java() -> bool:
    """Whether this process has a JVM, or was started by one."""
    return SparkContext._gateway is not None or was_submitted()


class Gateway:
    """A JVM that starts, as `launch_gateway` of PySpark would start it. It ends when its stdin does, so with this process."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """`settings` are Spark's configuration."""
        self._conf = SparkConf(loadDefaults=False)
        for key, value in settings.items():
            self._conf.set(key, value)
        self._folder = Path(tempfile.mkdtemp())  # where it says how to reach it; no other user's
        self._said = self._folder / "gateway"
        reading, writing = os.pipe()
        threading.Thread(
            target=_relay, args=(os.fdopen(reading, "rb"),), name="spark-stderr", daemon=True
        ).start()
        try:
            self._process = subprocess.Popen(
                _command(settings),
                stdin=subprocess.PIPE,
                stderr=writing,
                env={
                    **os.environ,
                    "SPARK_CONNECT_MODE": "0",
                    "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._said),
                },
                preexec_fn=_ignore_interrupts,
            )
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        finally:
            os.close(writing)  # the JVM has its own; ours would keep the relay waiting after its end

    def connect(self) -> None:
        """Wait until it listens, and let PySpark use it. Raises PySparkRuntimeError where it does not start."""
        try:
            port, secret = self._address()
            os.environ |= {_PORT: str(port), _SECRET: secret}
            try:
                gateway = launch_gateway(self._conf)  # type: ignore[no-untyped-call]
            finally:
                del os.environ[_PORT], os.environ[_SECRET]
        except BaseException:
            self.kill()
            raise
        shutil.rmtree(self._folder, ignore_errors=True)
        gateway.proc = self._process
        SparkContext._ensure_initialized(gateway=gateway, conf=self._conf)

    def kill(self) -> None:
        """End it before it is used."""
        self._process.kill()
        self._process.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _address(self) -> tuple[int, str]:
        while not self._said.is_file():  # it is renamed to that when it is whole
            if self._process.poll() is not None:
                raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
            time.sleep(LOOK_S)
        with self._said.open("rb") as said:
            return read_int(said), UTF8Deserializer().loads(said)  # type: ignore[no-untyped-call]


def end_java(timeout_s: float) -> None:
    """End the JVM, whose session is stopped, and wait for what it does at its end; after `timeout_s` it is killed."""
    java: Any = SparkContext._gateway.proc  # type: ignore[union-attr]
    with suppress(OSError):
        java.stdin.close()  # its order to end
    try:
        java.wait(timeout_s)
    finally:
        java.kill()


def _command(settings: Mapping[str, str]) -> list[str]:
    command = [str(Path(_find_spark_home(), "bin", "spark-submit"))]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    return command + shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))


def _ignore_interrupts() -> None:
    """Ctrl-C is the driver's to hear."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _relay(lines: IO[bytes]) -> None:
    """Hand on what the JVM writes, line by line, but for the noise."""
    with lines:
        for line in lines:
            if not line.startswith(_NOISE):
                sys.stderr.write(line.decode(errors="replace"))
                sys.stderr.flush()
