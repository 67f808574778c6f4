"""`penstock bench` and `penstock top` against a server."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.shell import Shell

from penstock.testing.server import Address, running


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    with running() as address:
        yield address


@pytest.fixture(scope="module")
def shell(server: Address) -> Shell:
    return Shell(server.url)


def one(shell: Shell, *arguments: str) -> dict[str, Any]:
    [found] = shell.lines("bench", *arguments)
    return found


def test_publishing_leaves_no_topic_behind(shell: Shell) -> None:
    found = one(shell, "publish", "--messages", "300", "--producers", "2", "--batch", "10")
    assert (found["messages"], found["errors"], found["size"]) == (300, 0, 100)
    times = found["latency_ms"]
    assert 0 < times["p50"] <= times["p95"] <= times["p99"] <= times["p99.9"] <= times["max"]
    assert found["topic"] not in [row["topic"] for row in shell.lines("topics", "list")]


def test_a_topic_that_is_given_stays_and_keeps_what_was_published(shell: Shell) -> None:
    shell.run("topics", "create", "given")
    assert one(shell, "publish", "given", "--messages", "20", "--rate", "1000")["messages"] == 20
    assert len(shell.lines("read", "given")) == 20
    assert "does not exist" in shell.run("bench", "publish", "nowhere", code=1).stderr


def test_delivery_of_a_backlog_and_while_it_is_published(shell: Shell) -> None:
    drained = one(shell, "consume", "--messages", "500", "--partitions", "2")
    assert (drained["messages"], drained["latency_ms"]) == (500, None)
    shell.run("produce", "shared", "of another program")
    live = one(shell, "consume", "shared", "--messages", "50", "--rate", "500", "--consumers", "2")
    assert (live["messages"], live["consumers"]) == (50, 2)
    assert live["latency_ms"]["p50"] > 0
    assert shell.lines("topics", "stats", "shared")[0]["subscriptions"] == {}


def test_requests(shell: Shell) -> None:
    found = one(shell, "request", "--messages", "20", "--pending", "4")
    assert (found["messages"], found["errors"]) == (20, 0)


def test_a_server_without_the_binary_endpoint() -> None:
    with running(pulsar="off") as address:
        said = Shell(address.url).run("bench", "publish", "--messages", "1", code=1).stderr
    assert said.count("\n") == 1


def test_a_table_for_people(shell: Shell) -> None:
    assert "p99.9" in shell.run("bench", "request", "--messages", "5", "-o", "table").stdout


def test_top_shows_what_is_in_use(shell: Shell) -> None:
    shell.run("topics", "create", "busy", "--partitions", "2")
    shell.run("produce", "busy", *"abcd")
    shell.run("produce", "calm", "a")
    shell.run("consume", "busy", "-s", "s", "--from", "earliest", "--count", "1")
    found = {str(row["topic"]).rpartition("/")[2]: row for row in shell.lines("top", "--once")}
    assert found["busy"]["backlog"] == 3
    assert found["busy"]["subscriptions"] == [
        {"subscription": "s", "type": "Exclusive", "rate_out": pytest.approx(0, abs=100), "backlog": 3}
        | {"unacknowledged": 0, "consumers": 0}
    ]
    by_backlog = shell.lines("top", "public/default", "--once", "--sort", "backlog", "--limit", "1")
    assert [row["backlog"] for row in by_backlog] == [3]
    assert shell.lines("top", "public/functions", "--once") == []
    table = shell.run("top", "--once", "-o", "table").stdout.splitlines()
    assert table[0].split() == [
        "topic",
        "in/s",
        "kB",
        "in/s",
        "out/s",
        "kB",
        "out/s",
        "backlog",
        "unacked",
        "producers",
        "consumers",
    ]
    assert any(line.startswith("  s (Exclusive)") for line in table)
