"""Options of an object store, which may be credentials, are in the text of nothing that holds them."""

from pathlib import Path

from penstock.pipeline.lake.maintenance import Order
from penstock.pipeline.lake.store import Location
from penstock.pipeline.spec.parse import parse_spec

SECRET = "not-to-be-shown"
STORE = {"aws_secret_access_key": SECRET}
FILE = {
    "name": "p",
    "storage": STORE,
    "spark": {"spark.hadoop.fs.s3a.secret.key": SECRET},
    "sources": {"s": {"topics": ["t"]}},
    "sinks": {"o": {"input": "s", "topic": "o"}},
}


def test_credentials_are_in_no_text() -> None:
    spec = parse_spec(FILE, "p.toml", Path("/here"))
    assert spec.storage == STORE
    assert "aws_secret_access_key" in repr(spec)
    for holder in (spec, Location.of("s3://b/t", STORE), Order("s3://b/t", STORE, vacuum=True)):
        assert SECRET not in f"{holder} {holder!r}"
