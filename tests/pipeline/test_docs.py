"""The pages that need Spark work as printed, in the session that all tests share."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.page_runs import PageRun, name_of, tried

from penstock.testing.server import running


@pytest.mark.parametrize("page", tried("spark"), ids=name_of)
def test_the_blocks_of_a_page(
    page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with running() as server, PageRun(tmp_path, server, spark=spark) as run:
        run.run_all(page)
