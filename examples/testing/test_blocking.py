"""A worker with the blocking client, and its tests: what it publishes, what it acknowledges, and what comes later.

pytest examples/testing
"""

import json
from datetime import timedelta

import penstock
from penstock.testing.server import Running

DAY_MS = 24 * 3_600_000


def bill(service_url: str, count: int) -> None:
    """The code under test: an invoice for each order, and a reminder a day later."""
    with penstock.Client(service_url) as client:
        orders = client.subscribe("orders", "billing", penstock.ConsumerType.Shared)
        invoices = client.create_producer("invoices")
        reminders = client.create_producer("reminders")
        for _ in range(count):
            message = orders.receive()
            order = json.loads(message.data())
            invoices.send(json.dumps({"order": order["id"], "sum": order["price"]}).encode())
            reminders.send(message.data(), deliver_after=timedelta(days=1))
            orders.acknowledge(message)


def test_each_order_has_its_invoice(penstock_server: Running) -> None:
    penstock_server.publish("orders", {"id": 1, "price": 3}, {"id": 2, "price": 5})
    penstock_server.create_subscription("orders", "billing")
    bill(penstock_server.pulsar, 2)
    invoices = penstock_server.messages("invoices", encoding="text")
    assert [json.loads(one["value"]) for one in invoices] == [{"order": 1, "sum": 3}, {"order": 2, "sum": 5}]
    penstock_server.wait_until_acked("orders", "billing")


def test_a_reminder_comes_after_a_day(penstock_server: Running) -> None:
    with penstock.Client(penstock_server.pulsar) as client:
        reminders = client.subscribe("reminders", "mail", penstock.ConsumerType.Shared)
        penstock_server.publish("orders", {"id": 1, "price": 3})
        penstock_server.create_subscription("orders", "billing")
        bill(penstock_server.pulsar, 1)
        penstock_server.advance(DAY_MS)
        assert json.loads(reminders.receive(60_000).data())["id"] == 1
