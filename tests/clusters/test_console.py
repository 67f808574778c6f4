"""The console before real brokers: what it asks for, and what its live view is sent."""

import json
from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.conftest import browser, open_page
from tests.support.kafka_broker import KafkaCluster
from tests.support.pulsar_broker import PulsarCluster

from penstock.broker.settings import ClusterSettings
from penstock.testing.server import Address, running

__all__ = ["browser"]

API = "/console/api"


@pytest.fixture(scope="module", params=["pulsar", "kafka"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, Address]]:
    if request.param == "pulsar":
        pulsar: PulsarCluster = request.getfixturevalue("pulsar_cluster")
        settings = pulsar.settings
    else:
        kafka: KafkaCluster = request.getfixturevalue("kafka_cluster")
        settings = ClusterSettings(
            url=kafka.service_url, learned_ms=0, documents_topic=f"__{uuid4().hex[:10]}"
        )
    with running(engine=settings) as address:
        yield request.param, address


def test_a_cluster_s_topics_and_what_comes(server: tuple[str, Address]) -> None:
    kind, address = server
    name = f"console-{uuid4().hex[:10]}"
    with httpx.Client(base_url=address.url, timeout=60, trust_env=False) as client:
        path = f"/topics/public/default/{name}"
        admin = f"/admin/v2/persistent/public/default/{name}"
        assert client.put(f"{admin}/partitions", json=2).status_code == 204
        body = {"messages": [{"value": f"before {n}", "partition": n % 2} for n in range(6)]}
        assert client.post(path, json=body).status_code == 200

        said = client.get(f"{API}/server").json()
        assert (said["engine"], said["problem"]) == (kind, None)
        assert "public/default" in said["namespaces"]
        page = client.get(f"{API}/topics", params={"search": name}).json()
        assert [row["partitions"] for row in page["topics"]] == [2]
        assert page["topics"][0]["messages"] == (6 if kind == "kafka" else None)  # Pulsar counts entries
        one = client.get(f"{API}/topic", params={"topic": f"persistent://public/default/{name}"}).json()
        assert (one["partitions"], one["terminated"]) == (2, False)
        assert client.get(f"{API}/topic", params={"topic": f"{name}-not"}).status_code == 404

        # What the console does not offer before Kafka is what the engine refuses.
        if kind == "kafka":
            for what, body in (("messageTTL", 60), ("deduplicationEnabled", True), ("trim", None), ("terminate", None)):  # fmt: skip
                assert client.post(f"{admin}/{what}", json=body).status_code == 501, what
            assert client.put(f"{admin}/compaction").status_code == 501

        with client.stream(
            "GET", f"{API}/tail", params={"topic": f"persistent://public/default/{name}"}
        ) as tail:
            assert tail.status_code == 200
            lines = tail.iter_lines()
            next(line for line in lines if line.startswith(":") or not line)  # it follows from here on
            body = {"messages": [{"value": f"after {n}", "partition": n % 2} for n in range(4)]}
            assert client.post(path, json=body).status_code == 200
            count, values = 0, set[str]()
            for line in lines:
                if line.startswith("data:"):
                    event = json.loads(line.removeprefix("data:"))
                    count += event["count"]
                    values |= {message["value"] for message in event["messages"]}
                if count >= 4:
                    break
        assert (count, values) == (4, {f"after {n}" for n in range(4)})


@pytest.fixture
def page(browser: Browser, server: tuple[str, Address]) -> Iterator[Page]:
    with open_page(browser, server[1].url) as page:
        yield page


def test_a_person_looks_at_what_a_subscription_gets_next(page: Page, server: tuple[str, Address]) -> None:
    kind, address = server
    name = f"console-{uuid4().hex[:10]}"
    view = f"/console#/topic/persistent:%2F%2Fpublic%2Fdefault%2F{name}"
    with httpx.Client(base_url=address.url, timeout=60, trust_env=False) as client:
        body = {"messages": [{"value": {"number": n}, "key": f"k{n}"} for n in range(12)]}
        assert client.post(f"/topics/public/default/{name}", json=body).status_code == 200
        subscription = f"/admin/v2/persistent/public/default/{name}/subscription/s"
        assert client.put(subscription, json="earliest").status_code == 204
    page.goto(f"{view}/subscriptions?name=s")
    page.get_by_role("button", name="Peek").click()
    rows = page.get_by_role("region", name="The next messages").locator("tbody tr")
    expect(rows).to_have_count(10)  # Pulsar's broker tells of entries, which may be batches
    expect(rows.nth(9)).to_contain_text('k9{"number":9}')
    page.goto(f"{view}/settings")
    expect(page.get_by_role("button", name="Change retention")).to_be_visible()
    expect(page.get_by_role("button", name="Terminate")).to_have_count(0 if kind == "kafka" else 1)
