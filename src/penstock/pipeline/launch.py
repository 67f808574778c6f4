"""Starts Spark's JVM without the lines that a JVM itself prints at start and nobody can act upon."""

import os
import sys
import threading
from collections.abc import Mapping
from typing import IO, Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

# Spark asks for the module and Java says that it is experimental; Spark's Java options are those of its
# oldest Java, and newer ones find fault with them. Java has no switch for either.
_NOISE: Final = (
    b"WARNING: Using incubator modules: jdk.incubator.vector",
    b"WARNING: package sun.security.action not in java.base",
)


def launch(settings: Mapping[str, str]) -> None:
    """Start the JVM, unless this process has one or was started by one."""
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


def _relay(lines: IO[bytes]) -> None:
    """Hand on what the JVM writes, line by line, but for the noise."""
    with lines:
        for line in lines:
            if not line.startswith(_NOISE):
                sys.stderr.write(line.decode(errors="replace"))
                sys.stderr.flush()
