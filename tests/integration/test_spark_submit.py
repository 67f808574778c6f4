"""A pipeline as the main program of `spark-submit`, and in a process of its own, as the docs print them."""

import os
import re
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.integration.test_cli_pipeline import COPY, IN, copied, publish

from penstock.client.http import HttpClient
from penstock.testing.server import running

pytestmark = [
    pytest.mark.skipif(find_spec("pyspark") is None, reason="needs the extra spark"),
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(400),
]


def documented(word: str) -> str:
    """The Python example of the docs with a word in it."""
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
    (block,) = (found for found in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if word in found)
    return str(block)


def test_spark_submit_runs_the_script_of_the_docs(tmp_path: Path) -> None:
    from penstock.pipeline.java import find_java

    (tmp_path / "job.py").write_text(documented("sys.argv"))
    submit = Path(sys.executable).parent / "spark-submit"
    with running() as server, HttpClient(server.url) as client:
        client.create_topic(IN)
        publish(server.url, "a", "b")
        (tmp_path / "copy.toml").write_text(f'{COPY}\n[server]\nurl = "{server.url}"\n')
        for _ in range(2):  # the second run goes on where the first has ended
            done = subprocess.run(
                [str(submit), "--master", "local[1]", "job.py", "copy.toml"],
                cwd=tmp_path,
                env={**os.environ, "JAVA_HOME": str(find_java()), "PYSPARK_PYTHON": sys.executable},
                capture_output=True,
                text=True,
                timeout=180,
            )
            assert done.returncode == 0, done.stderr[-3000:]
            publish(server.url, "c")
        assert copied(server.url) == Counter("abc")
    assert not (tmp_path / "penstock-pipelines" / "copy" / "scratch").exists()
