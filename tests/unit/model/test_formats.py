"""Versions of what is kept in a cluster: which are read, what is said of others, and which fields stay."""

import re

import msgspec
import pytest
from tests.support.cluster_vectors import FOLDER, VERSIONS
from tests.support.pages import DOCS

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.formats import DOCUMENTS, FORMATS, VERSION, Format, version_of, with_unknown_fields

FORMAT = Format("thing", written=1, newest=2)


@pytest.mark.parametrize(("named", "version"), [(None, 1), (b"1", 1), ("2", 2), (2, 2)])
def test_a_version_that_is_known_is_read(named: bytes | str | int | None, version: int) -> None:
    assert FORMAT.check(named, "k") == version


@pytest.mark.parametrize("named", [b"3", "0", 3, b"", b"\xff", b"-1", b"1.0", "9" * 5000, "\u0661"])
def test_another_is_refused_with_what_was_found_and_what_is_known(named: bytes | str | int) -> None:
    with pytest.raises(PenstockError) as caught:
        FORMAT.check(named, "k")
    assert caught.value.kind is ErrorKind.NEWER_FORMAT
    assert caught.value.retriable
    assert re.match(r"thing 'k' has version .*: this Penstock reads 1 to 2", caught.value.message, re.DOTALL)
    assert len(caught.value.message) < 200


def test_what_is_written_names_its_version() -> None:
    assert version_of(FORMAT.headers()) == b"1"
    assert FORMAT.check(FORMAT.properties()[VERSION], "k") == 1
    assert version_of([("other", b"7")]) is version_of(None) is None
    assert version_of([(VERSION, None)]) == b"", "which is refused"


@pytest.mark.parametrize(
    ("before", "stored"),
    [
        (None, {"a": 1}),
        (b'{"a": 5, "b": 6}', {"a": 1}),  # a field that is known and left out is gone
        (b'{"a": 5, "new": {"x": [1.50]}}', {"a": 1, "new": {"x": [1.5]}}),
        (b"\xff no JSON", {"a": 1}),
        (b"[1]", {"a": 1}),
    ],
)
def test_fields_that_are_not_known_stay(before: bytes | None, stored: object) -> None:
    made = with_unknown_fields(b'{"a":1}', before, ("a", "b"))
    assert msgspec.json.decode(made) == stored


def test_the_table_of_upgrades_has_every_format_with_its_versions() -> None:
    page = (DOCS / "upgrades.md").read_text()
    told = {
        (name, int(written), read)
        for name, written, read in re.findall(
            r"^\| ([^|]+?) \|[^|]+\|[^|]+\| (\d+) \| ([\d-]+) \|$", page, re.M
        )
    }
    assert told == {
        (each.name, each.written, "1" if each.newest == 1 else f"1-{each.newest}") for each in FORMATS
    }


def test_there_are_records_of_every_version_that_was_written() -> None:
    """Who raises a version adds what a server of it writes."""
    newest = max(each.written for each in FORMATS)
    assert (*range(newest + 1),) == VERSIONS
    stored = sorted(path.name for path in FOLDER.glob("*.json"))
    assert stored == sorted(f"{kind}-{number}.json" for kind in ("kafka", "pulsar") for number in VERSIONS)


def test_every_kind_of_documents_has_a_format() -> None:
    assert all(each.name == f"document {kind}" for kind, each in DOCUMENTS.items())
