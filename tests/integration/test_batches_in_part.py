"""Batches that the official client acknowledges in part, over a restart of the server."""

from pathlib import Path
from typing import Any

import httpx
import pulsar
from tests.support.ports import kept_port
from tests.support.waiting import until

from penstock.testing.server import Address, running

RECEIVE_MS = 60_000


def test_the_rest_of_a_batch_keeps_its_ids_over_a_restart(tmp_path: Path) -> None:
    with kept_port() as port:
        _over_a_restart(tmp_path, f"127.0.0.1:{port}")


def _over_a_restart(tmp_path: Path, listen: str) -> None:
    with running(tmp_path, pulsar=listen) as server:
        client = pulsar.Client(server.pulsar)
        consumer = subscribe(client)
        producer = client.create_producer(
            "orders", batching_enabled=True, batching_max_publish_delay_ms=60_000
        )
        for number in range(10):
            producer.send_async(b"%d" % number, lambda *_: None)
        producer.flush()
        held = take(consumer, 10)
        assert len({(m.message_id().ledger_id(), m.message_id().entry_id()) for m in held}) == 1
        for message in held[:5]:
            consumer.acknowledge(message)
        wait_for_backlog(server, 5)
        producer.close()
    with running(tmp_path, pulsar=listen) as server:
        again = take(consumer, 5)
        assert [(m.data(), str(m.message_id())) for m in again] == [
            (m.data(), str(m.message_id())) for m in held[5:]
        ]
        consumer.acknowledge(held[5])  # one that it has since before the restart
        wait_for_backlog(server, 4)
        consumer.close()
        consumer = subscribe(client)
        assert [m.data() for m in take(consumer, 4)] == [b"6", b"7", b"8", b"9"]
        client.close()


def subscribe(client: pulsar.Client) -> Any:
    return client.subscribe(
        "orders",
        "s",
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        batch_index_ack_enabled=True,
    )


def take(consumer: Any, count: int) -> list[Any]:
    return [consumer.receive(RECEIVE_MS) for _ in range(count)]


def wait_for_backlog(server: Address, wanted: int) -> None:
    """Until so many messages are not acknowledged."""

    def backlog() -> int:
        answer = httpx.get(f"{server.url}/admin/v2/persistent/public/default/orders/stats")
        found: int = answer.raise_for_status().json()["subscriptions"]["s"]["msgBacklog"]
        return found

    until(lambda: backlog() == wanted, said=backlog)
