"""What the tools of `penstock pipeline` refuse before Spark starts, and how they reach a server with TLS and tokens."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from tests.support.tls import Pki
from tests.unit.pipeline.lake.test_tables import add, numbers

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.pipeline.http.logs import look
from penstock.pipeline.lake.delta import Table
from penstock.pipeline.lake.store import Location
from penstock.pipeline.lake.values import Batch, LogState, Piece
from penstock.pipeline.rows.columns import INCLUDABLE
from penstock.pipeline.run.events import SYSTEM_TOPIC
from penstock.pipeline.spec.parse import load_spec
from penstock.testing.credentials import Issuer
from penstock.testing.server import running

IN = "persistent://public/default/in"
FILE = """
name = "p"
dead_letters = "dead"
[server]
url = "{url}"
token_file = "admin"
ca_file = "ca.pem"
[sources.s]
topics = ["in"]
[sinks.k]
input = "s"
topic = "out"
"""


class CommandLine:
    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url

    def call(self, *command: str, role: str = "admin") -> subprocess.CompletedProcess[str]:
        server = ["--url", self.url, "--token-file", role, "--tls-ca-file", "ca.pem"]
        return self.plain(*command, *server)

    def plain(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "penstock", "pipeline", *command],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    folder, issuer = tmp_path_factory.mktemp("files"), Issuer()
    for role in ("admin", "guest"):
        (folder / role).write_text(issuer.token(role))
    pki = Pki(folder)
    auth = issuer.settings(super_users=("admin",))
    with running(tls=pki.settings(), auth=auth, plain=False) as server:
        access = Access(url=server.url, token=issuer.token("admin"), ca_file=pki.ca_file)
        with HttpClient(access) as client:
            client.create_topic(TopicName.parse("in"))
            event = {"pipeline": "p", "state": "running", "batch": 7}
            client.produce(SYSTEM_TOPIC, [{"key": "p", "value": json.dumps(event)}])
        (folder / "p.toml").write_text(FILE.format(url=server.url))
        yield CommandLine(folder, server.url)


def ledger_of(line: CommandLine, topic: str) -> int:
    access = Access(url=line.url, token_file=str(line.folder / "admin"), ca_file=str(line.folder / "ca.pem"))
    with HttpClient(access) as client:
        (log,) = look(client, [TopicName.parse(topic)]).logs or []
    return log.ledger


def refused(done: subprocess.CompletedProcess[str]) -> str:
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("penstock: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_a_new_archive_is_a_file_that_goes_on_where_the_table_ends(line: CommandLine) -> None:
    table = line.folder / "kept"
    columns = pa.schema([("n", pa.int64())])
    ledger = ledger_of(line, "in")
    batch = Batch(
        files=(),
        schema=columns,
        partition_by=(),
        pieces=(Piece(IN, 0, 3, 8, 5, 25),),
        logs={(IN, 0): LogState(ledger)},
    )
    Table(Location.of(table)).commit(batch)
    store = ("--storage", "aws_region=x", "--storage", "aws_secret_access_key=env:KEY")
    done = line.call("new", "archive", "in", "--table", "kept", "--decode", "flat", *store)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"file": "kept.toml"}
    spec = load_spec(line.folder / "kept.toml")
    assert (spec.name, spec.trigger, spec.server.url) == ("archive-kept", "10 seconds", line.url)
    assert spec.server.token == ""
    assert Path(spec.server.token_file).is_absolute()
    assert spec.storage == {"aws_region": "x", "aws_secret_access_key": "env:KEY"}
    (source,) = spec.sources.values()
    assert source.start == {IN: {"0": 8}}
    assert (source.decode, source.include) == ("flat", tuple(INCLUDABLE))
    (sink,) = spec.sinks.values()
    assert (sink.path, sink.archive, sink.partition_by) == (str(table), True, ("day(timestamp)",))
    assert "kept.toml exists already" in refused(line.call("new", "archive", "in", "--table", "kept"))
    other = line.call("new", "archive", "in", "--table", "new", "--file", "other.toml")
    assert other.returncode == 0, other.stderr
    assert load_spec(line.folder / "other.toml").sources["messages"].start == "earliest"


def test_an_archive_that_cannot_be(line: CommandLine) -> None:
    new = ("new", "archive")
    assert "topic persistent://public/default/nope does not exist" in refused(
        line.call(*new, "nope", "--table", "t")
    )
    assert "role 'guest' may not" in refused(line.call(*new, "in", "--table", "t", role="guest"))
    assert "certificate verify failed" in refused(
        line.plain(*new, "in", "--table", "t", "--url", line.url, "--token-file", "admin")
    )
    assert "--storage: 'region' is not NAME=VALUE" in refused(
        line.call(*new, "in", "--table", "t", "--storage", "region")
    )
    pieces = (Piece(IN, 0, 0, 8, 8, 28),)
    batch = Batch(files=(), schema=pa.schema([("n", pa.int64())]), partition_by=(), pieces=pieces)
    Table(Location.of(line.folder / "stale")).commit(
        msgspec.structs.replace(batch, logs={(IN, 0): LogState(77)})
    )
    assert "deleted and created again since it was archived" in refused(
        line.call(*new, "in", "--table", "stale")
    )
    assert not (line.folder / "t").exists()
    assert not (line.folder / "t.toml").exists()


def test_tables_are_maintained(line: CommandLine) -> None:
    for name in ("one", "two"):
        for n in range(16):
            add(Table(Location.of(line.folder / name)), [n])
    sinks = "".join(f'[sinks.{name}]\ninput = "s"\npath = "{name}"\n' for name in ("one", "two"))
    (line.folder / "m.toml").write_text(f'name = "m"\n[sources.s]\ntopics = ["in"]\n{sinks}')
    done = line.plain("maintain", "m.toml")
    assert done.returncode == 0, done.stderr
    shown = [json.loads(each) for each in done.stdout.splitlines()]
    expected = {"compacted": 16, "deleted": 0, "left": 0, "errors": []}
    assert shown == [{"table": str(line.folder / name), **expected} for name in ("one", "two")]
    done = line.plain("maintain", "--table", "one", "--vacuum-hours", "0")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["deleted"] == 16
    assert sorted(numbers(Table(Location.of(line.folder / "one")))) == list(range(16))
    assert "there is no table at" in refused(line.plain("maintain", "--table", "three"))
    assert "either FILE or --table is needed" in refused(line.plain("maintain"))


def test_dead_letters_that_are_not_there(line: CommandLine) -> None:
    assert "--error: '(' is no regular expression" in refused(line.plain("redrive", "p.toml", "--error", "("))
    assert "there are no dead letters: topic persistent://public/default/dead does not exist" in refused(
        line.plain("redrive", "p.toml")
    )


def test_what_all_pipelines_said(line: CommandLine) -> None:
    done = line.call("status")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["pipeline"], shown["state"], shown["batch"]) == ("p", "running", 7)
    assert "role 'guest' may not" in refused(line.call("status", role="guest"))
