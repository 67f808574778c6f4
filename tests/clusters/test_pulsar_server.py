"""A whole server before a real broker, from outside."""

import json
import struct
import threading
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pulsar
import pytest
import websocket
from tests.support.pulsar_broker import PulsarCluster
from tests.support.schemas import Endpoints, record, tell_values_without_a_schema
from tests.support.waiting import until

from penstock.testing.credentials import Issuer
from penstock.testing.server import Address, running

ENTRIES = "application/vnd.penstock.entries"


@pytest.fixture(scope="module")
def server(pulsar_cluster: PulsarCluster) -> Iterator[Address]:
    with running(engine=pulsar_cluster.settings) as address:
        yield address


@pytest.fixture
def rest(server: Address) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"/topics/public/default/server-{uuid4().hex[:12]}"


def publish(rest: httpx.Client, topic: str, *values: str) -> list[str]:
    answer = rest.post(topic, json={"messages": [{"value": value} for value in values]})
    assert answer.status_code == 200, answer.text
    return [one["messageId"] for one in answer.json()["messageIds"]]


def read(rest: httpx.Client, topic: str, partition: int = 0, **params: Any) -> Any:
    answer = rest.get(f"{topic}/partitions/{partition}/messages", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def values(page: Any) -> list[str]:
    return [message["value"] for message in page["messages"]]


def test_what_is_published_is_read_by_offset_id_and_time(rest: httpx.Client, topic: str) -> None:
    ids = publish(rest, topic, "a", "b") + publish(rest, topic, "c") + publish(rest, topic, "d", "e")
    page = read(rest, topic)
    assert values(page) == list("abcde")
    assert [message["offset"] for message in page["messages"]] == [0, 1, 2, 3, 4]
    assert [message["messageId"] for message in page["messages"]] == ids
    assert page["next_message_id"] == ids[-1]
    for offset in range(6):
        assert values(read(rest, topic, offset=offset)) == list("abcde")[offset:]
    for place, message_id in enumerate(ids):
        assert values(read(rest, topic, message_id=message_id)) == list("abcde")[place + 1 :]
    assert values(read(rest, topic, offset=1, end_offset=4)) == list("bcd")
    times = [message["publishTime"] for message in page["messages"]]
    assert values(read(rest, topic, publish_time=times[0])) == list("abcde")
    for later in (times[-1] + 1_000_000, 2**63 - 1):
        assert values(read(rest, topic, publish_time=later)) == []
    assert values(read(rest, topic, message_id="latest")) == []


def test_pages_follow_one_another(rest: httpx.Client, topic: str) -> None:
    publish(rest, topic, *map(str, range(25)))
    publish(rest, topic, *map(str, range(25, 50)))
    found: list[str] = []
    after = "earliest"
    while page := read(rest, topic, message_id=after, max_messages=7)["messages"]:
        found += [message["value"] for message in page]
        after = page[-1]["messageId"]
    assert found == list(map(str, range(50)))


def test_offsets_go_on_over_ledgers(rest: httpx.Client, topic: str, pulsar_cluster: PulsarCluster) -> None:
    for number in range(3):
        publish(rest, topic, f"{number}a", f"{number}b")
        publish(rest, topic, f"{number}c")
        pulsar_cluster.admin("PUT", f"persistent{topic.removeprefix('/topics')}/unload")
    expected = [f"{number}{letter}" for number in range(3) for letter in "abc"]
    page = read(rest, topic)
    assert values(page) == expected
    assert [message["offset"] for message in page["messages"]] == list(range(9))
    with (
        running(engine=pulsar_cluster.settings) as other,
        httpx.Client(base_url=other.url, timeout=60) as new,
    ):
        for offset in (7, 3, 5, 8, 1):  # a server that has seen nothing yet searches
            assert values(read(new, topic, offset=offset)) == expected[offset:]


def test_a_topic_that_was_deleted_and_made_again_is_read_from_its_beginning(
    rest: httpx.Client, topic: str, pulsar_cluster: PulsarCluster
) -> None:
    publish(rest, topic, *"abcde")
    publish(rest, topic, *"fghij")
    assert values(read(rest, topic, offset=3)) == list("defghij")
    name = topic.removeprefix("/topics/")
    pulsar_cluster.admin("DELETE", f"persistent/{name}", params={"force": "true"})
    # By another client: this server is not told.
    pulsar_client = pulsar.Client(pulsar_cluster.service_url)
    try:
        producer = pulsar_client.create_producer(f"persistent://{name}", batching_enabled=False)
        for value in "xyz":
            producer.send(value.encode())
    finally:
        pulsar_client.close()
    for offset in range(4):
        assert values(read(rest, topic, offset=offset, encoding="text")) == list("xyz")[offset:]
    assert rest.get(f"{topic}/partitions/0/offsets").json() == {"ledger": -1, "earliest": 0, "latest": 3}
    publish(rest, topic, "more")
    assert values(read(rest, topic, offset=2, encoding="text")) == ["z", "more"]


def test_raw_entries_are_streamed(rest: httpx.Client, topic: str) -> None:
    publish(rest, topic, "a", "b")
    publish(rest, topic, "c")
    answer = rest.get(f"{topic}/partitions/0/messages", headers={"accept": ENTRIES})
    assert answer.status_code == 200
    body, frames = answer.content, []
    while body:
        offset, count, _, size = struct.unpack(">QIQI", body[:24])
        frames.append((offset, count))
        body = body[24 + size :]
    assert frames == [(0, 0), (0, 2), (2, 1)], "the first one names the ledger"


def test_a_long_log_of_large_batches_is_read_to_its_end(rest: httpx.Client, topic: str) -> None:
    """The broker overdraws the permits of its readers by whole batches, many at once."""
    count, batch = 60_000, 1000
    for first in range(0, count, batch):
        publish(rest, topic, *(f"{number:0100}" for number in range(first, first + batch)))
    asked = {"offset": 0, "end_offset": count}
    lines = {"accept": "application/x-ndjson"}
    answer = rest.get(f"{topic}/partitions/0/messages", params=asked, headers=lines)
    found = [json.loads(line)["offset"] for line in answer.text.splitlines()]
    assert found == list(range(count))


def test_values_without_a_schema(rest: httpx.Client, server: Address, topic: str) -> None:
    endpoints = Endpoints(server, rest, name=topic.rpartition("/")[2])
    tell_values_without_a_schema(endpoints)
    number = {"name": "n", "type": "int"}
    declared = {"type": "JSON", "schema": record(number)}
    refused = endpoints.publish(409, value_schema=declared, messages=[{"value": {"n": 1}}])
    assert refused["error_code"] == 40903
    declared = {"type": "JSON", "schema": record(number | {"default": 0})}
    assert endpoints.publish(value_schema=declared, messages=[{"value": {"n": 1}}])["schema_version"] == 1


def test_a_read_waits_for_the_first_message(rest: httpx.Client, topic: str) -> None:
    (before,) = publish(rest, topic, "before")
    assert values(read(rest, topic, message_id="latest", timeout=200)) == []
    late = threading.Timer(0.3, publish, (rest, topic, "after"))  # most likely it is waited for by then
    late.start()
    try:
        assert values(read(rest, topic, message_id=before, timeout=30_000)) == ["after"]
    finally:
        late.join()


def test_a_stream_follows_the_topic(rest: httpx.Client, topic: str) -> None:
    publish(rest, topic, "0")
    headers = {"accept": "application/x-ndjson"}
    found: list[str] = []
    url = f"{topic}/partitions/0/messages"
    with rest.stream("GET", url, headers=headers, params={"follow": "true", "end_offset": 4}) as stream:
        for line in stream.iter_lines():
            found.append(httpx.Response(200, text=line).json()["value"])
            if len(found) < 4:
                publish(rest, topic, str(len(found)))
    assert found == ["0", "1", "2", "3"]


def test_partitions(rest: httpx.Client, topic: str) -> None:
    path = f"/admin/v2/persistent{topic.removeprefix('/topics')}/partitions"
    assert rest.put(path, content="3", headers={"content-type": "application/json"}).status_code == 204
    answer = rest.post(topic, json={"messages": [{"value": str(n), "partition": n} for n in range(3)]})
    assert [one["partition"] for one in answer.json()["messageIds"]] == [0, 1, 2]
    for number in range(3):
        assert values(read(rest, topic, number)) == [str(number)]
    missing = rest.get(f"{topic}/partitions/3/messages")
    assert (missing.status_code, missing.json()["error_code"]) == (404, 40402)


def test_consuming_and_the_cursor(rest: httpx.Client, topic: str) -> None:
    ids = publish(rest, topic, "a") + publish(rest, topic, "b") + publish(rest, topic, "c")
    subscription = f"{topic}/subscription/s"
    assert rest.get(f"{subscription}/cursor").status_code == 404
    made = rest.post(
        subscription, json={"initial_position": "earliest", "subscription_type": "Shared"}
    ).json()
    messages = f"{subscription}/consumer/{made['id']}/messages"
    fetched = rest.get(messages, params={"timeout": 20_000, "max_messages": 3}).json()["messages"]
    got = [message["messageId"] for message in fetched]
    assert got == ids[: len(got)]
    answer = rest.post(f"{subscription}/cursor", json={"messageIds": [ids[0]]}).json()
    assert answer == {"messageIds": [{"messageId": ids[0], "error_code": None, "error": None}]}
    cursor = rest.get(f"{subscription}/cursor").json()["cursor"]
    assert (cursor["mark_delete_position"], cursor["mark_delete_offset"]) == (ids[0], 0)
    assert (cursor["backlog"], cursor["type"], cursor["consumers"]) == (2, "Shared", [made["name"]])
    assert (
        rest.post(f"{subscription}/cursor", json={"type": "seek", "messageIds": [ids[1]]}).status_code == 200
    )
    assert values(rest.get(messages, params={"timeout": 20_000}).json()) == ["c"]
    assert rest.delete(f"{subscription}/consumer/{made['id']}").status_code == 204


def test_unsubscribing_is_refused_while_a_client_of_the_cluster_consumes(
    rest: httpx.Client, server: Address, topic: str, pulsar_cluster: PulsarCluster
) -> None:
    """The other consumer is at a broker: this process does not see it. It gets all messages, those of before and after."""
    name = topic.rpartition("/")[2]
    where = f"{server.url.replace('http', 'ws')}/ws/v2/consumer/persistent/public/default/{name}/s"
    path = f"persistent/public/default/{name}"
    client = pulsar.Client(pulsar_cluster.service_url)
    try:
        other = client.subscribe(name, "s", pulsar.ConsumerType.Shared)
        for context in ("c", None):
            leaving = websocket.create_connection(
                f"{where}?subscriptionType=Shared&pullMode=true", timeout=60
            )
            leaving.send(json.dumps({"type": "unsubscribe", **({"context": context} if context else {})}))
            if context:
                answer = json.loads(leaving.recv())
                assert "Unconnected or shared consumer attempting to unsubscribe" in answer["result"], answer
                publish(rest, topic, *(f"before-{n}" for n in range(50)))
            else:
                assert struct.unpack("!H", leaving.recv_data()[1][:2]) == (4002,)
            leaving.shutdown()
        publish(rest, topic, *(f"after-{n}" for n in range(50)))
        got = set()
        while len(got) < 100:
            message = other.receive(timeout_millis=60_000)
            got.add(message.data().decode())
            other.acknowledge(message)
        other.close()

        alone = websocket.create_connection(where, timeout=60)
        alone.send(json.dumps({"type": "unsubscribe", "context": "c"}))
        assert json.loads(alone.recv())["result"] == "ok"
        alone.close()
        assert pulsar_cluster.admin("GET", f"{path}/subscriptions").json() == []
    finally:
        client.close()


def test_of_several_partitions_none_is_unsubscribed_if_one_has_other_consumers(
    server: Address, topic: str, pulsar_cluster: PulsarCluster
) -> None:
    name = topic.rpartition("/")[2]
    path = f"persistent/public/default/{name}"
    pulsar_cluster.admin("PUT", f"{path}/partitions", json=3)
    where = f"{server.url.replace('http', 'ws')}/ws/v2/consumer/{path}/s?subscriptionType=Shared"
    client = pulsar.Client(pulsar_cluster.service_url)
    try:
        other = client.subscribe(f"{name}-partition-2", "s", pulsar.ConsumerType.Shared)
        leaving = websocket.create_connection(where, timeout=60)
        unsubscribe = json.dumps({"type": "unsubscribe", "context": "c"})
        leaving.send(unsubscribe)
        assert "attempting to unsubscribe" in json.loads(leaving.recv())["result"]
        logs = [f"{path}-partition-{n}/subscriptions" for n in range(3)]
        assert [pulsar_cluster.admin("GET", log).json() for log in logs] == [["s"]] * 3
        other.close()
        leaving.send(unsubscribe)
        assert json.loads(leaving.recv())["result"] == "ok"
        assert [pulsar_cluster.admin("GET", log).json() for log in logs] == [[]] * 3
        leaving.close()
    finally:
        client.close()


def test_names_that_are_steps_in_a_path(
    rest: httpx.Client, server: Address, pulsar_cluster: PulsarCluster, pulsar_namespace: str
) -> None:
    """The cluster has them: here they are refused, and what else there is of the namespace is served."""
    client = pulsar.Client(pulsar_cluster.service_url)
    try:
        for name in ("..", "t"):
            client.create_producer(f"persistent://{pulsar_namespace}/{name}").close()
    finally:
        client.close()
    ws, topic = server.url.replace("http", "ws"), f"persistent/{pulsar_namespace}/t"
    for name in ("%2e%2e", ".%2E", "%2e", "x%2F..%2F.."):
        for path in (f"v2/consumer/{topic}/{name}", f"v2/consumer/persistent/{pulsar_namespace}/{name}/s"):
            with pytest.raises(websocket.WebSocketBadStatusException, match="400"):
                websocket.create_connection(f"{ws}/ws/{path}", timeout=60)
    following = websocket.create_connection(
        f"{ws}/ws/v3/consumer/s?topicsPattern={pulsar_namespace}/.*&subscriptionInitialPosition=Earliest",
        timeout=60,
    )
    publish(rest, f"/topics/{pulsar_namespace}/t", "a")
    assert json.loads(following.recv())["topic"] == f"persistent://{pulsar_namespace}/t"
    following.close()
    listed = pulsar_cluster.admin("GET", f"persistent/{pulsar_namespace}").json()
    assert sorted(listed) == [f"persistent://{pulsar_namespace}/{name}" for name in ("..", "t")]
    assert set(pulsar_cluster.admin("GET", f"{topic}/subscriptions").json()) == {"s"}


def test_what_is_not_there(rest: httpx.Client, topic: str) -> None:
    for path in (topic, "/topics/nobody/nothing/here"):
        answer = rest.get(f"{path}/partitions/0/messages")
        assert (answer.status_code, answer.json()["error_code"]) == (404, 40401)
    answer = rest.post("/topics/nobody/nothing/here", json={"messages": [{"value": "x"}]})
    assert (answer.status_code, answer.json()["error_code"]) == (404, 40401)
    answer = rest.get(f"/kafka/topics/{topic.rpartition('/')[2]}/0")
    assert answer.status_code in (404, 501)


def test_administration_and_lookups_are_passed_on(
    server: Address, rest: httpx.Client, topic: str, pulsar_cluster: PulsarCluster
) -> None:
    name = topic.removeprefix("/topics/")
    publish(rest, topic, "over http")
    stats = rest.get(f"/admin/v2/persistent/{name}/stats").json()
    assert stats["msgInCounter"] == 1
    found = rest.get(f"/lookup/v2/topic/persistent/{name}").json()
    assert found["brokerUrl"] == pulsar_cluster.service_url
    client = pulsar.Client(server.pulsar)  # finds the cluster's broker by this server
    try:
        client.create_producer(f"persistent://{name}").send(b"over the protocol")
        reader = client.create_reader(f"persistent://{name}", pulsar.MessageId.earliest)
        assert [reader.read_next(20_000).data() for _ in range(2)] == [b"over http", b"over the protocol"]
    finally:
        client.close()
    assert [message["value"] for message in read(rest, topic, encoding="text")["messages"]] == [
        "over http",
        "over the protocol",
    ]


def test_the_health_of_the_cluster(rest: httpx.Client) -> None:
    assert rest.get("/health/ready").json() == {"status": "ready"}
    assert rest.get("/metrics").status_code == 200


def test_who_may_administer_the_cluster(pulsar_cluster: PulsarCluster, topic: str) -> None:
    issuer = Issuer()
    auth = issuer.settings(
        super_users=("root",), permissions={"public/default": {"app": ("produce", "consume")}}
    )
    name = topic.removeprefix("/topics/")
    with (
        running(engine=pulsar_cluster.settings, auth=auth) as server,
        httpx.Client(base_url=server.url, timeout=60) as rest,
    ):
        app, root = issuer.headers("app"), issuer.headers("root")
        assert rest.post(topic, json={"messages": [{"value": "x"}]}).status_code == 401
        assert rest.post(topic, json={"messages": [{"value": "x"}]}, headers=app).status_code == 200
        assert rest.get("/admin/v2/clusters", headers=app).status_code == 403
        assert rest.get(f"/admin/v2/persistent/{name}/stats", headers=app).status_code == 403
        assert rest.get(f"/lookup/v2/topic/persistent/{name}", headers=app).status_code == 200
        # Who uses a topic may know its partitions and its schemas, and registers some.
        assert rest.get(f"/admin/v2/persistent/{name}/partitions", headers=app).status_code == 200
        schema = f"/admin/v2/schemas/{name}/schema"
        body = {"type": "STRING", "schema": "", "properties": {}}
        assert rest.post(schema, json=body, headers=app).status_code == 200
        assert rest.get(schema, headers=app).json()["type"] == "STRING"
        assert rest.delete(schema, headers=app).status_code == 403
        assert rest.get("/admin/v2/clusters", headers=root).status_code == 200
        other = issuer.headers("other")
        assert rest.get(schema, headers=other).status_code == 403
        assert rest.post(schema, json=body, headers=other).status_code == 403
        assert rest.get(f"/lookup/v2/topic/persistent/{name}", headers=other).status_code == 403
        # What the cluster grants counts, too.
        granted = rest.post(
            "/admin/v2/namespaces/public/default/permissions/other", json=["consume"], headers=root
        )
        try:
            assert granted.status_code in (200, 204), granted.text
            until(lambda: rest.get(f"{topic}/partitions/0/messages", headers=other).status_code == 200)
        finally:
            rest.delete("/admin/v2/namespaces/public/default/permissions/other", headers=root)


def test_version_3_of_the_rest_proxy(rest: httpx.Client, server: Address) -> None:
    (cluster,) = rest.get("/rest/v3/clusters").json()["data"]
    assert cluster["cluster_id"] == rest.get("/admin/v2/clusters").json()[0]
    base = f"/rest/v3/clusters/{cluster['cluster_id']}"
    topic = f"v3-{uuid4().hex[:12]}"
    assert rest.put(f"/admin/v2/persistent/public/default/{topic}/partitions", json=2).status_code == 204
    records = [{"partition_id": n % 2, "value": {"type": "STRING", "data": f"{n}"}} for n in range(6)]
    answer = rest.post(
        f"{base}/topics/{topic}/records",
        content="".join(map(json.dumps, records)),
        headers={"content-type": "application/json"},
    )
    stored = [json.loads(line) for line in answer.text.splitlines()]
    assert [(one["partition_id"], one["offset"]) for one in stored] == [(n % 2, n // 2) for n in range(6)]
    offsets = rest.get(f"{base}/topics/{topic}/partitions/1/offset").json()
    assert (offsets["earliest_offset"], offsets["latest_offset"]) == (0, 3)
    assert rest.get(f"{base}/topics/{topic}").json()["partitions_count"] == 2
    group = f"g-{topic}"
    assert rest.get(f"{base}/consumer-groups/{group}").status_code == 404
    client = pulsar.Client(server.pulsar)
    try:
        consumer = client.subscribe(
            topic,
            group,
            consumer_type=pulsar.ConsumerType.Failover,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        for _ in range(6):
            consumer.acknowledge(consumer.receive(20_000))

        def lags() -> list[int]:
            found = rest.get(f"{base}/consumer-groups/{group}/lags").json().get("data", [])
            return [one["lag"] for one in found]

        until(lambda: lags() == [0, 0])
        assert rest.get(f"{base}/consumer-groups/{group}").json()["state"] == "STABLE"
        assert group in [
            one["consumer_group_id"] for one in rest.get(f"{base}/consumer-groups").json()["data"]
        ]
    finally:
        client.close()
    rest.post(f"{base}/topics/{topic}/records:batch", json={"entries": [{"id": "1", **records[0]}]})
    until(lambda: lags() == [1, 0])
