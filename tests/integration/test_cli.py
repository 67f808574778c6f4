import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from tests.support.shell import PENSTOCK, Shell, interruptible

from penstock.testing.server import Address, running


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    with running() as address:
        yield address


@pytest.fixture
def shell(server: Address) -> Shell:
    return Shell(server.url)


def test_topics_from_creation_to_deletion(shell: Shell) -> None:
    assert shell.lines("topics", "create", "life", "--partitions", "2")[0]["partitions"] == 2
    shell.run("produce", "life", "a", "b", "c")
    [row] = [
        row for row in shell.lines("topics", "list") if row["topic"] == "persistent://public/default/life"
    ]
    assert (row["partitions"], row["messages"], row["schema"]) == (2, 3, "STRING")
    assert shell.lines("topics", "describe", "life")[0]["messages"] == 3
    assert shell.lines("topics", "stats", "life")[0]["msgInCounter"] == 3
    assert [row["partition"] for row in shell.lines("topics", "partitions", "life")] == [0, 1]
    assert len(shell.lines("topics", "partitions", "life", "--set", "3")) == 3
    assert set(shell.lines("topics", "terminate", "life")[0]["last"]) == {"0", "1", "2"}  # type: ignore[call-overload]
    assert shell.lines("topics", "delete", "life") == [{"deleted": "persistent://public/default/life"}]
    assert shell.lines("topics", "create", "single")[0]["partitions"] == 0
    assert shell.lines("topics", "delete", "single") == [{"deleted": "persistent://public/default/single"}]
    left = {row["topic"] for row in shell.lines("topics", "list")}
    assert not left & {"persistent://public/default/life", "persistent://public/default/single"}


def test_tables_on_a_terminal(shell: Shell) -> None:
    shell.run("produce", "seen", "hello\x1b[2J", "--key", "k", "--property", "a=1")
    seen = shell.on_terminal("topics", "list")
    assert "subscriptions" in seen.splitlines()[0]
    assert any(line.startswith("seen ") for line in seen.splitlines())
    assert "{" not in seen
    heads, row = shell.on_terminal("read", "seen").splitlines()
    assert re.fullmatch(r"place +published +key +properties +value", heads)
    assert re.fullmatch(r"0:0 +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} +k +a=1 +hello\\x1b\[2J", row)
    stats = shell.on_terminal("topics", "stats", "seen")
    assert "msgInCounter" in stats
    assert re.search(r"lastPublishTimestamp +\d{4}-\d\d-\d\d \d\d:", stats)
    assert shell.on_terminal("produce", "seen", "x") == ""  # the sentence goes to stderr


def test_lines_of_stdin_become_messages(shell: Shell) -> None:
    text = "".join(f"line {n}\n" for n in range(1200))
    assert len(shell.lines("produce", "lines", stdin=text)) == 1200
    found = shell.lines("read", "lines")
    assert [message["value"] for message in found] == text.splitlines()
    assert [message["offset"] for message in found] == list(range(1200))
    tail = shell.lines("read", "lines", "--from", "1190", "--count", "5")
    assert [message["offset"] for message in tail] == list(range(1190, 1195))
    assert shell.lines("read", "lines", "--from", "latest") == []
    after = shell.lines("read", "lines", "--from", str(found[-2]["messageId"]))
    assert [message["offset"] for message in after] == [1199]


def test_keys_properties_and_schemas(shell: Shell, tmp_path: Path) -> None:
    schema = tmp_path / "r.avsc"
    schema.write_text('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}')
    produce = ["produce", "typed", "--schema-file", str(schema), "--key", "k", "--property", "x=y"]
    shell.run(*produce, '{"a": 1}')
    [message] = shell.lines("read", "typed")
    assert (message["value"], message["key"], message["properties"]) == ({"a": 1}, "k", {"x": "y"})
    done = shell.run(*produce, '{"a": "no"}', '{"a": 2}', code=1)
    assert "value.a" in done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert "is no JSON" in shell.run(*produce, "{", code=1).stderr


def test_schemas_from_files(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "r.avsc"
    file.write_text('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}')
    assert shell.lines("schemas", "register", "schemed", str(file))[0]["version"] == 0
    file.write_text('{"type": "record", "name": "R", "fields": [{"name": "b", "type": "int"}]}')
    assert shell.lines("schemas", "check", "schemed", str(file), code=1)[0]["isCompatibility"] is False
    assert "'b'" in shell.run("schemas", "register", "schemed", str(file), code=1).stderr
    assert [row["type"] for row in shell.lines("schemas", "list", "schemed")] == ["AVRO"]
    assert shell.lines("schemas", "show", "schemed", "--version", "0")[0]["version"] == 0
    proto = tmp_path / "m.proto"
    proto.write_text('syntax = "proto3"; package a; message M { int32 x = 1; } message N { M m = 1; }')
    said = shell.run("schemas", "register", "proto", str(proto), code=1).stderr
    assert "--message: a.M, a.N" in said
    assert shell.lines("schemas", "register", "proto", str(proto), "--message", "a.N")[0]["version"] == 0
    assert "no such file" in shell.run("schemas", "register", "proto", "nowhere.proto", code=1).stderr
    assert "cannot be read" in shell.run("schemas", "register", "proto", "nowhere.avsc", code=1).stderr


def test_consuming_acknowledges_unless_told_otherwise(shell: Shell) -> None:
    shell.run("produce", "eaten", "a", "b", "c")
    consume = ["consume", "eaten", "--subscription", "s", "--from", "earliest"]
    assert len(shell.lines(*consume, "--no-ack")) == 3
    assert [message["value"] for message in shell.lines(*consume, "--count", "2")] == ["a", "b"]
    assert [message["value"] for message in shell.lines(*consume, "--type", "shared")] == ["c"]
    assert shell.lines(*consume) == []


@pytest.mark.parametrize(
    "command", [["read", "followed"], ["consume", "eaten-on", "-s", "s", "--from", "earliest"]]
)
def test_following_until_ctrl_c(shell: Shell, server: Address, command: list[str]) -> None:
    shell.run("produce", command[1], "first")
    process = subprocess.Popen(
        [*PENSTOCK, *command, "--follow"],
        stdout=subprocess.PIPE,
        text=True,
        env=shell.environment,
        preexec_fn=interruptible,
    )
    assert process.stdout is not None
    watchdog = threading.Timer(90, process.kill)
    watchdog.start()
    assert json.loads(process.stdout.readline())["value"] == "first"
    httpx.post(f"{server.url}/topics/public/default/{command[1]}", json={"messages": [{"value": "later"}]})
    assert json.loads(process.stdout.readline())["value"] == "later"
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    watchdog.cancel()
    process.stdout.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["topics", "describe", "nowhere"], "topic persistent://public/default/nowhere does not exist"),
        (["topics", "describe", "a/b"], "invalid topic name 'a/b'"),
        (["read", "nowhere"], "does not exist"),
        (["topics", "list", "nobody/none"], "namespace nobody/none does not exist"),
        (["topics", "list", "--url", "http://127.0.0.1:1"], "http://127.0.0.1:1 cannot be reached"),
        (["topics", "list", "--url", "nonsense"], "'nonsense' is no address"),
        (["topics", "list", "--url", "http://[::1"], "'http://[::1' is no address"),
        (["produce", "non-persistent://public/default/x", "v"], "over WebSocket"),
    ],
)
def test_errors_are_one_sentence(shell: Shell, arguments: list[str], said: str) -> None:
    done = shell.run(*arguments, code=1)
    assert done.stdout == ""
    assert done.stderr.startswith("penstock: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_wrong_usage_is_2() -> None:
    for arguments in (["topics", "nothing"], ["nothing"], ["read"], ["consume", "t"]):
        done = subprocess.run([*PENSTOCK, *arguments], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert "Usage" in done.stderr


def test_the_reader_of_a_pipe_may_go(shell: Shell) -> None:
    shell.run("produce", "piped", stdin="x\n" * 3000)
    command = f"{sys.executable} -m penstock read piped | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=shell.environment, timeout=90
    )
    assert done.returncode == 0
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


def test_a_consumer_that_is_terminated_leaves_nobody_behind(shell: Shell) -> None:
    shell.run("produce", "ended", "a")
    arguments = ["consume", "ended", "-s", "s", "--from", "earliest", "--follow"]
    command = [*PENSTOCK, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=shell.environment) as process:
        assert process.stdout is not None
        assert '"value":"a"' in process.stdout.readline()
        process.terminate()
        assert process.wait(60) == 143
    shell.run("consume", "ended", "-s", "s", "--type", "Shared")


def test_writers_are_listed_and_forgotten(server: Address, shell: Shell) -> None:
    for number in range(120):  # more than one answer has
        commit(server, f"many-{number:03}", [])
    commit(server, "jobs/nightly", ["cli-a", "cli-b"])
    commit(server, "jobs/nightly", [])
    rows = shell.lines("writers", "list")
    assert [row["writer"] for row in rows].count("jobs/nightly") == 2
    assert len(rows) == 122
    row = next(row for row in rows if row["topics"])
    assert row["topics"] == [f"persistent://public/default/cli-{name}" for name in "ab"]
    assert (row["batch"], row["messages"], row["staged_batches"], row["owner"]) == (7, 0, 0, None)
    seen = shell.on_terminal("writers", "list")
    assert "commit timestamp" in seen
    assert re.search(r"jobs/nightly +- +cli-a, cli-b +7 +0 ", seen)
    names = ["--topic", "cli-b", "--topic", "cli-a"]
    (cleared,) = shell.lines("writers", "forget", "jobs/nightly", *names)
    assert cleared["topics"] == row["topics"]
    assert "has no commit to" in shell.run("writers", "forget", "jobs/nightly", *names, code=1).stderr
    shell.run("writers", "forget", "jobs/nightly", "--no-topics", *names, code=2)
    shell.lines("writers", "forget", "jobs/nightly", "--no-topics")
    assert shell.lines("writers", "forget", "jobs/nightly") == [{"forgotten": "jobs/nightly", "topics": None}]
    assert "there is no writer" in shell.run("writers", "forget", "jobs/nightly", code=1).stderr


def commit(server: Address, writer: str, topics: list[str]) -> None:
    path = f"{server.url}/stages/{quote(writer, safe='')}/7/commit"
    assert httpx.post(path, json={"topics": topics, "stages": []}).status_code == 200
