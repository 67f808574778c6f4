"""Clients that make the server hold as much as they can: it holds what its limits say, lets go of it, and serves others.

With 64 MiB in flight in `make test`, with the default of 256 MiB in `make soak`.
"""

import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest
from tests.support.attacks import (
    BACK_S,
    BOUND,
    HELLO,
    MIB,
    SOAK,
    Canary,
    Memory,
    attacked,
    connected,
    emptied,
    figures,
    fill,
    head_of_frame,
    push,
    settled,
    subscribed,
    upgrade,
)
from tests.support.waiting import until

from penstock.testing.server import Launched

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="figures of another process need Linux"),
]

MANY = 200 if SOAK else 50  # one read of each is the same part of the bound
HALF = 5 * MIB  # nearly a whole frame
# The promise is 1.5, with the default bound. One read of 16 MiB is much of a small one.
PEAK = 1.5 if SOAK else 2.0
# What stays after an attack: caches of the store, its newest entries.
WARM = 28 * MIB
PRODUCER = "/ws/v2/producer/persistent/public/default/attacked"


def before_connect(server: Launched, stack: ExitStack) -> list[socket.socket]:
    """Frames of Pulsar's protocol that are as large as messages, before CONNECT."""
    found = [stack.enter_context(closing(connected(server.pulsar))) for _ in range(MANY)]
    # Each is cut, however long it takes.
    assert push(found, (HALF + 1000).to_bytes(4, "big") + bytes(HALF), quiet_s=BACK_S) == MANY
    return found


def after_connect(server: Launched, stack: ExitStack) -> list[socket.socket]:
    """The same after CONNECT, where they may be as large."""
    found = [stack.enter_context(closing(connected(server.pulsar))) for _ in range(MANY)]
    push(found, HELLO + (HALF + 1000).to_bytes(4, "big") + bytes(HALF))
    return found


def upgraded(server: Launched, stack: ExitStack) -> list[socket.socket]:
    """WebSockets of producers."""
    found = [stack.enter_context(closing(connected(server.url))) for _ in range(MANY)]
    for one in found:
        one.sendall(upgrade(PRODUCER))
        assert b" 101 " in one.recv(1000)
    return found


def half_messages(server: Launched, stack: ExitStack) -> list[socket.socket]:
    """WebSocket frames without their end."""
    found = upgraded(server, stack)
    push(found, head_of_frame(HALF + 1000) + bytes(HALF))
    return found


def fragments(server: Launched, stack: ExitStack) -> list[socket.socket]:
    """WebSocket messages in frames of 64 KiB, and in frames of a byte each, without their end."""
    found = upgraded(server, stack)
    large = (head_of_frame(65_536, opcode=0, fin=False) + bytes(65_536)) * (HALF // 65_536)
    small = (head_of_frame(1, opcode=0, fin=False) + b"a") * 100_000
    first = head_of_frame(1, fin=False) + b"a"
    push(found[::10], first + small)
    push([one for at, one in enumerate(found) if at % 10], first + large)
    return found


def large_fragments(server: Launched, stack: ExitStack) -> list[socket.socket]:
    """WebSocket messages of a few large frames, without their end."""
    found = upgraded(server, stack)
    half = bytes(HALF // 2)
    first = head_of_frame(len(half), fin=False) + half
    push(found, first + head_of_frame(len(half), opcode=0, fin=False) + half)
    return found


def held_messages(server: Launched, stack: ExitStack) -> list[socket.socket]:
    """Whole WebSocket messages whose publishing a backlog quota holds."""
    topic = f"{server.url}/admin/v2/persistent/public/default/attacked"
    with httpx.Client() as http:
        http.put(f"{topic}/subscription/slow").raise_for_status()
        quota = {"limitSize": 100, "policy": "producer_request_hold"}
        http.post(f"{topic}/backlogQuota", json=quota).raise_for_status()
        found = upgraded(server, stack)
        fill(server, "attacked", 1, 1000)
    body = b'{"payload": "' + b"A" * MIB + b'"}'
    push(found, (head_of_frame(len(body)) + body) * 5)
    return found


def rest_readers(server: Launched, stack: ExitStack) -> list[socket.socket]:
    """Answers of 16 MiB that are not read."""
    found = [stack.enter_context(closing(connected(server.url, reads_little=True))) for _ in range(MANY)]
    ask = b"GET /topics/public/default/big/partitions/0/messages?offset=0 HTTP/1.1\r\nHost: a\r\n\r\n"
    push(found, ask)
    return found


def websocket_readers(server: Launched, stack: ExitStack) -> list[socket.socket]:
    """Readers over WebSocket that do not read."""
    found = [stack.enter_context(closing(connected(server.url, reads_little=True))) for _ in range(MANY)]
    push(found, upgrade("/ws/v2/reader/persistent/public/default/big?messageId=earliest"))
    return found


def binary_readers(server: Launched, stack: ExitStack) -> list[socket.socket]:
    """The same over Pulsar's protocol."""
    found = [stack.enter_context(closing(connected(server.pulsar, reads_little=True))) for _ in range(MANY)]
    for number, one in enumerate(found):
        push([one], subscribed("persistent://public/default/big", f"s-{number}"))
    return found


@pytest.mark.parametrize("size", [MIB, 10_000], ids=["large", "small"])
@pytest.mark.parametrize("attack", [rest_readers, websocket_readers, binary_readers])
def test_readers_that_do_not_read(
    attack: Callable[[Launched, ExitStack], list[socket.socket]], size: int, tmp_path: Path
) -> None:
    with attacked(tmp_path) as server:
        fill(server, "big", 40 if size == MIB else 600, size)
        hold(server, attack)


@pytest.mark.parametrize("attack", [before_connect, after_connect, half_messages, fragments, large_fragments])
def test_what_never_completes(
    attack: Callable[[Launched, ExitStack], list[socket.socket]], tmp_path: Path
) -> None:
    # The server does not see a peer's end behind bytes that it does not read: a deadline ends such a connection.
    with attacked(
        tmp_path, "limits.stall_ms=5000", "limits.body_ms=5000", "limits.binary_stall_ms=5000"
    ) as server:
        fill(server, "canary", 1, 10)
        hold(server, attack)


def test_publishes_that_a_quota_holds_count(tmp_path: Path) -> None:
    """They stay until they are answered, also without their connection: a new message waits for room before."""
    hold = "broker.quota_hold_ms=250000"  # longer than the test
    with attacked(tmp_path, hold) as server, ExitStack() as stack:
        memory = Memory(server.process.pid)
        held_messages(server, stack)
        until(lambda: figures(server)["penstock_request_bytes_held"] > BOUND / 2)
        held = settled(server)["penstock_request_bytes_held"]
        assert BOUND / 2 < held <= 1.2 * BOUND
        assert memory.peak < 2.5 * BOUND  # the allocator's share included: whole messages come and go
        stack.close()
        assert figures(server)["penstock_request_bytes_held"] > BOUND / 4


def hold(server: Launched, attack: Callable[[Launched, ExitStack], list[socket.socket]]) -> None:
    """Attack: memory is bounded and comes back, and others are served meanwhile."""
    with Canary(server) as canary, ExitStack() as stack:
        canary.first.wait()
        memory = Memory(server.process.pid)
        attack(server, stack)
        found = settled(server)
        peak = memory.peak
        assert found["penstock_request_bytes_held"] + found["penstock_output_bytes_waiting"] <= 1.2 * BOUND
        stack.close()
        back = memory.comes_back(max(BOUND // 2, WARM))
        empty = emptied(server)
    print(
        f"\n{attack.__name__}: {peak / MIB:.0f} MiB at most, {memory.now / MIB:.0f} MiB after; slowest publish "
        f"{max(canary.seconds):.2f} s of {len(canary.seconds)}"
    )
    assert peak < PEAK * BOUND
    assert back
    assert empty
    canary.was_served()
