"""A server killed in the middle of publishing and acknowledging: nothing that was answered is lost or doubled."""

import contextlib
import http.client
import json
import os
import random
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.server import launch

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]

ROUNDS = 12
ROUNDS_MAX = 60  # on a machine that is so busy that hardly anything happens in the first
TOPIC = "/topics/public/default/crash"
ADMIN = "/admin/v2/persistent/public/default/crash"


class Gone(Exception):
    """The server was killed before it answered."""


def call(port: int, method: str, path: str, body: object = None) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        data = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise Gone from error
    finally:
        connection.close()
    assert answer.status < 300, (method, path, answer.status, data)
    return json.loads(data) if data else None


class Life:
    """What the world did and was answered, over all lives of the server."""

    def __init__(self) -> None:
        self.waiting: list[int] = []  # sent, not answered: to be sent again under the same sequence ids
        self.next = 0
        self.acknowledged: set[int] = set()  # answered as acknowledged
        self.perhaps: set[int] = set()  # acknowledged, not answered

    def publish(self, port: int, dice: random.Random) -> None:
        while True:
            if not self.waiting:
                count = dice.randint(1, 5)
                self.waiting = list(range(self.next, self.next + count))
                self.next += count
            messages = [{"value": str(n), "sequenceId": n} for n in self.waiting]
            answer = call(port, "POST", TOPIC, {"producer_name": "p", "messages": messages})
            assert [r["error"] for r in answer["messageIds"]] == [None] * len(messages)
            self.waiting = []

    def consume(self, port: int, dice: random.Random) -> None:
        options = {"subscription_type": "Shared", "initial_position": "earliest"}
        made = call(port, "POST", f"{TOPIC}/subscription/s", options)
        while True:
            path = f"{TOPIC}/subscription/s/consumer/{made['id']}/messages?max_messages=20&timeout=1000"
            messages = call(port, "GET", path)["messages"]
            chosen = [m for m in messages if dice.random() < 0.7]
            for message in messages:
                assert int(message["value"]) not in self.acknowledged, "what was acknowledged came again"
            if chosen:
                values = {int(m["value"]) for m in chosen}
                self.perhaps |= values
                ids = [m["messageId"] for m in chosen]
                call(
                    port, "POST", f"{TOPIC}/subscription/s/cursor", {"type": "individual", "messageIds": ids}
                )
                self.acknowledged |= values

    def enough(self, port: int, *, trimmed: bool) -> bool:
        """Whether there is something to compare."""
        earliest = call(port, "GET", f"{TOPIC}/partitions/0/offsets")["earliest"]
        return self.next > ROUNDS and bool(self.acknowledged) and (earliest > 0 or not trimmed)


def until_gone(work: Any, *arguments: Any) -> None:
    with contextlib.suppress(Gone):
        work(*arguments)


TRIMMING = ("broker.retention_minutes=0", "broker.retention_mb=0", "broker.keep_check_ms=5")


@pytest.mark.parametrize("policies", [(), TRIMMING], ids=["keeping", "trimming"])
def test_kill_in_the_middle(tmp_path: Path, policies: tuple[str, ...]) -> None:
    life, dice = Life(), random.Random(20260101)
    flags = ["--set", "broker.deduplication=true"]
    for policy in policies:
        flags += ["--set", policy]
    with launch(tmp_path / "data", *flags) as server:  # from the first message on, the subscription holds all
        call(server.port, "PUT", f"{ADMIN}/subscription/s", "earliest")
    for number in range(ROUNDS_MAX):
        with launch(tmp_path / "data", *flags) as server:
            if number >= ROUNDS and life.enough(server.port, trimmed=bool(policies)):
                break
            killer = threading.Timer(dice.uniform(0.02, 0.6), os.kill, (server.process.pid, signal.SIGKILL))
            workers = [
                threading.Thread(target=until_gone, args=(work, server.port, random.Random(dice.random())))
                for work in (life.publish, life.consume)
            ]
            for worker in workers:
                worker.start()
            killer.start()
            for worker in workers:
                worker.join(30)
                assert not worker.is_alive()
            killer.join()
    with launch(tmp_path / "data", *flags) as server:
        if life.waiting:
            messages = [{"value": str(n), "sequenceId": n} for n in life.waiting]
            call(server.port, "POST", TOPIC, {"producer_name": "p", "messages": messages})
        stored, path = [], f"{TOPIC}/partitions/0/messages?max_messages=1000"
        following = ""
        while True:
            page = call(server.port, "GET", path + following)
            stored += [int(m["value"]) for m in page["messages"]]
            if not page["messages"]:
                break
            following = f"&offset={page['messages'][-1]['offset'] + 1}"
        first = life.next - len(stored)
        assert stored == list(range(first, life.next))
        gone = set(range(first))
        assert gone <= life.perhaps, "what nobody had acknowledged is gone"
        assert bool(gone) is bool(policies)
        assert life.next > ROUNDS
        cursor = call(server.port, "GET", f"{TOPIC}/subscription/s/cursor")["cursor"]
        backlog = cursor["backlog"]
        assert life.next - len(life.perhaps) <= backlog <= life.next - len(life.acknowledged)
        assert life.acknowledged
