"""The fixtures that people who test against Penstock use, as they use them."""

import asyncio
import threading
from pathlib import Path
from urllib.request import urlopen

import pulsar
import pytest
from tests.support.tls import Pki

import penstock
from penstock.broker.settings import BrokerSettings
from penstock.server.config import ConfigError
from penstock.testing.calls import RefusedError
from penstock.testing.credentials import Issuer
from penstock.testing.server import Running, running

ELSEWHERE = "acme/shop/orders"
HOUR_MS = 3_600_000


def test_the_fixture_is_a_whole_server(penstock_server: Running) -> None:
    with urlopen(f"{penstock_server.url}/health/ready", timeout=60) as answer:
        assert answer.status == 200
    client = pulsar.Client(penstock_server.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        consumer = client.subscribe("orders", "copy")
        client.create_producer("orders").send(b"tea")
        assert consumer.receive(timeout_millis=30_000).data() == b"tea"
    finally:
        client.close()


def test_each_test_has_its_own(penstock_server: Running) -> None:
    assert penstock_server.call("GET", "/admin/v2/namespaces/public/default/topics") == []


def test_it_has_the_defaults_of_a_server(penstock_server: Running) -> None:
    with pytest.raises(RefusedError) as caught:
        penstock_server.publish(ELSEWHERE, "tea")
    assert (caught.value.status, caught.value.code) == (404, 40401)


@pytest.mark.penstock(broker={"auto_create_namespaces": True}, limits={"max_messages_per_request": 2})
class TestMarkers:
    def test_have_settings_by_section(self, penstock_server: Running) -> None:
        assert len(penstock_server.publish(ELSEWHERE, "tea", "milk")) == 2
        with pytest.raises(RefusedError, match="3 messages; the most is 2"):
            penstock_server.publish(ELSEWHERE, *"abc")

    @pytest.mark.penstock(limits={"max_messages_per_request": 1})
    def test_the_closest_counts(self, penstock_server: Running) -> None:
        penstock_server.publish(ELSEWHERE, "tea")
        with pytest.raises(RefusedError, match="the most is 1"):
            penstock_server.publish(ELSEWHERE, "tea", "milk")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"brokr": {}}, "unknown section 'brokr' from the test"),
        ({"broker": {"auto_create": True}}, "unknown key 'broker.auto_create' from the test"),
        ({"broker": {"auto_create_namespaces": "often"}}, "bad value 'often'"),
    ],
)
def test_settings_that_are_wrong_are_named(settings: dict[str, dict[str, object]], said: str) -> None:
    with pytest.raises(ConfigError, match=said), running(settings=settings):
        pass


class TestOtherSettings:
    @pytest.fixture
    def penstock_settings(self) -> BrokerSettings:
        return BrokerSettings(auto_create_namespaces=True)

    def test_are_a_fixture_to_override(self, penstock_server: Running) -> None:
        penstock_server.publish(ELSEWHERE, "tea")


class TestSections:
    @pytest.fixture
    def penstock_settings(self) -> dict[str, dict[str, object]]:
        return {"broker": {"auto_create_namespaces": True, "auto_create_partitions": 2}}

    @pytest.mark.penstock(broker={"auto_create_partitions": 3})
    def test_a_marker_counts_before_the_fixture(self, penstock_server: Running) -> None:
        penstock_server.publish(ELSEWHERE, "tea")
        found = penstock_server.call("GET", f"/admin/v2/persistent/{ELSEWHERE}/partitions")
        assert found["partitions"] == 3


@pytest.mark.filterwarnings("ignore:the fixture penstock is now penstock_server")
def test_the_former_name(penstock: Running) -> None:
    assert penstock.url.startswith("http://")


def test_wider_scopes(penstock_module_server: Running, penstock_session_server: Running) -> None:
    assert penstock_module_server.url != penstock_session_server.url
    first, second = penstock_session_server.create_topic(), penstock_session_server.create_topic()
    penstock_session_server.publish(first, "tea")
    assert penstock_session_server.values(second) == []


def test_messages_as_they_were_published(penstock_server: Running) -> None:
    penstock_server.publish("orders", {"id": 1}, [2], key="k", properties={"lang": "en"})
    assert penstock_server.values("persistent://public/default/orders") == [{"id": 1}, [2]]
    first, second = penstock_server.wait_for_messages("orders", 2)
    assert (first["key"], second["properties"]) == ("k", {"lang": "en"})
    penstock_server.publish("bytes", b"\xff")
    assert penstock_server.values("bytes") == ["/w=="]
    assert penstock_server.messages("none") == []
    with pytest.raises(AssertionError, match="orders has 2 messages, not 3"):
        penstock_server.wait_for_messages("orders", 3, within_s=0)


def test_more_messages_than_one_answer_has(penstock_server: Running) -> None:
    topic = penstock_server.create_topic(partitions=3)
    for start in range(0, 2400, 600):
        penstock_server.publish(topic, *range(start, start + 600))
    assert sorted(penstock_server.values(topic)) == list(range(2400))


def test_until_everything_is_acknowledged(penstock_server: Running) -> None:
    penstock_server.create_topic("orders", partitions=2)
    penstock_server.create_subscription("orders", "billing")
    penstock_server.publish("orders", *range(10))
    assert penstock_server.backlog("orders", "billing") == 10
    with pytest.raises(AssertionError, match="billing of orders has 10 messages that are not acknowledged"):
        penstock_server.wait_until_acked("orders", "billing", within_s=0)
    with pytest.raises(AssertionError, match="subscription other of orders is not there"):
        penstock_server.wait_until_acked("orders", "other", within_s=0)

    def work() -> None:
        with penstock.Client(penstock_server.pulsar) as client:
            consumer = client.subscribe("orders", "billing")
            for _ in range(10):
                consumer.acknowledge(consumer.receive())

    worker = threading.Thread(target=work)
    worker.start()
    penstock_server.wait_until_acked("orders", "billing", within_s=60)
    worker.join(60)


def test_schemas(penstock_server: Running) -> None:
    topic = penstock_server.create_topic()
    assert penstock_server.schema(topic) is None
    definition = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    assert penstock_server.register_schema(topic, definition) == 0
    found = penstock_server.schema(topic)
    assert found is not None
    assert (found["type"], found["version"]) == ("AVRO", 0)


def test_replies(penstock_server: Running) -> None:
    with penstock_server.replying("sums", lambda value: str(sum(value))):
        assert penstock_server.request("sums", [1, 2]) == b"3"
        assert penstock_server.request("sums", ["x"]).startswith(b"TypeError")
    with pytest.raises(RefusedError) as caught:
        penstock_server.request("sums", [1], timeout_ms=1)
    assert caught.value.status == 504


def test_replies_go_on_when_time_has_passed(penstock_server: Running) -> None:
    with penstock_server.replying("echo", str):
        assert penstock_server.request("echo", "a") == b"a"
        penstock_server.advance(HOUR_MS)
        assert penstock_server.request("echo", "b") == b"b"


def test_calls_as_a_role_over_tls(tmp_path: Path) -> None:
    issuer = Issuer()
    with running(
        auth=issuer.settings(super_users=("admin",)), tls=Pki(tmp_path).settings(), plain=False
    ) as server:
        with pytest.raises(RefusedError) as caught:
            server.publish("orders", "tea")
        assert caught.value.status == 401
        server.token = issuer.token("guest")
        with pytest.raises(RefusedError) as caught:
            server.publish("orders", "tea")
        assert caught.value.status == 403
        server.token = issuer.token("admin")
        server.publish("orders", "tea")
        assert server.values("orders") == ["tea"]


def test_time_passes_at_once(penstock_server: Running) -> None:
    before = penstock_server.now_ms()
    with penstock.Client(penstock_server.pulsar) as client:
        consumer = client.subscribe("orders", "billing", penstock.ConsumerType.Shared)
        penstock_server.publish("orders", "later", deliverAfterMs=HOUR_MS)
        penstock_server.publish("orders", "now")
        first = consumer.receive(60_000)
        assert first.data() == b"now"
        consumer.acknowledge(first)
        penstock_server.advance(HOUR_MS)
        assert consumer.receive(60_000).data() == b"later"
    assert penstock_server.now_ms() - before >= HOUR_MS


def test_a_request_times_out_at_once(penstock_server: Running) -> None:
    penstock_server.create_topic("asked")
    said: list[int] = []

    def ask() -> None:
        with pytest.raises(RefusedError) as caught:
            penstock_server.request("asked", "?", timeout_ms=250_000)
        said.append(caught.value.status)

    asking = threading.Thread(target=ask)
    asking.start()
    penstock_server.wait_for_messages("asked", 1, within_s=60)
    penstock_server.advance(250_000)
    asking.join(60)
    assert said == [504]


async def test_in_a_test_on_an_event_loop(penstock_server: Running) -> None:
    penstock_server.create_topic("orders")
    penstock_server.create_subscription("orders", "billing")
    penstock_server.publish("orders", "tea")
    async with penstock.aio.Client(penstock_server.pulsar) as client:
        consumer = await client.subscribe("orders", "billing")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(
                asyncio.to_thread(penstock_server.wait_until_acked, "orders", "billing", within_s=60)
            )
            await consumer.acknowledge(await consumer.receive())
