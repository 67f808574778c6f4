"""Data folders that earlier versions of the server wrote: taken over, backed up before, and put back."""

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.broker.settings import BrokerSettings
from penstock.cli.storage import decode
from penstock.engines.sqlite.schema import VERSION
from penstock.engines.storage import FILE_NAME, check, copy, look, restore
from penstock.testing.server import running

STORED = Path(__file__).parents[1] / "vectors" / "storage"  # made by make.py beside them, which says of what
VERSIONS = range(1, VERSION)
TOPICS = "/topics/public/default"
# The storages grow older: what they hold is not to end by that.
KEPT = BrokerSettings(stage_timeout_ms=2**50, writer_expiry_minutes=0)


def written(folder: Path, version: int) -> Path:
    """The storage of a folder as a server of that version left it."""
    folder.mkdir()
    (folder / FILE_NAME).write_bytes(gzip.decompress((STORED / f"version-{version}.db.gz").read_bytes()))
    return folder


def version_of(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def messages(http: httpx.Client, topic: str, partition: int = 0) -> list[dict[str, Any]]:
    answer = http.get(f"{TOPICS}/{topic}/partitions/{partition}/messages", params={"offset": 0})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["messages"]
    assert [message["offset"] for message in found] == list(range(len(found)))
    return found


def values(http: httpx.Client, topic: str, partition: int = 0) -> list[object]:
    return [message["value"] for message in messages(http, topic, partition)]


def compare(http: httpx.Client, version: int, more: int) -> None:
    """What `make.py` filled in is there, with as many messages behind it as were added since."""
    texts = [f"text {number}" for number in range(20)]
    assert values(http, "plain") == [*texts, "with", *[f"new {number}" for number in range(more)]]
    last = messages(http, "plain")[20]
    assert (last["key"], last["properties"]) == ("k", {"a": "1"})
    parts = [value for partition in range(3) for value in values(http, "parted", partition)]
    assert sorted(map(str, parts)) == [f"v{number}" for number in range(9)]
    assert values(http, "orders") == [{"id": number, "product": "tea"} for number in range(3)]
    schema = http.get("/admin/v2/schemas/public/default/orders/schema").json()
    assert (schema["type"], schema["version"]) == ("AVRO", 0)
    stats = http.get("/admin/v2/persistent/public/default/plain/stats").json()
    assert stats["subscriptions"]["s"]["msgBacklog"] == 16 + more
    if version > 1:
        space = "/admin/v2/namespaces/public/default"
        kept = http.get(f"{space}/retention").json()
        assert kept == {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        assert http.get(f"{space}/deduplication").json() is True


@pytest.mark.parametrize("version", VERSIONS)
def test_a_folder_of_an_earlier_version_is_taken_over(tmp_path: Path, version: int) -> None:
    folder = written(tmp_path / "data", version)
    assert look(folder, FILE_NAME).version == version
    for more in (0, 1):  # the second start finds it upgraded
        with running(folder, broker=KEPT) as server, httpx.Client(base_url=server.url) as http:
            compare(http, version, more)
            assert (
                http.post(f"{TOPICS}/plain", json={"messages": [{"value": f"new {more}"}]}).status_code == 200
            )
            compare(http, version, more + 1)
        assert look(folder, FILE_NAME).version == VERSION
    assert check(folder, decode).findings == []


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_what_was_staged_before_is_committed_after(tmp_path: Path, version: int) -> None:
    folder = written(tmp_path / "data", version)
    copies = [*[f"text {number}" for number in range(20)], "with"]
    with running(folder, broker=KEPT) as server, httpx.Client(base_url=server.url) as http:
        assert values(http, "staged") == ["text first", *copies]
        (staged,) = http.get("/stages/job").json()["staged"]
        assert staged["batch"] == 4
        if version > 2:  # before, a commit did not name its stages: they would have to be staged again
            again = http.post("/stages/job/3/commit", json={"stages": staged["stages"]})
            assert again.json().get("repeated") is True, again.text
        done = http.post("/stages/job/4/commit", json={"stages": staged["stages"]})
        assert done.status_code == 200, done.text
        assert values(http, "staged") == ["text first", *copies, *copies]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_way_back_is_a_backup_made_before(tmp_path: Path, version: int) -> None:
    """A backup keeps the version that it was made of: a server of that version starts on it."""
    folder, backup = written(tmp_path / "data", version), tmp_path / "backup.db"
    copy(folder / FILE_NAME, backup)
    with running(folder, broker=KEPT) as server:
        httpx.post(f"{server.url}{TOPICS}/plain", json={"messages": [{"value": "new 0"}]})
    assert (version_of(folder / FILE_NAME), version_of(backup)) == (VERSION, version)
    restore(backup, folder, FILE_NAME, force=True)
    assert version_of(folder / FILE_NAME) == version
    with running(folder, broker=KEPT) as server, httpx.Client(base_url=server.url) as http:
        compare(http, version, 0)


def test_there_is_a_folder_of_every_earlier_version() -> None:
    """Who changes the format adds a storage of the version that ends with it."""
    assert sorted(path.name for path in STORED.glob("*.gz")) == [f"version-{n}.db.gz" for n in VERSIONS]
