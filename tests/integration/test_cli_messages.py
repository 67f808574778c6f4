"""Messages through the command line: what goes in comes out, and nothing is lost where a command ends early."""

import json
import os
import signal
import subprocess
import threading
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.shell import PENSTOCK, Shell, interruptible

from penstock.cli.main import group
from penstock.cli.messages import consume as consume_module
from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.testing.server import Address, running


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    with running() as address:
        yield address


@pytest.fixture(scope="module")
def shell(server: Address) -> Shell:
    return Shell(server.url)


@pytest.fixture(scope="module")
def client(server: Address) -> Iterator[HttpClient]:
    with HttpClient(server.url) as client:
        yield client


def read(client: HttpClient, topic: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.read(TopicName.parse(topic), max_messages=10_000)["messages"]
    return found


def publish(client: HttpClient, topic: str, *values: str) -> None:
    client.produce(TopicName.parse(topic), [{"value": value} for value in values])


def test_a_bad_line_is_named_and_the_others_are_published(shell: Shell, client: HttpClient) -> None:
    done = shell.run("produce", "some-bad", stdin=b"a\nb\n\xff\xfe\nc\n", code=1)
    assert [message["value"] for message in read(client, "some-bad")] == ["a", "b", "c"]
    assert len(done.stdout.splitlines()) == 3
    assert done.stderr.startswith("penstock: line 3 of stdin: the value is not UTF-8")
    assert done.stderr.count("\n") == 1


def test_what_a_server_refuses_is_named_by_its_line(shell: Shell, client: HttpClient, tmp_path: Path) -> None:
    schema = tmp_path / "r.avsc"
    schema.write_text('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}')
    shell.run("schemas", "register", "refusing", str(schema))
    lines = '{"a": 1}\n{"a": "no"}\n{"a": 3}\n{\n'  # by the topic's schema, without an option
    done = shell.run("produce", "refusing", stdin=lines, code=1)
    assert [message["value"] for message in read(client, "refusing")] == [{"a": 1}, {"a": 3}]
    assert "line 2 of stdin: value.a" in done.stderr
    assert "line 4 of stdin: the value is no JSON" in done.stderr
    alone = shell.run("produce", "refusing", '{"a": "no"}', code=1)
    assert "value 1: " in alone.stderr


def shown(lines: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    return [tuple(line[name] for name in ("key", "value", "properties", "eventTime")) for line in lines]


def test_read_piped_into_produce_is_a_copy(shell: Shell, client: HttpClient, tmp_path: Path) -> None:
    texts = '{"value": "v", "key": "k", "properties": {"a": "b"}, "eventTime": 5}\n{"value": null, "key": "k"}\n\n'
    shell.run("produce", "copied", "--format", "json", stdin=texts)
    printed = shell.run("read", "copied").stdout
    assert shown(read(client, "copied")) == [("k", "v", {"a": "b"}, 5), ("k", None, {}, None)]
    shell.run("produce", "copy", "--format", "json", stdin=printed)
    assert shown(read(client, "copy")) == shown(read(client, "copied"))
    of_bytes = '{"value": "v", "key": "AP8=", "keyIsBase64": true}'
    shell.run("produce", "keys", "--format", "json", stdin=of_bytes)
    shell.run("produce", "keys-copy", "--format", "json", stdin=shell.run("read", "keys").stdout)
    (line,) = shell.lines("read", "keys-copy")
    assert (line["key"], line["keyIsBase64"]) == ("AP8=", True)
    bare = bytes(range(256)).replace(b"\n", b"")
    bare += b"\r"
    shell.run("produce", "bare", "--encoding", "binary", stdin=bare + b"\n\xfe")
    shell.run("produce", "bare-copy", "--format", "json", stdin=shell.run("read", "bare").stdout)
    consumed = shell.lines("consume", "bare-copy", "-s", "s", "--from", "earliest", "--timeout", "100")
    assert [line["value"] for line in consumed] == [b64encode(bare).decode(), "/g=="]
    assert [line["schema_version"] for line in consumed] == [None, None]


def test_keys_and_whole_files(shell: Shell, client: HttpClient, tmp_path: Path) -> None:
    shell.run("produce", "keyed", "--format", "key-value", "--key-separator", "=", "a=1", "b=2=3")
    assert [(line["key"], line["value"]) for line in read(client, "keyed")] == [
        ("a", "1"),
        ("b", "2=3"),
    ]
    files = [tmp_path / "one", tmp_path / "two"]
    for file in files:
        file.write_bytes(b"\x00\xff\n" * 1000)
    given = [text for file in files for text in ("--file", str(file))]
    shell.run("produce", "files", "--format", "whole", "--encoding", "binary", *given)
    found = [line["value"] for line in shell.lines("read", "files", "--encoding", "base64")]
    assert found == [b64encode(b"\x00\xff\n" * 1000).decode()] * 2
    shell.run("produce", "files", "--format", "json", "--encoding", "binary", "{}", code=2)


def test_what_was_published_before_a_failure_is_told(shell: Shell) -> None:
    """A producer at a pipe publishes each line as it comes, so that the topic can end between two."""
    shell.run("topics", "create", "ends")
    process = subprocess.Popen(
        [*PENSTOCK, "produce", "ends"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=shell.environment,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("one\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["partition"] == 0
    shell.run("topics", "terminate", "ends")
    _, said = process.communicate("two\n", timeout=90)
    assert process.returncode == 1
    assert "(published: 1, up to before line 2 of stdin)" in said


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_was_printed_is_acknowledged_when_a_consumer_is_ended(
    shell: Shell, client: HttpClient, number: signal.Signals, code: int
) -> None:
    topic = f"ended-{number.name}"
    publish(client, topic, *"abc")
    consume = ["consume", topic, "-s", "s", "--from", "earliest"]
    process = subprocess.Popen(
        [*PENSTOCK, *consume, "--follow"],
        stdout=subprocess.PIPE,
        text=True,
        env=shell.environment,
        preexec_fn=interruptible,
    )
    watchdog = threading.Timer(90, process.kill)
    watchdog.start()
    assert process.stdout is not None
    for value in "abc":
        assert json.loads(process.stdout.readline())["value"] == value
    process.send_signal(number)  # at once: the acknowledgement may be on its way
    assert process.wait(60) == code
    watchdog.cancel()
    assert process.stdout.read() == ""
    process.stdout.close()
    assert shell.lines(*consume, "--timeout", "100") == []


def test_what_could_not_be_written_is_not_acknowledged(shell: Shell, client: HttpClient) -> None:
    publish(client, "unwritten", *"abc")
    consume = ["consume", "unwritten", "-s", "s", "--from", "earliest"]
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen([*PENSTOCK, *consume], stdout=writing, env=shell.environment)
    os.close(writing)
    assert process.wait(60) == 0  # as `| head` that has seen enough
    assert [line["value"] for line in shell.lines(*consume)] == ["a", "b", "c"]


def test_how_many_come_without_acknowledgements(
    shell: Shell,
    client: HttpClient,
    server: Address,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    publish(client, "held", *"abc")
    consume = ["consume", "held", "-s", "s", "--from", "earliest", "--no-ack"]
    assert "40,000" in shell.run(*consume, "--count", "40001", code=2).stderr
    monkeypatch.setattr(consume_module, "WINDOW", 2)
    for counted, said in (([], "penstock: 2 messages are printed"), (["--count", "2"], "")):
        group.main(["--url", server.url, *consume, *counted], standalone_mode=False)
        shown = capsys.readouterr()
        assert len(shown.out.splitlines()) == 2
        assert shown.err.startswith(said)
        assert bool(shown.err) == bool(said)


def test_everything_is_published_although_nobody_reads_the_results(
    shell: Shell, client: HttpClient, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    file.write_text("".join(f"{number}\n" for number in range(2500)))
    reading, writing = os.pipe()
    os.close(reading)
    command = [*PENSTOCK, "produce", "unread", "--file", str(file)]
    process = subprocess.Popen(command, stdout=writing, env=shell.environment)
    os.close(writing)
    assert process.wait(60) == 0
    assert len(read(client, "unread")) == 2500
