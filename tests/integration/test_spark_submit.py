"""A pipeline as the main program of `spark-submit`, and in a process of its own, as the docs print them."""

import os
import re
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.integration.test_cli_pipeline import COPY, IN, copied, publish
from tests.support.ahead import Done, Work

from penstock.client.http import HttpClient
from penstock.testing.server import launch

pytestmark = [
    pytest.mark.skipif(find_spec("pyspark") is None, reason="needs the extra spark"),
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(650),
]


def documented(word: str) -> str:
    """The Python example of the docs with a word in it."""
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
    (block,) = (found for found in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if word in found)
    return str(block)


def submit_twice(work: Work) -> tuple[list[Done], Counter[str]]:
    """The second run goes on where the first has ended."""
    from penstock.pipeline.session import find_java

    (work.folder / "job.py").write_text(documented("sys.argv"))
    submit = str(Path(sys.executable).parent / "spark-submit")
    environment = {**os.environ, "JAVA_HOME": str(find_java()), "PYSPARK_PYTHON": sys.executable}
    runs = []
    with launch(work.folder / "data") as server, HttpClient(server.url) as client:
        client.create_topic(IN)
        publish(server.url, "a", "b")
        (work.folder / "copy.toml").write_text(f'{COPY}\n[server]\nurl = "{server.url}"\n')
        for _ in range(2):
            command = [submit, "--master", "local[1]", "job.py", "copy.toml"]
            runs.append(work.run(command, timeout_s=300, environment=environment))
            publish(server.url, "c")
        assert not (work.folder / "penstock-pipelines" / "copy" / "scratch").exists()
        return runs, copied(server.url)


@pytest.mark.ahead(work=submit_twice)
def test_spark_submit_runs_the_script_of_the_docs(done: tuple[list[Done], Counter[str]]) -> None:
    runs, copies = done
    for run in runs:
        assert run.returncode == 0, run.stderr[-3000:]
    assert copies == Counter("abc")
