"""Spark's own way to an object store: Hadoop's connectors, which a user adds to Spark."""

import os
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # it has no types

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.lake.store import Location

_SCHEMES: Final = {"s3": "s3a", "s3a": "s3a", "gs": "gs", "abfs": "abfs", "abfss": "abfss"}
_PACKAGES: Final = {
    "s3a": "org.apache.hadoop:hadoop-aws:{hadoop}",
    "gs": "com.google.cloud.bigdataoss:gcs-connector:VERSION",
    "abfs": "org.apache.hadoop:hadoop-azure:{hadoop}",
    "abfss": "org.apache.hadoop:hadoop-azure:{hadoop}",
}

# The names of S3's settings in [storage], without `aws_`, and in Hadoop.
_S3: Final = {
    "endpoint": "fs.s3a.endpoint",
    "endpoint_url": "fs.s3a.endpoint",
    "region": "fs.s3a.endpoint.region",
    "access_key_id": "fs.s3a.access.key",
    "secret_access_key": "fs.s3a.secret.key",
    "session_token": "fs.s3a.session.token",
}
_PATHS: Final = "fs.s3a.path.style.access"
_COPY: Final = "fs.s3a.optimized.copy.from.local.enabled"

# A batch writes what has changed; whole copies of the state are made by Spark's maintenance.
_CHANGELOG: Final = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


def hadoop_url(url: str) -> str:
    """A URL as Hadoop's connectors take it. Raises PipelineError for a scheme that has none."""
    scheme, _, rest = url.partition("://")
    if scheme not in _SCHEMES:
        raise PipelineError(
            f"state: Spark has no connector for {scheme}:// ({url}): name s3a://, gs:// or"
            " abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/"
        )
    return f"{_SCHEMES[scheme]}://{rest}"


def connect(spark: Any, url: str, place: Location) -> None:
    """Let a session use a URL of `hadoop_url`, with the options of a place in S3. Raises PipelineError without the connector.

    Spark hands the settings to its workers. They are not in its configuration, which is shown: they have secrets.
    """
    conf, hadoop = spark.sparkContext.getConf(), spark.sparkContext._jsc.hadoopConfiguration()
    scheme = url.partition("://")[0]
    if scheme == "s3a":
        for key, text in _s3_settings(place).items():
            if not conf.contains(f"spark.hadoop.{key}"):
                hadoop.set(key, text)
    if not conf.contains(_CHANGELOG):
        spark.conf.set(_CHANGELOG, "true")
    jvm = spark._jvm
    try:
        jvm.org.apache.hadoop.fs.Path(url).getFileSystem(hadoop)
    except Py4JJavaError as error:
        said = str(error.java_exception.getMessage())
        if "ClassNotFoundException" not in said and "No FileSystem for scheme" not in said:
            raise PipelineError(f"Spark cannot use the state in {url}: {said}") from None
        package = _PACKAGES[scheme].format(hadoop=jvm.org.apache.hadoop.util.VersionInfo.getVersion())
        raise PipelineError(
            f"Spark lacks the connector for the state in {url}: name {package} in `spark.jars.packages`, or its jars in"
            " `spark.jars`, in the table [spark] (docs/pipelines.md)"
        ) from None


def _s3_settings(place: Location) -> dict[str, str]:
    """Those of the environment too, as deltalake reads them: a worker's may lack them."""
    given = {name.lower(): text for name, text in os.environ.items() if name.startswith("AWS_")}
    given |= place.store() or {}
    named = {name.removeprefix("aws_"): text for name, text in given.items()}
    settings = {key: named[name] for name, key in _S3.items() if named.get(name)}
    if "fs.s3a.endpoint" in settings and named.get("virtual_hosted_style_request", "").lower() != "true":
        settings[_PATHS] = "true"
    # Else RocksDB's files go through the SDK's asynchronous client, which takes "100 Continue" of some servers for the answer.
    return settings | {_COPY: "false"}


def running_offsets(spark: Any, url: str) -> list[str]:
    """The offsets, one JSON text for each source, up to which a query reads in its batch; sorted. `url`: its checkpoint."""
    found: list[str] = []
    for query in spark._jsparkSession.streams().active():
        execution = query.streamingQuery()
        if execution.resolvedCheckpointRoot().rstrip("/") == url:
            offsets = execution.availableOffsets().valuesIterator()
            while offsets.hasNext():
                found.append(str(offsets.next().json()))
    return sorted(found)
