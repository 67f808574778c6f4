"""One function that makes a Spark session as pipelines need it: any Java, the right Python, quiet, in UTC."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from .java import find_java
from .launch import launch

HEAP: Final = "1g"  # measured: half of it serves, twice as much is no faster

_LOGGING: Final = Path(__file__).with_name("log4j2.properties")

_CONF: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.python.filterPushdown.enabled": "true",  # else a source that could filter cannot be read at all
    "spark.driver.memory": HEAP,
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
}


def session(name: str = "penstock", master: str = "local[*]", **conf: str) -> SparkSession:
    """Start a session, or return the one there is. `conf` is Spark's own and wins: `**{"spark.…": "…"}`.

    Sets JAVA_HOME and, on this machine, PYSPARK_PYTHON in the environment, which Spark's processes inherit.
    Raises PipelineError where there is no Java.
    """
    if SparkSession.getActiveSession() is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ["JAVA_HOME"] = str(find_java())
    local = master.startswith("local")
    if local:
        # Else Spark takes the first python3 on PATH, which need not have Penstock or Arrow.
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = settings_for(master, conf)
    launch(settings)
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def settings_for(master: str, conf: Mapping[str, Any]) -> dict[str, str]:
    """Spark's configuration for a master; what `conf` says wins."""
    settings = dict(_CONF)
    if master.startswith("local"):
        # One port of Spark's on an outer address is one too many; and a host name need not resolve.
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
        settings["spark.sql.shuffle.partitions"] = str(threads(master))
    settings |= {key: str(value) for key, value in conf.items()}
    return settings


def threads(master: str) -> int:
    """How many tasks `local[…]` runs at once."""
    inside = master.removeprefix("local").strip("[]").split(",")[0].strip()
    if inside == "*":
        return os.cpu_count() or 1
    return int(inside) if inside.isdigit() else 1
