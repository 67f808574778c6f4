"""Options of an object store, which may be credentials, are in the text of nothing that holds them."""

from pathlib import Path

import msgspec
import pytest

from penstock.client.access import Access
from penstock.pipeline.lake.archive_plan import ArchiveSpec
from penstock.pipeline.lake.replay_plan import ReplaySpec
from penstock.pipeline.source.options import parse_options
from penstock.pipeline.spec.parse import parse_spec

SECRET = "not-to-be-shown"
SERVER = Access(url="http://localhost:1")
STORE = {"aws_secret_access_key": SECRET}
FILE = {
    "name": "p",
    "storage": STORE,
    "spark": {"spark.hadoop.fs.s3a.secret.key": SECRET},
    "sources": {"s": {"topics": ["t"]}},
    "sinks": {"o": {"input": "s", "topic": "o"}},
}
READ = {"url": SERVER.url, "subscribe": "t", "archive": "s3://b/t", "storage.aws_secret_access_key": SECRET}


@pytest.mark.parametrize(
    "holder",
    [
        ArchiveSpec(server=SERVER, table="s3://b/t", topics=("t",), storage=STORE),
        ReplaySpec(server=SERVER, table="s3://b/t", topic="t", id="r", storage=STORE),
        parse_spec(FILE, "p.toml", Path("/here")),
        parse_options(READ),
    ],
    ids=lambda holder: type(holder).__name__,
)
def test_credentials_are_in_no_text(holder: msgspec.Struct) -> None:
    text = f"{holder} {holder!r}"
    assert SECRET not in text
    assert "aws_secret_access_key" in text
    assert holder.storage == STORE  # type: ignore[attr-defined]
