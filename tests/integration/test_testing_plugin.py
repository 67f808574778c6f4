"""The fixture that people who test against Penstock use, as they use it."""

from urllib.request import urlopen

import httpx
import pulsar
import pytest

from penstock.broker.settings import BrokerSettings
from penstock.testing.server import Address

ELSEWHERE = "/topics/acme/shop/orders"


def test_the_fixture_is_a_whole_server(penstock: Address) -> None:
    with urlopen(f"{penstock.url}/health/ready", timeout=60) as answer:
        assert answer.status == 200
    client = pulsar.Client(penstock.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        consumer = client.subscribe("orders", "copy")
        client.create_producer("orders").send(b"tea")
        assert consumer.receive(timeout_millis=30_000).data() == b"tea"
    finally:
        client.close()


def test_each_test_has_its_own(penstock: Address) -> None:
    with urlopen(f"{penstock.url}/admin/v2/namespaces/public/default/topics", timeout=60) as answer:
        assert answer.read() == b"[]"


def test_it_has_the_defaults_of_a_server(penstock: Address) -> None:
    assert httpx.post(penstock.url + ELSEWHERE, json={"messages": [{"value": "tea"}]}).status_code == 404


class TestOtherSettings:
    @pytest.fixture
    def penstock_settings(self) -> BrokerSettings:
        return BrokerSettings(auto_create_namespaces=True)

    def test_are_a_fixture_to_override(self, penstock: Address) -> None:
        assert httpx.post(penstock.url + ELSEWHERE, json={"messages": [{"value": "tea"}]}).status_code == 200
