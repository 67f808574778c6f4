"""The supervisor of pipelines, with a worker that plays a script in place of Spark."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import until

from penstock.client.http import HttpClient
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.run.events import last_events
from penstock.pipeline.run.folder import Folder, Lock
from penstock.pipeline.run.supervise import Backoff, Job, SharedWorker, Supervisor, run_together
from penstock.pipeline.spec.parse import load_spec
from penstock.pipeline.spec.spec import Spec
from penstock.testing.server import Address, running

FILE = 'name = "p"\n[sources.s]\ntopics = ["in"]\n[sinks.k]\ninput = "s"\ntopic = "out"\n'

# For each `start` the next list of lines; `die` ends the process, `wait` waits for the word stop.
WORKER = """
import json, os, sys
(job,) = json.loads(sys.stdin.readline())
path = sys.argv[1]
for order in sys.stdin:
    if order.rstrip("\\n") != "start " + job["file"]:
        break
    script = json.load(open(path))
    json.dump(script[1:], open(path, "w"))
    for line in script[0]:
        if line == "die":
            os.kill(os.getpid(), 9)
        elif line == "wait":
            assert sys.stdin.readline().startswith("stop ")
        else:
            print(json.dumps({**line, "file": job["file"]}), flush=True)
"""

BATCH = {"event": {"state": "running", "batch": 0, "rows": 3, "rejected": 1}}
DONE = {"over": True, "planned": True}


def failed(kind: str, *, retried: bool, planned: bool = True) -> dict[str, Any]:
    return {
        "over": True,
        "error": f"it was {kind}",
        "error_class": kind,
        "retried": retried,
        "planned": planned,
    }


class Runs:
    def __init__(self, folder: Path, server: Address) -> None:
        self.folder = folder
        self.url = server.url
        (folder / "p.toml").write_text(FILE)
        (folder / "worker.py").write_text(WORKER)
        self.spec = load_spec(folder / "p.toml", url=server.url)
        self.events: list[dict[str, Any]] = []

    def run(self, *script: list[Any], on: Any = None) -> list[str]:
        """Run the script; returns the states in their order."""
        (self.folder / "script").write_text(json.dumps(script))

        def watch(event: dict[str, Any]) -> None:
            if "state" in event:
                self.events.append(event)
            if on is not None:
                on(supervisor, event)

        job = Job(file=str(self.folder / "p.toml"), url=self.url)
        command = (sys.executable, str(self.folder / "worker.py"), str(self.folder / "script"))
        supervisor = Supervisor(self.spec, job, watch, Backoff(lambda: -0.99), command)  # 1 % of the waits
        try:
            supervisor.run()
        finally:
            assert not Folder(self.spec.home).in_use()
        return [event["state"] for event in self.events]


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    with running() as server:
        with HttpClient(server.url) as client:
            client.create_topic(TopicName.parse("in"))
        yield Runs(tmp_path, server)


def test_a_store_that_is_away_at_the_end_hides_no_error(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(folder: Folder) -> None:
        raise PenstockError(ErrorKind.UNAVAILABLE, "away")

    def watch(supervisor: Supervisor, event: dict[str, Any]) -> None:
        monkeypatch.setattr(Folder, "clear_control", away)
        monkeypatch.setattr(Folder, "vacate", away)

    with pytest.raises(PipelineError, match="it was plan"):
        runs.run([failed("plan", retried=False, planned=False)], on=watch)


def test_what_may_pass_is_tried_again_and_sums_go_on(runs: Runs) -> None:
    states = runs.run(
        [BATCH, failed("broker", retried=True)],
        [BATCH, "die"],
        [BATCH, DONE],
    )
    assert states == [
        *("starting", "running", "restarting"),
        *("running", "restarting"),
        *("running", "stopped"),
    ]
    assert runs.events[2]["error"] == "it was broker"
    assert runs.events[4]["error"] == "Spark's process ended unexpectedly (signal SIGKILL)"
    last = runs.events[-1]
    assert (last["rows_total"], last["rejected"], last["error"]) == (9, 3, None)
    status = Folder(runs.spec.home).status()
    assert status == last
    (latest,) = last_events(runs.url)
    assert (latest["pipeline"], latest["state"], latest["rejected"]) == ("p", "stopped", 3)


def batch(number: int) -> dict[str, Any]:
    return {"event": {"state": "running", "batch": number, "rows": 3, "rejected": 0}}


@pytest.mark.parametrize("kind", ["new_schema", "unknown", "broker"])
def test_what_fails_ten_times_without_a_batch_ends_the_run(runs: Runs, kind: str) -> None:
    again = failed(kind, retried=True)
    away = failed("broker", retried=True, planned=False)
    with pytest.raises(PipelineError, match=f"^it was {kind}; it failed 10 times, and no batch was over"):
        runs.run(
            [batch(0), again],
            *[[batch(0), again]] * 8,  # a batch that was over before is no progress
            [batch(1), again],
            *[[away]] * 12,
            *[[again]] * 4,
            [{"event": {"state": "idle"}}, again],
            *[[again]] * 9,
        )
    states = [event["state"] for event in runs.events]
    assert states.count("restarting") == 9 + 1 + 12 + 4 + 9
    assert states[-1] == "failed"
    assert runs.events[-1]["error_class"] == kind


@pytest.mark.parametrize("kind", ["user_code", "data_loss", "plan", "expectation", "access"])
def test_what_will_not_pass_ends_the_run(runs: Runs, kind: str) -> None:
    with pytest.raises(PipelineError, match=f"^it was {kind}$"):
        runs.run([BATCH, failed(kind, retried=False)])
    assert [event["state"] for event in runs.events] == ["starting", "running", "failed"]
    assert runs.events[-1]["error_class"] == kind


def test_a_first_start_that_fails_is_not_tried_again(runs: Runs) -> None:
    with pytest.raises(PipelineError, match="it was broker"):
        runs.run([failed("broker", retried=True, planned=False)])


def test_it_stops_by_a_signal_s_word_or_by_the_control_file(runs: Runs) -> None:
    def stop(supervisor: Supervisor, event: dict[str, Any]) -> None:
        if event.get("batch") == 0:
            supervisor.stop()

    def ask(supervisor: Supervisor, event: dict[str, Any]) -> None:
        if event.get("batch") == 0:
            Folder(runs.spec.home).ask_to_stop()

    assert runs.run([BATCH, "wait", DONE], on=stop)[-1] == "stopped"
    assert runs.run([BATCH, "wait", DONE], on=ask)[-1] == "stopped"
    assert not Folder(runs.spec.home).asked_to_stop()


def test_a_worker_s_whole_group_ends_with_it(runs: Runs) -> None:
    worker = runs.folder / "worker.py"
    child = "import subprocess\nprocess = subprocess.Popen(['sleep', '600'])\nopen(sys.argv[1] + '.pid', 'w').write(str(process.pid))\n"
    worker.write_text(WORKER.replace("path = sys.argv[1]\n", "path = sys.argv[1]\n" + child))
    runs.run([BATCH, "die"], [DONE])
    pid = int((runs.folder / "script.pid").read_text())
    until(lambda: _gone(pid))  # it was killed before the run ended, and dies when it is scheduled


def _gone(pid: int) -> bool:
    """Killed; init may still have to take it away."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


# One process for several jobs: each start plays the next list of lines of its file, and a stop ends it.
SHARED = """
import json, os, sys
json.loads(sys.stdin.readline())
for order in sys.stdin:
    word, _, file = order.rstrip("\\n").partition(" ")
    lines = [{"over": True, "planned": True}]
    if word == "start":
        lines, *rest = json.load(open(file + ".script"))
        json.dump(rest, open(file + ".script", "w"))
    for line in lines:
        if line == "die":
            os.kill(os.getpid(), 9)
        if "event" in line:
            line["event"]["worker"] = os.getpid()
        print(json.dumps({**line, "file": file}), flush=True)
"""


class Together:
    """Two pipelines, `a` and `b`, that share a worker."""

    def __init__(self, folder: Path, server: Address, **scripts: list[Any]) -> None:
        (folder / "worker.py").write_text(SHARED)
        self.specs: dict[str, Spec] = {}
        self.events: dict[str, list[dict[str, Any]]] = {name: [] for name in scripts}
        self.failures: list[str] = []
        self._supervisors: dict[str, Supervisor] = {}
        files = {name: folder / f"{name}.toml" for name in scripts}
        shared = SharedWorker((sys.executable, str(folder / "worker.py")), map(str, files.values()))
        for name, script in scripts.items():
            files[name].write_text(FILE.replace('"p"', f'"{name}"'))
            Path(f"{files[name]}.script").write_text(json.dumps(script))
            self.specs[name] = load_spec(files[name], url=server.url)
            job = Job(file=str(files[name]), url=server.url)
            self._supervisors[name] = Supervisor(
                self.specs[name], job, self.events[name].append, Backoff(lambda: -0.99), shared=shared
            )

    def run(self, *, stop_on_failure: bool = False) -> None:
        run_together(self._supervisors, stop_on_failure=stop_on_failure, failed=self.failures.append)

    def states(self, name: str) -> list[str]:
        return [event["state"] for event in self.events[name] if "state" in event]

    def in_use(self, name: str) -> bool:
        return Folder(self.specs[name].home).in_use()

    def stop_all(self) -> None:
        for supervisor in self._supervisors.values():
            supervisor.stop()

    def stop(self, name: str) -> None:
        Folder(self.specs[name].home).ask_to_stop()


@pytest.fixture
def server() -> Iterator[Address]:
    with running() as started:
        with HttpClient(started.url) as client:
            client.create_topic(TopicName.parse("in"))
        yield started


def in_background(run: Callable[[], None]) -> "Future[None]":
    threads = ThreadPoolExecutor(1)
    found = threads.submit(run)
    threads.shutdown(wait=False)
    return found


def test_a_pipeline_that_fails_leaves_its_neighbour_alone(tmp_path: Path, server: Address) -> None:
    both = Together(tmp_path, server, a=[[BATCH]], b=[[BATCH, failed("plan", retried=False)]])
    over = in_background(both.run)
    until(lambda: not both.in_use("b") and both.states("b")[-1:] == ["failed"])
    assert both.in_use("a")
    both.stop("a")
    with pytest.raises(PipelineError, match=r"^1 of 2 pipelines failed: b$"):
        over.result(60)
    assert both.failures == ["it was plan"]
    assert both.states("a") == ["starting", "running", "stopped"]


def test_a_failure_stops_the_others_on_request(tmp_path: Path, server: Address) -> None:
    both = Together(tmp_path, server, a=[[BATCH]], b=[[BATCH, failed("plan", retried=False)]])
    with pytest.raises(PipelineError, match=r"^1 of 2 pipelines failed: b$"):
        both.run(stop_on_failure=True)
    assert both.states("a")[-1] == "stopped"


def test_one_of_two_is_stopped_and_its_folder_is_free(tmp_path: Path, server: Address) -> None:
    both = Together(tmp_path, server, a=[[BATCH]], b=[[BATCH]])
    over = in_background(both.run)
    until(lambda: "running" in both.states("a") and "running" in both.states("b"))
    both.stop("b")
    until(lambda: not both.in_use("b"))
    with Lock(Folder(Path(both.specs["b"].home))):
        assert both.in_use("a")
    both.stop("a")
    over.result(60)
    assert both.states("b") == ["starting", "running", "stopped"]


def test_a_worker_that_is_lost_is_started_again_once_for_both(tmp_path: Path, server: Address) -> None:
    both = Together(tmp_path, server, a=[[BATCH], [BATCH]], b=[[BATCH, "die"], [BATCH]])
    over = in_background(both.run)
    for name in ("a", "b"):
        until(lambda name=name: both.states(name)[-2:] == ["restarting", "running"])  # type: ignore[misc]
    for name in ("a", "b"):
        both.stop(name)
    over.result(60)
    workers = {
        event["worker"] for name in ("a", "b") for event in both.events[name][-2:] if "worker" in event
    }
    assert len(workers) == 1
    assert both.events["a"][-1]["rows_total"] in (
        3,
        6,
    )  # the first worker may have died before the batch of a


def test_a_signal_to_the_command_stops_all(tmp_path: Path, server: Address) -> None:
    both = Together(tmp_path, server, a=[[BATCH]], b=[[BATCH]])

    def interrupt() -> None:
        until(lambda: "running" in both.states("a") and "running" in both.states("b"))
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: both.stop_all())
    try:
        sent = in_background(interrupt)
        both.run()
        sent.result(60)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert [both.states(name)[-1] for name in ("a", "b")] == ["stopped", "stopped"]
