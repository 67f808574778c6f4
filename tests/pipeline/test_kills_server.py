"""The server killed, and the ground moved, under running queries: each message is in the output once all the same."""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.pipeline import census, copying
from tests.support.fault_proxy import FaultProxy, Rule
from tests.support.ports import kept_port
from tests.support.waiting import until

from penstock.broker.settings import BrokerSettings
from penstock.client.http import HttpClient
from penstock.client.paths import admin_path
from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.run.handle import Pipeline
from penstock.pipeline.spec.parse import load_spec
from penstock.testing.server import Launched, launch, running

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(900)]

SOAK = os.environ.get("PENSTOCK_SOAK") == "1"
ROUNDS = 5 if SOAK else 1
WAIT_S = 400
IN = TopicName.parse("in")


class Runs:
    """Pipelines in one session. One that gave up on a server that was away is started again, as a supervisor does."""

    def __init__(self, spark: SparkSession, url: str, *files: Path) -> None:
        self._make: list[Callable[[], Pipeline]] = [
            lambda file=file: Pipeline(load_spec(file, url=url), spark)  # type: ignore[misc]
            for file in files
        ]
        self._runs: list[Pipeline | None] = []
        self.restarts = 0

    def start(self, *, once: bool = False) -> None:
        self._runs = [make().start(once=once) for make in self._make]

    def tend(self, timeout_s: float = 0.05) -> bool:
        """Look after them; whether all are over."""
        over = True
        for number, run in enumerate(self._runs):
            try:
                if run is None:
                    run = self._runs[number] = self._make[number]().start()
                over = run.await_termination(timeout_s) and over
            except PipelineError as error:
                if getattr(error, "error_class", "") != "broker":
                    raise
                self._runs[number] = None
                self.restarts += 1
                over = False
        return over

    def until(self, rule: Rule) -> None:
        """Until it has happened."""

        def fired() -> bool:
            self.tend()
            return rule.fired.is_set()

        until(fired, WAIT_S)
        rule.wait(0)

    def finish(self) -> None:
        """Stop them, and have what is left processed."""
        self.stop()
        self.start(once=True)
        until(self.tend, WAIT_S)

    def stop(self) -> None:
        for run in self._runs:
            if run is not None and run.active:
                run.stop(WAIT_S)
        self._runs = []


@pytest.fixture
def start(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Runs]]:
    made: list[Runs] = []

    def make(url: str, *files: Path) -> Runs:
        made.append(Runs(spark, url, *files))
        return made[-1]

    yield make
    for runs in made:
        runs.stop()


SERVER_KILLS = [
    (r"GET /topics/\S+/messages", "after"),  # entries are on their way
    (r"PUT /stages/", "before"),
    (r"PUT /stages/", "after"),  # staged, and nobody knows
    (r"POST /stages/[^/]{36}/\d+/commit", "before"),
    (r"POST /stages/[^/]{36}/\d+/commit", "after"),  # committed, and nobody knows
    (r"POST /stages/[^/]{36}-out/\d+/commit", "after"),
    (r"POST /topics/offsets", "before"),
]


@pytest.mark.timeout(3600 if SOAK else 900)
def test_a_server_that_dies_under_running_queries(tmp_path: Path, start: Callable[..., Runs]) -> None:
    data = tmp_path / "data"
    with contextlib.ExitStack() as lives:
        port = lives.enter_context(kept_port())
        server: Launched = lives.enter_context(launch(data, port=port))
        with FaultProxy(port) as proxy:

            def again() -> None:
                nonlocal server
                server.kill()
                server = lives.enter_context(launch(data, port=port))

            census.create(server.url, "in", 2)
            publisher = census.Publisher(server.url, "in")
            runs = start(proxy.url, *copying.write(tmp_path, rows=500))
            runs.start()
            for place, when in SERVER_KILLS * ROUNDS:
                rule = proxy.at(place, again, when=when)
                publisher.publish(500)
                runs.until(rule)
            runs.finish()
            compared = copying.check(server.url, tmp_path)
    print(f"{len(SERVER_KILLS) * ROUNDS} kills, {compared} rows compared, {runs.restarts} queries restarted")
    assert compared > 3 * publisher.count


def earliest(url: str, partition: int = 0) -> int:
    with HttpClient(url) as client:
        return client.offsets(IN, partition).earliest


def keep_nothing(url: str) -> None:
    """Let go of everything that no durable subscription needs."""
    with HttpClient(url) as client:
        body = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
        client.call("POST", f"{admin_path(IN)}/retention", body=body)


def subscriptions(url: str) -> set[str]:
    """The subscriptions that hold the messages of `in`."""
    with HttpClient(url) as client:
        return set(client.call("GET", f"{admin_path(IN)}/subscriptions"))


def test_retention_waits_and_partitions_join(tmp_path: Path, start: Callable[..., Runs]) -> None:
    """Nothing is kept that was acknowledged, and partitions come, in the middle of batches."""
    with (
        running(tmp_path / "data", broker=BrokerSettings(keep_check_ms=20)) as server,
        FaultProxy(server.port) as proxy,
    ):
        census.create(server.url, "in", 2)
        publisher = census.Publisher(server.url, "in")
        publisher.publish(1000)
        wanted = census.messages(server.url, "in")
        runs = start(proxy.url, *copying.write(tmp_path, rows=150)[:2])
        commit = r"POST /stages/[^/]{36}/\d+/commit"

        def limit() -> None:
            until(lambda: {"topic", "table"} <= subscriptions(server.url), WAIT_S)  # both have begun to read
            keep_nothing(server.url)

        policy = proxy.at(commit, limit, nth=2, cut=False)

        def grow() -> None:
            with HttpClient(server.url) as client:
                client.call("POST", f"{admin_path(IN)}/partitions", body=4)
            publisher.publish(1000, (0, 1, 2, 3))
            for place, message in census.messages(server.url, "in").items():
                wanted[place] = message

        grown = proxy.at(commit, grow, nth=3, cut=False)
        runs.start()
        runs.until(policy)
        runs.until(grown)
        runs.finish()
        until(lambda: all(earliest(server.url, p) > 0 for p in range(4)), WAIT_S)
        assert len(wanted) == 2000
        census.same(wanted, census.copies(server.url, "out-topic", census.marked))
        census.same(wanted, census.rows(tmp_path / "table"))


def test_retention_that_overtakes_is_told(tmp_path: Path, start: Callable[..., Runs]) -> None:
    with (
        running(tmp_path / "data", broker=BrokerSettings(keep_check_ms=20)) as server,
        FaultProxy(server.port) as proxy,
    ):
        census.create(server.url, "in", 2)
        publisher = census.Publisher(server.url, "in")
        publisher.publish(1000)
        wanted = census.messages(server.url, "in")
        unfollowed = 'subscription = ""'
        files = copying.write(tmp_path, rows=200, source=unfollowed)[:1]

        def overtake() -> None:
            keep_nothing(server.url)
            until(lambda: earliest(server.url, 0) == earliest(server.url, 1) == 500, WAIT_S)

        rule = proxy.at(r"POST /stages/[^/]{36}/1/commit", overtake, cut=False)
        runs = start(proxy.url, *files)
        runs.start()
        with pytest.raises(PipelineError, match=r"partition 0: offsets 200 to 499 are gone") as failed:
            until(runs.tend, WAIT_S)
        rule.wait(0)
        assert failed.value.error_class == "data_loss"  # type: ignore[attr-defined]
        before = {place: message for place, message in wanted.items() if place[1] < 200}
        census.same(before, census.copies(server.url, "out-topic", census.marked))

        # Told to go on, it goes on behind what is gone.
        with HttpClient(server.url) as client:
            client.call("DELETE", f"{admin_path(IN)}/retention")
        publisher.publish(400)
        after = census.messages(server.url, "in")
        assert min(offset for _, offset in after) == 500
        copying.write(tmp_path, rows=200, source=f"{unfollowed}\nfail_on_data_loss = false")
        runs.start(once=True)
        until(runs.tend, WAIT_S)
        census.same(before | after, census.copies(server.url, "out-topic", census.marked))


def test_a_topic_made_anew_in_the_middle_of_a_batch(tmp_path: Path, start: Callable[..., Runs]) -> None:
    with running(tmp_path / "data") as server, FaultProxy(server.port) as proxy:
        census.create(server.url, "in", 2)
        publisher = census.Publisher(server.url, "in")
        publisher.publish(1000)
        old = census.messages(server.url, "in")

        def anew() -> None:
            with HttpClient(server.url) as client:
                client.call("DELETE", f"{admin_path(IN)}/partitions", params={"force": "true"})
            census.create(server.url, "in", 2)
            publisher.publish(1500)

        rule = proxy.at(r"POST /stages/[^/]{36}/1/commit", anew, cut=False)
        runs = start(proxy.url, *copying.write(tmp_path, rows=200)[:1])
        runs.start()
        with pytest.raises(PipelineError, match="the topic was deleted and made anew") as failed:
            until(runs.tend, WAIT_S)
        rule.wait(0)
        assert failed.value.error_class == "data_loss"  # type: ignore[attr-defined]
        before = {place: message for place, message in old.items() if place[1] < 200}
        census.same(before, census.copies(server.url, "out-topic", census.marked))

        # Told to go on, it takes the new topic from its beginning: places are now of two topics.
        new = census.messages(server.url, "in")
        copying.write(tmp_path, rows=500, source="fail_on_data_loss = false")
        runs.start(once=True)
        until(runs.tend, WAIT_S)
        got = census.copies(server.url, "out-topic", census.marked)
        assert got == Counter(before.items()) + Counter(new.items())
