"""What the tools of `penstock pipeline` refuse before Spark starts, and how they reach a server with TLS and tokens."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.tls import Pki

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.pipeline.run.events import SYSTEM_TOPIC
from penstock.testing.credentials import Issuer
from penstock.testing.server import running

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


def refused(done: subprocess.CompletedProcess[str]) -> str:
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("penstock: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_an_archive_that_cannot_be(line: CommandLine) -> None:
    assert "topic persistent://public/default/nope does not exist" in refused(
        line.call("archive", "nope", "--table", "t")
    )
    assert "role 'guest' may not" in refused(line.call("archive", "in", "--table", "t", role="guest"))
    assert "certificate verify failed" in refused(
        line.plain("archive", "in", "--table", "t", "--url", line.url, "--token-file", "admin")
    )
    assert not (line.folder / "t").exists()


def test_a_replay_that_cannot_be(line: CommandLine) -> None:
    (line.folder / "table").mkdir(exist_ok=True)
    replay = ("replay", "in", "--table", "table", "--id", "a")
    assert "--from-offset: '0-5' is no PARTITION:OFFSET" in refused(
        line.call(*replay, "--from-offset", "0-5")
    )
    twice = ("--until-offset", "0:5", "--until-offset", "0:6")
    assert "--until-offset: partition 0 is named twice" in refused(line.call(*replay, *twice))
    assert "--from: 'soon' is no time" in refused(line.call(*replay, "--from", "soon"))
    assert "--storage: 'region' is no NAME=VALUE" in refused(line.call(*replay, "--storage", "region"))
    assert "there is no table at" in refused(line.call(*replay))


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
