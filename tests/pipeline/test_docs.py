"""The blocks of the documentation that need Spark work as printed, in the session that all tests share."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.topics import TopicServer
from tests.support.page_runs import PageRun, runs
from tests.support.pages import ROOT, Block, blocks, pages


def tried_here(page: Path) -> list[Block]:
    return [block for block in blocks(page) if runs(block) and block.spark]


@pytest.mark.parametrize(
    "page", [page for page in pages() if tried_here(page)], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_the_blocks_of_a_page(
    page: Path, spark: SparkSession, server: TopicServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with PageRun(tmp_path, server, spark=spark, server=server) as run:
        for block in tried_here(page):
            run.run(block)
            for query in spark.streams.active:
                query.processAllAvailable()
                query.stop()
