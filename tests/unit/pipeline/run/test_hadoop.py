"""Settings of a store for Hadoop's connectors, and what is said without a connector; without Spark."""

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.lake.store import Location
from penstock.pipeline.run import remote
from penstock.pipeline.run.remote import connect, hadoop_url


@pytest.fixture(autouse=True)
def no_settings_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote.os, "environ", {"AWS_REGION": "eu-west-1", "PATH": "/"})


class Spark:
    """A session of Spark without anything else; `fails`: what Java says when it looks for the connector."""

    def __init__(self, fails: str = "", **conf: str) -> None:
        self.given = conf
        self.set: dict[str, str] = {}
        self.conf = SimpleNamespace(set=self.set.__setitem__)
        self.hadoop: dict[str, str] = {}
        self._fails = fails
        jsc = SimpleNamespace(hadoopConfiguration=lambda: SimpleNamespace(set=self.hadoop.__setitem__))
        conf_view = SimpleNamespace(contains=conf.__contains__)
        self.sparkContext = SimpleNamespace(_jsc=jsc, getConf=lambda: conf_view)
        fs = SimpleNamespace(Path=lambda url: SimpleNamespace(getFileSystem=self._open))
        util = SimpleNamespace(VersionInfo=SimpleNamespace(getVersion=lambda: "3.5.0"))
        self._jvm = SimpleNamespace(
            org=SimpleNamespace(apache=SimpleNamespace(hadoop=SimpleNamespace(fs=fs, util=util)))
        )

    def _open(self, conf: Any) -> None:
        if self._fails:
            error = Py4JJavaError.__new__(Py4JJavaError)
            error.java_exception = SimpleNamespace(getMessage=lambda: self._fails)
            raise error


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://bucket/p", "s3a://bucket/p"),
        ("s3a://bucket/p", "s3a://bucket/p"),
        ("gs://bucket/p", "gs://bucket/p"),
        ("abfss://c@a.dfs.core.windows.net/p", "abfss://c@a.dfs.core.windows.net/p"),
    ],
)
def test_urls(url: str, expected: str) -> None:
    assert hadoop_url(url) == expected


def test_a_scheme_without_a_connector_is_refused() -> None:
    with pytest.raises(PipelineError, match=r"no connector for az://.*abfss://CONTAINER"):
        hadoop_url("az://container/p")


def test_the_options_of_s3_are_hadoops_too() -> None:
    spark = Spark(**{"spark.hadoop.fs.s3a.access.key": "mine"})
    place = Location(
        "s3://b/p", {"aws_endpoint_url": "http://h:1", "aws_access_key_id": "k", "secret_access_key": "s"}
    )
    connect(spark, "s3a://b/p", place)
    assert spark.hadoop == {
        "fs.s3a.endpoint": "http://h:1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.endpoint.region": "eu-west-1",
        "fs.s3a.secret.key": "s",
        "fs.s3a.optimized.copy.from.local.enabled": "false",
    }
    assert list(spark.set.values()) == ["true"]  # changelogs


def test_the_options_of_other_stores_are_left_to_the_user() -> None:
    spark = Spark(**{remote._CHANGELOG: "false"})
    connect(spark, "gs://b/p", Location("gs://b/p", {"google_service_account": "x"}))
    assert spark.hadoop == spark.set == {}


@pytest.mark.parametrize(
    ("said", "url", "sentence"),
    [
        ("java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found", "s3a://b/p",
         r"lacks the connector for the state in s3a://b/p: name org.apache.hadoop:hadoop-aws:3.5.0 in `spark.jars.packages`"),
        ('No FileSystem for scheme "gs"', "gs://b/p", "lacks the connector .*gcs-connector"),
        ("no such bucket", "s3a://b/p", "^Spark cannot use the state in s3a://b/p: no such bucket$"),
    ],
)  # fmt: skip
def test_a_missing_connector_is_named(said: str, url: str, sentence: str) -> None:
    with pytest.raises(PipelineError, match=sentence):
        connect(Spark(said), url, Location(url))
