"""Publishers and consumers of all endpoints and types at the processes of one service, while these come and go."""

import signal
import time
from collections import Counter
from typing import Final

import httpx

from .service import WAIT_S, Service
from .service_clients import (
    BinaryConsumer,
    Consumer,
    Deliveries,
    InstanceConsumer,
    Publisher,
    SocketConsumer,
    ended,
    started,
)
from .waiting import until

# Of a process that stops: what its consumers were about to send goes with them.
STOPS: Final = ("the server is shutting down", "the consumer is closed")
STOPPED_S: Final = 8.0  # longer than the session of a process in the group of owners
# A consumer of each kind at each process, or at one.
MIXES: Final = {
    "Shared": [(SocketConsumer, 0), (InstanceConsumer, 1), (BinaryConsumer, 2), (SocketConsumer, 2)],
    "Key_Shared": [(SocketConsumer, 0), (SocketConsumer, 1), (InstanceConsumer, 2), (BinaryConsumer, 0)],
    "Failover": [(SocketConsumer, 2), (BinaryConsumer, 1), (InstanceConsumer, 0)],
    "Exclusive": [(SocketConsumer, 1)],
}


class Load:
    """Publishers at each process, and consumers of all types and endpoints of one topic."""

    def __init__(self, three: Service) -> None:
        nodes = three.nodes
        self.three = three
        self.topic = three.new_topic(2)
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
            early = {text for one in self.consumers for text in one.early if not any(map(text.count, STOPS))}
            assert not early, early
            for name, deliveries in self.deliveries.items():
                assert deliveries.answered > 0, name
                deliveries.check(ordered=name != "Shared")
