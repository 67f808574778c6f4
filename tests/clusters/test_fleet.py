"""Processes that were started one by one before a real cluster: one service at any of their addresses."""

import itertools
import signal
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from tests.support.service import Service, flags_before, known_by, service
from tests.support.waiting import until

COUNT = 3
WAIT_S = 60
SECRET = "a secret of these three processes"


@pytest.fixture(params=["pulsar", "kafka"])
def flags(request: pytest.FixtureRequest) -> list[str]:
    return flags_before(request.getfixturevalue(f"{request.param}_cluster"))


def test_a_balancer_without_sticky_sessions(flags: list[str], tmp_path: Path) -> None:
    """Every request goes to the next process. A process that is killed takes its instances with it, and no others."""
    environment = {"PENSTOCK_FLEET__SECRET": SECRET}
    with service(tmp_path, ["--pulsar", "off", *flags], COUNT, environment) as made_of:
        nodes = made_of.nodes
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
    """One has a secret, one another, one that of its user and machine. They say so, and remain ready to publish and read."""
    made = Service(tmp_path, flags)
    try:
        one = made.start(0, environment={"PENSTOCK_FLEET__SECRET": SECRET})
        other = made.start(1, environment={"PENSTOCK_FLEET__SECRET": "a secret of another process"})
        local = made.start(2, environment={"XDG_STATE_HOME": str(tmp_path / "state")})
        assert (tmp_path / "state" / "penstock" / "fleet.secret").exists()
        topic = f"/topics/public/default/fleet-{uuid4().hex[:10]}"
        subscription = f"{topic}/subscription/s"
        answers = [httpx.post(f"{node.url}{subscription}", json={}, timeout=WAIT_S) for node in made.nodes]
        if "kafka" in flags[1]:  # only the owner of the partition has the subscription
            assert sorted(answer.status_code for answer in answers) == [200, 503, 503]
            for answer in answers:
                assert answer.status_code == 200 or "it uses another fleet.secret" in answer.json()["message"]
        (created, at) = next(
            (answer.json(), n) for n, answer in enumerate(answers) if answer.status_code == 200
        )
        gone = httpx.get(
            f"{made.nodes[at - 1].url}{subscription}/consumer/{created['id']}/messages", timeout=WAIT_S
        )
        assert (gone.status_code, gone.json()["error_code"]) == (404, 40403)
        for node in (one, other, local):
            assert known_by(node) == 0
            assert "the document of a process was rejected" in node.log
            published = httpx.post(f"{node.url}{topic}", json={"messages": [{"value": "v"}]}, timeout=WAIT_S)
            assert published.status_code == 200, published.text
            ready = httpx.get(f"{node.url}/health/ready", timeout=WAIT_S)
            assert (ready.status_code, ready.json()["status"]) == (200, "ready")
            assert (
                "2 other processes before the cluster use another fleet.secret" in ready.json()["processes"]
            )
    finally:
        made.close()
