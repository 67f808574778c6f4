"""Processes that were started one by one before a real cluster: one service at any of their addresses."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from tests.support.kafka_broker import KafkaCluster
from tests.support.pulsar_broker import PulsarCluster
from tests.support.waiting import until

COUNT = 3
WAIT_S = 60
SECRET = "a secret of these three processes"


class Node:
    """One process; the others learn its address only from its document in the cluster."""

    def __init__(self, process: "subprocess.Popen[str]", errors: Path) -> None:
        self.process = process
        assert process.stdout is not None
        line = process.stdout.readline().split()
        assert line[:2] == ["penstock", "ready"], errors.read_text()
        self.url = line[2]

    @property
    def known(self) -> int:
        """How many other processes it knows."""
        lines = httpx.get(f"{self.url}/metrics", timeout=WAIT_S).text.splitlines()
        return next(
            int(float(line.split()[1])) for line in lines if line.startswith("penstock_fleet_processes ")
        )


@contextlib.contextmanager
def service(folder: Path, flags: list[str], secrets: list[str]) -> Iterator[list[Node]]:
    nodes: list[Node] = []
    with contextlib.ExitStack() as stack:
        for number, secret in enumerate(secrets):
            errors = folder / f"errors-{number}"
            command = [sys.executable, "-m", "penstock", "serve", "--log", "json", "--http", "127.0.0.1:0"]
            environment = {**os.environ, **({"PENSTOCK_FLEET__SECRET": secret} if secret else {})}
            process = stack.enter_context(
                subprocess.Popen(
                    [*command, "--pulsar", "off", *flags],
                    stdout=subprocess.PIPE,
                    stderr=stack.enter_context(errors.open("w")),
                    text=True,
                    cwd=folder,
                    env=environment,
                )
            )
            stack.callback(process.kill)
            nodes.append(Node(process, errors))
        yield nodes
        for node in nodes:
            node.process.terminate()


def flags_before(cluster: PulsarCluster | KafkaCluster) -> list[str]:
    if isinstance(cluster, PulsarCluster):
        return ["--engine", cluster.service_url, "--admin", cluster.admin_url]
    topics = f"__{uuid4().hex[:10]}"
    flags = ["--engine", cluster.service_url]
    for key, name in (("documents", ""), ("replies", "-replies"), ("journals", "-journals")):
        flags += ["--set", f"engine.{key}_topic={topics}{name}"]
    return flags


@pytest.fixture(params=["pulsar", "kafka"])
def flags(request: pytest.FixtureRequest) -> list[str]:
    return flags_before(request.getfixturevalue(f"{request.param}_cluster"))


def test_a_balancer_without_sticky_sessions(flags: list[str], tmp_path: Path) -> None:
    """Every request goes to the next process. A process that is killed takes its instances with it, and no others."""
    with service(tmp_path, flags, [SECRET] * COUNT) as nodes:
        until(lambda: [node.known for node in nodes] == [COUNT - 1] * COUNT)
        turns = itertools.cycle(nodes)

        def ask(method: str, path: str, **more: object) -> httpx.Response:
            return httpx.request(method, f"{next(turns).url}{path}", timeout=WAIT_S, **more)  # type: ignore[arg-type]

        topic = f"/topics/public/default/fleet-{uuid4().hex[:10]}"
        sent = [f"v{number}" for number in range(8)]
        answer = ask("POST", topic, json={"messages": [{"value": value} for value in sent]})
        assert answer.status_code == 200, answer.text
        wanted = {"initial_position": "earliest"}
        subscription = f"{topic}/subscription/s-{uuid4().hex[:6]}"
        made = ask("POST", subscription, json=wanted).json()
        instance = f"{subscription}/consumer/{made['id']}"
        found: list[str] = []
        while len(found) < len(sent):
            polled = ask("GET", f"{instance}/messages", params={"timeout": 10_000, "max_messages": 2})
            assert polled.status_code == 200, polled.text
            messages = polled.json()["messages"]
            found += [message["value"] for message in messages]
            ids = [message["messageId"] for message in messages]
            acknowledged = ask("POST", f"{instance}/cursor", json={"messageIds": ids})
            assert [each["error_code"] for each in acknowledged.json()["messageIds"]] == [None] * len(ids)
        assert found == sent
        assert ask("POST", subscription, json={"id": made["id"]}).json()["id"] == made["id"]

        owner = nodes[1]  # the second request created the instance
        others = [node for node in nodes if node is not owner]
        owner.process.send_signal(signal.SIGKILL)
        owner.process.wait(WAIT_S)
        turns = itertools.cycle(others)
        for _ in others:
            gone = ask("GET", f"{instance}/messages")
            assert (gone.status_code, gone.json()["error_code"]) == (404, 40403), gone.text
        assert ask("POST", topic, json={"messages": [{"value": "after"}]}).status_code == 200

        def again() -> bool:
            """The cluster may still count the consumer of the process that was killed."""
            nonlocal made
            answer = ask("POST", subscription, json=wanted)
            made = answer.json()
            return answer.status_code == 200

        until(again, WAIT_S)
        polled_values: list[str] = []
        while not polled_values:
            polled = ask("GET", f"{subscription}/consumer/{made['id']}/messages", params={"timeout": 10_000})
            polled_values = [message["value"] for message in polled.json()["messages"]]
        assert polled_values == ["after"]


def test_processes_of_another_secret_are_not_believed(flags: list[str], tmp_path: Path) -> None:
    with service(tmp_path, flags, [SECRET, "a secret of another process", ""]) as (one, other, _):
        subscription = f"/topics/public/default/fleet-{uuid4().hex[:10]}/subscription/s"
        made = httpx.post(f"{one.url}{subscription}", json={}, timeout=WAIT_S).json()["id"]
        gone = httpx.get(f"{other.url}{subscription}/consumer/{made}/messages", timeout=WAIT_S)
        assert (gone.status_code, gone.json()["error_code"]) == (404, 40403)
        assert [one.known, other.known] == [0, 0]
        assert "no request is passed on to another process" in (tmp_path / "errors-2").read_text()
        assert "the document of a process was rejected" in (tmp_path / "errors-0").read_text()
