"""Three processes before a real Kafka are killed, stopped and restarted in turn, under clients of all endpoints.

Of each subscription no message is lost that was published with success, none comes again after its acknowledgement was answered, and
messages of a key keep their order.
"""

import signal
import time
from collections import Counter
from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest
from tests.support.kafka_broker import KafkaCluster, given, standalone
from tests.support.kafka_faults import ROUNDS
from tests.support.service import (
    WAIT_S,
    BinaryConsumer,
    Consumer,
    Deliveries,
    InstanceConsumer,
    Publisher,
    Service,
    SocketConsumer,
    ended,
    flags_before,
    service,
    started,
)
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(1800)

# Of a process that stops: what its consumers were about to send goes with them.
STOPS = ("the server is shutting down", "the consumer is closed")
STOPPED_S = 8.0  # longer than the session of a process in the group of owners
# A consumer of each kind at each process, or at one.
MIXES = {
    "Shared": [(SocketConsumer, 0), (InstanceConsumer, 1), (BinaryConsumer, 2), (SocketConsumer, 2)],
    "Key_Shared": [(SocketConsumer, 0), (SocketConsumer, 1), (InstanceConsumer, 2), (BinaryConsumer, 0)],
    "Failover": [(SocketConsumer, 2), (BinaryConsumer, 1), (InstanceConsumer, 0)],
    "Exclusive": [(SocketConsumer, 1)],
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    if there := given():
        yield there
        return
    with standalone(tmp_path_factory.mktemp("service-faults")) as cluster:
        yield cluster


class Load:
    """Publishers at each process, and consumers of all types and endpoints of one topic."""

    def __init__(self, three: Service) -> None:
        nodes = three.nodes
        self.three = three
        self.topic = f"t{uuid4().hex[:10]}"
        path = f"{nodes[0].url}/admin/v2/persistent/public/default/{self.topic}/partitions"
        assert httpx.put(path, json=2, timeout=WAIT_S).status_code == 204
        self.deliveries = {name: Deliveries() for name in MIXES}
        self.consumers: list[Consumer] = [
            kind(nodes, at, self.topic, name, name, self.deliveries[name], moves=True)
            for name, mix in MIXES.items()
            for kind, at in mix
        ]
        self.publishers = [
            Publisher(nodes, at, self.topic, [f"p{at}k{key}" for key in range(4)], 0.05) for at in range(3)
        ]

    def __enter__(self) -> "Load":
        started(self.consumers)
        for one in self.publishers:
            one.start()
        return self

    def goes_on(self) -> None:
        """Wait until messages that are published from now on have arrived in every subscription."""
        before = [len(one.published) for one in self.publishers]
        until(
            lambda: all(
                len(one.published) >= count + 4 for one, count in zip(self.publishers, before, strict=True)
            ),
            said=lambda: f"nothing is published: {[one.refusals[-3:] for one in self.publishers]}",
        )
        wanted = {value for one in self.publishers for value in list(one.published)}
        self._arrives(wanted)

    def _arrives(self, wanted: set[str]) -> None:
        def missing() -> dict[str, list[str]]:
            return {name: sorted(wanted - one.values) for name, one in self.deliveries.items()}

        until(lambda: not any(missing().values()), said=lambda: f"missing: {missing()}, {self._stats()}")

    def stop_and_kill(self, stopped: int, killed: int) -> None:
        """Stop a process, which does not notice, for longer than its slots are its own, and kill another one within that time."""
        nodes, begin = self.three.nodes, time.monotonic()
        node = nodes[stopped]
        node.process.send_signal(signal.SIGSTOP)
        nodes[killed].kill()
        time.sleep(STOPPED_S)
        node.process.send_signal(signal.SIGCONT)
        self.goes_on()
        for deliveries in self.deliveries.values():
            deliveries.stops.append((node, begin, time.monotonic()))

    def _stats(self) -> list[str]:
        """For a failure: the consumers of each partition, as each process sees them."""
        found = []
        for number, node in enumerate(self.three.nodes):
            for partition in range(2):
                path = (
                    f"{node.url}/admin/v2/persistent/public/default/{self.topic}-partition-{partition}/stats"
                )
                try:
                    shown = httpx.get(path, timeout=WAIT_S).json()["subscriptions"]
                except httpx.TransportError as error:
                    found.append(f"{number}: {error}")
                    continue
                for name, each in shown.items():
                    consumers = [
                        (
                            one["consumerName"],
                            one["unackedMessages"],
                            one["availablePermits"],
                            one.get("address"),
                        )
                        for one in each["consumers"]
                    ]
                    found.append(f"{number} {name} {partition}: {each['msgBacklog']} {consumers}")
        return found

    def __exit__(self, *failure: object) -> None:
        for one in self.publishers:
            one.end()
        if failure[0] is None:
            self._arrives({value for one in self.publishers for value in one.published})
        ended(self.consumers)
        print("refused:", Counter((one.kind, *each) for one in self.consumers for each in one.refusals))
        if failure[0] is None:
            early = {text for one in self.consumers for text in one.early if not text.endswith(STOPS)}
            assert not early, early
            for name, deliveries in self.deliveries.items():
                assert deliveries.answered > 0, name
                deliveries.check(ordered=name != "Shared")


@pytest.fixture(scope="module")
def three(broker: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service(tmp_path_factory.mktemp("service"), flags_before(broker)) as made:
        yield made


def test_each_process_is_stopped_while_another_one_is_killed(three: Service) -> None:
    with Load(three) as load:
        load.goes_on()
        for number in list(range(3)) * ROUNDS:
            load.stop_and_kill(number, (number + 1) % 3)
            three.start((number + 1) % 3)
            load.goes_on()


def test_processes_are_restarted_one_after_the_other(three: Service) -> None:
    """Clients see closed connections, and on open ones at most that the process stops."""
    with Load(three) as load:
        load.goes_on()
        for number in range(3):
            assert three.nodes[number].terminate() == 0
            load.goes_on()
            three.start(number)
            load.goes_on()
    refusals = {each for one in load.consumers for each in one.refusals}
    gone = {(status, text) for status, text in refusals if status == 404 and "40403" in text}
    assert not {each for each in refusals - gone if not any(text in each[1] for text in STOPS)}, refusals
    published = {each for one in load.publishers for each in one.refusals}
    assert not {each for each in published if STOPS[0] not in each[1]}, published
