"""A commit that takes long is answered before it is done, followed, and made once."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from tests.support.server import ThreadedServer
from tests.support.stages import latest, stage, topic

from penstock.client.access import Access
from penstock.model.errors import ErrorKind, PenstockError
from penstock.pipeline.http import stages as stages_module
from penstock.pipeline.http.stages import StageCount, Stages


class SlowCommits:
    """Commits of a server that wait until they are let go."""

    def __init__(self, server: ThreadedServer) -> None:
        self.server = server
        self.begun = 0
        self.error: PenstockError | None = None
        self._free = asyncio.Event()
        staging: Any = server.broker.staging
        self._commit = staging.commit
        staging.commit = self

    async def __call__(self, *args: Any, **more: Any) -> Any:
        self.begun += 1
        await self._free.wait()
        if self.error is not None:
            raise self.error
        return await self._commit(*args, **more)

    def let_go(self) -> None:
        self.server.loop.call_soon_threadsafe(self._free.set)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowCommits]:
    monkeypatch.setattr(stages_module, "COMMIT_WAIT_S", 0)
    with ThreadedServer.running() as server:
        yield SlowCommits(server)


def client(slow: SlowCommits, at: int = 1, then: Callable[[], None] | None = None) -> Stages:
    """A client whose `at`-th look at the progress is followed by something."""
    looks = 0

    def sleep(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == at:
            (then or slow.let_go)()

    return Stages(Access(url=slow.server.url), retry_s=0, sleep=sleep)


def body_of(held: StageCount) -> dict[str, Any]:
    return {"topics": ["large"], "stages": [held._asdict()]}


def test_a_long_commit_is_followed_to_its_end(slow: SlowCommits) -> None:
    with client(slow, at=3) as made:
        done = made.commit("job", 0, [stage(made, "job", 0, "s", large=5)], [topic("large")])
    assert (done["repeated"], [span["messages"] for span in done["spans"]]) == (False, [5])
    assert slow.begun == 1
    assert latest(slow.server, "large") == 5


def test_the_error_of_a_long_commit_is_raised(slow: SlowCommits) -> None:
    slow.error = PenstockError(ErrorKind.STORAGE_FULL, "no room for it")
    with client(slow, at=2) as made, pytest.raises(PenstockError, match="no room for it") as caught:
        made.commit("job", 0, [stage(made, "job", 0, "s", large=5)], [topic("large")])
    assert caught.value.kind is ErrorKind.STORAGE_FULL
    assert slow.begun == 1


def test_progress_is_shown_to_whoever_asks(slow: SlowCommits) -> None:
    """And a client that hangs up, or asks twice, changes nothing."""
    with client(slow) as made:
        held = stage(made, "a/b", 7, "s", large=5)
    with httpx.Client(base_url=slow.server.url) as http:
        path, prefer = "/stages/a%2Fb/7/commit", {"Prefer": "respond-async, wait=0"}
        assert http.get(path).json() | {"process": ""} == {
            "writer": "a/b",
            "batch": 7,
            "state": "open",
            "process": "",
            "since": None,
        }
        for _ in range(2):
            answer = http.post(path, json=body_of(held), headers=prefer)
            assert answer.status_code == 202
            assert answer.headers["location"] == path
            assert answer.json()["state"] == "committing"
        assert http.get(answer.headers["location"]).json() == answer.json()
        slow.let_go()
        ended = threading.Event()
        while http.get(path).json()["state"] != "committed":
            assert not ended.wait(0.01)
        assert http.post(path, json=body_of(held), headers=prefer).json()["repeated"] is False
        assert http.post(path, json=body_of(held), headers=prefer | {"Prefer": "respond-async"}).json()[
            "repeated"
        ]
        assert slow.begun == 2


def test_a_request_without_the_header_waits_for_its_answer(slow: SlowCommits) -> None:
    with client(slow) as made:
        held = stage(made, "job", 0, "s", large=5)
    slow.let_go()
    answer = httpx.post(f"{slow.server.url}/stages/job/0/commit", json=body_of(held))
    assert (answer.status_code, answer.json()["batch"]) == (200, 0)


@pytest.mark.parametrize("said", ["committed", "lost"])
def test_another_process_answers(slow: SlowCommits, said: str) -> None:
    """Behind a load balancer: it knows of a commit when it is made; if nobody does any more, it is asked for again."""
    clock = [0.0]
    own = slow.server.context.lasting

    def sleep(s: float) -> None:
        clock[0] += s
        if clock[0] > stages_module.LOST_S / 2:
            slow.let_go()

    with Stages(Access(url=slow.server.url), retry_s=0, sleep=sleep, clock=lambda: clock[0]) as made:
        held = stage(made, "job", 0, "s", large=5)
        calls: Any = made
        send, gets = calls.send, []

        def elsewhere(method: str, *args: Any) -> Any:
            answer = send(method, *args)
            if method == "GET":
                gets.append(answer["state"])
                other = "committed" if said == "committed" and len(gets) == 3 else "open"
                return answer | {"process": "another", "state": other, "since": None}
            return answer

        calls.send = elsewhere
        if said == "committed":
            slow.let_go()
        done = made.commit("job", 0, [held], [topic("large")])
    assert own.process != "another"
    assert sum(span["messages"] for span in done["spans"]) == 5
    assert (len(gets) == 3) is (said == "committed")
    assert clock[0] >= stages_module.LOST_S or said == "committed"
    assert latest(slow.server, "large") == 5
