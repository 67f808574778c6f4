"""What is done to topics and namespaces as a whole, and their properties."""

from tests.support.admin import ADMIN, AdminServer

from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions
from penstock.protocols.limits import Limits

SPACE = "/admin/v2/namespaces/public/default"
NOTHING = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}


async def _backlog(server: AdminServer, topic: str = "t", name: str = "s") -> int:
    backlog: int = (await server.get(f"{ADMIN}/{topic}/stats"))["subscriptions"][name]["msgBacklog"]
    return backlog


async def test_unload_disconnects_and_keeps_everything() -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/p/partitions", 2)
        await server.produce("p", *"abcd")
        await server.put(f"{ADMIN}/p/subscription/s", "earliest")
        producer = await server.broker.producer(TopicName.parse("p"))
        consumer = await server.broker.subscribe([TopicName.parse("p")], "s", ConsumerOptions(name="c"))
        errors = []
        producer.ousted = errors.append
        await server.put(f"{ADMIN}/p/unload")
        assert producer.closed
        assert consumer.closed
        assert [error.retriable for error in errors] == [True]
        found = await server.get(f"{ADMIN}/p/stats")
        assert found["publishers"] == []
        assert found["subscriptions"]["s"]["consumers"] == []
        assert found["subscriptions"]["s"]["msgBacklog"] == 4
        await server.produce("p", "e")  # the next comes in as ever
        await server.put(f"{ADMIN}/nothing/unload", status=404)


async def test_a_namespace_is_unloaded_whole_or_by_its_bundle() -> None:
    async with AdminServer.open() as server:
        bundles = await server.get(f"{SPACE}/bundles")
        assert bundles == {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}
        for path in ("unload", "0x00000000_0xffffffff/unload"):
            producers = [await server.broker.producer(TopicName.parse(name)) for name in ("t", "u")]
            await server.put(f"{SPACE}/{path}")
            assert all(producer.closed for producer in producers)
        await server.put(f"{SPACE}/0x00000000_0x40000000/unload", status=404)
        await server.put("/admin/v2/namespaces/public/nothing/unload", status=404)
        found = await server.client.get("/lookup/v2/topic/persistent/public/default/t/bundle")
        assert found.text == "0x00000000_0xffffffff"


async def test_truncate_deletes_what_nobody_acknowledged_and_keeps_subscriptions() -> None:
    async with AdminServer.open() as server:
        await server.produce("t", "a", "b")
        await server.put(f"{ADMIN}/t/subscription/s", "earliest")
        await server.delete(f"{ADMIN}/t/truncate")
        found = await server.get(f"{ADMIN}/t/stats")
        assert (found["messages"], found["storageSize"]) == (0, 0)
        assert await _backlog(server) == 0
        await server.produce("t", "c")
        assert await _backlog(server) == 1
        found = await server.get("/topics/public/default/t/partitions/0/messages", timeout=0)
        assert [message["value"] for message in found["messages"]] == ["c"]
        await server.delete(f"{ADMIN}/nothing/truncate", 404)


async def test_trim_lets_go_of_what_retention_does_not_keep_now() -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/t/subscription/s", "earliest")
        await server.produce("t", "a")
        await server.post(f"{ADMIN}/t/trim")
        assert (await server.get(f"{ADMIN}/t/stats"))["messages"] == 1  # everything is kept
        await server.post(f"{ADMIN}/t/retention", NOTHING)
        await server.clock.advance(1)
        await server.post(f"{ADMIN}/t/trim")
        assert (await server.get(f"{ADMIN}/t/stats"))["messages"] == 1  # not acknowledged
        await server.post(f"{ADMIN}/t/subscription/s/skip_all")
        await server.post(f"{ADMIN}/t/trim")
        assert (await server.get(f"{ADMIN}/t/stats"))["messages"] == 0
        await server.post(f"{ADMIN}/nothing/trim", status=404)
        transient = "/admin/v2/non-persistent/public/default/n"
        await server.put(transient)
        await server.post(f"{transient}/trim", status=405)
        await server.delete(f"{transient}/truncate", 405)


async def test_properties_of_topics() -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/t", {"a": "b"})
        await server.put(f"{ADMIN}/t/properties", {"c": "d", "e": "f"})
        assert await server.get(f"{ADMIN}/t/properties") == {"a": "b", "c": "d", "e": "f"}
        await server.delete(f"{ADMIN}/t/properties", key="c")
        await server.delete(f"{ADMIN}/t/properties", key="unknown")
        assert await server.get(f"{ADMIN}/t/properties") == {"a": "b", "e": "f"}
        await server.put(f"{ADMIN}/t/properties", {"n": 1}, 400)
        await server.delete(f"{ADMIN}/t/properties")
        assert await server.get(f"{ADMIN}/t/properties") == {}
        await server.put(f"{ADMIN}/p/partitions", {"partitions": 3, "properties": {"x": "y"}})
        assert await server.get(f"{ADMIN}/p/partitions") == {"partitions": 3, "properties": {"x": "y"}}
        await server.put(f"{ADMIN}/p-partition-1/properties", {"z": "1"})
        assert await server.get(f"{ADMIN}/p/properties") == {"x": "y", "z": "1"}
        await server.put(f"{ADMIN}/p2/partitions", {"properties": {}}, 400)
        for method in ("GET", "PUT", "DELETE"):
            await server.ask(method, f"{ADMIN}/nothing/properties", {}, 404)


async def test_properties_have_a_bound_together() -> None:
    async with AdminServer.open(limits=Limits(max_properties_bytes=100)) as server:
        await server.put(f"{ADMIN}/t", {"a": "x" * 60})
        await server.put(f"{ADMIN}/t/subscription/s", "earliest")
        more = {"b": "x" * 60}
        await server.put(f"{ADMIN}/t/properties", more, 413)
        assert await server.get(f"{ADMIN}/t/properties") == {"a": "x" * 60}
        await server.put(f"{SPACE}/properties", more)
        await server.put(f"{SPACE}/property/c/{'x' * 60}", status=413)
        too_many = {"a": "x" * 101}
        for path in (f"{ADMIN}/t/subscription/s/properties", f"{ADMIN}/u", f"{SPACE}/properties"):
            await server.put(path, too_many, 413)
        await server.put(f"{ADMIN}/p/partitions", {"partitions": 1, "properties": too_many}, 413)


async def test_properties_of_subscriptions_outlast_the_server() -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/p/partitions", 2)
        await server.put(f"{ADMIN}/p/subscription/s", "earliest")
        assert await server.get(f"{ADMIN}/p/subscription/s/properties") == {}
        await server.put(f"{ADMIN}/p/subscription/s/properties", {"a": "b"})
        await server.put(f"{ADMIN}/p/subscription/s/properties", {"c": "d"})
        assert await server.get(f"{ADMIN}/p/subscription/s/properties") == {"c": "d"}
        log = await server.broker.topics.get(TopicName.parse("p-partition-1"))
        (saved,) = await log.store.load_cursors(log.ledger)
        assert saved.properties == b'{"c":"d"}'
        await server.get(f"{ADMIN}/p/subscription/none/properties", 404)
        await server.put(f"{ADMIN}/p/subscription/none/properties", {}, 404)


async def test_properties_of_namespaces() -> None:
    async with AdminServer.open() as server:
        await server.put("/admin/v2/tenants/acme")
        await server.put("/admin/v2/namespaces/acme/shop", {"properties": {"a": "b"}})
        shop = "/admin/v2/namespaces/acme/shop"
        await server.put(f"{shop}/properties", {"c": "d"})
        assert (await server.get(shop))["properties"] == {"a": "b", "c": "d"}
        await server.put(f"{shop}/property/k/v%2Fw")
        assert (await server.client.get(f"{shop}/property/k")).text == "v/w"
        assert (await server.client.get(f"{shop}/property/none")).text == ""
        assert (await server.client.delete(f"{shop}/property/k")).text == "v/w"
        assert await server.get(f"{shop}/properties") == {"a": "b", "c": "d"}
        await server.delete(f"{shop}/properties")
        assert await server.get(f"{shop}/properties") == {}
        await server.get("/admin/v2/namespaces/acme/none/properties", 404)


async def test_the_backlog_of_a_namespace_is_cleared() -> None:
    async with AdminServer.open() as server:
        for topic in ("t", "u"):
            await server.produce(topic, "a", "b")
            for name in ("s", "r"):
                await server.put(f"{ADMIN}/{topic}/subscription/{name}", "earliest")
        await server.post(f"{SPACE}/clearBacklog/s")
        assert [await _backlog(server, t, n) for t in "tu" for n in "sr"] == [0, 2, 0, 2]
        await server.post(f"{SPACE}/0x00000000_0xffffffff/clearBacklog")
        assert [await _backlog(server, t, n) for t in "tu" for n in "sr"] == [0, 0, 0, 0]


async def test_a_subscription_of_a_whole_namespace_is_deleted_unless_it_is_used() -> None:
    async with AdminServer.open() as server:
        for topic in ("t", "u"):
            await server.put(f"{ADMIN}/{topic}")
            await server.put(f"{ADMIN}/{topic}/subscription/s", "earliest")
        consumer = await server.broker.subscribe([TopicName.parse("u")], "s", ConsumerOptions(name="c"))
        await server.post(f"{SPACE}/unsubscribe/s", status=409)
        assert await server.get(f"{ADMIN}/t/subscriptions") == ["s"]  # not one of them went
        consumer.close()
        await server.post(f"{SPACE}/unsubscribe/s")
        await server.post(f"{SPACE}/unsubscribe/s")
        assert (
            await server.get(f"{ADMIN}/t/subscriptions") == await server.get(f"{ADMIN}/u/subscriptions") == []
        )


async def test_a_tenant_is_deleted_with_all_it_has() -> None:
    async with AdminServer.open() as server:
        await server.put("/admin/v2/tenants/acme", {"adminRoles": ["r"]})
        await server.put("/admin/v2/namespaces/acme/shop")
        await server.put("/admin/v2/persistent/acme/shop/t")
        assert (await server.delete("/admin/v2/tenants/acme", 409))["error_code"] == 40908
        await server.delete("/admin/v2/tenants/acme", force="true")
        await server.get("/admin/v2/tenants/acme", 404)
        assert await server.get("/admin/v2/namespaces/public") == ["public/default"]
        assert not server.broker.topics.exists(TopicName.parse("acme/shop/t"))


async def test_the_policies_of_a_topic_are_forgotten_at_once() -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/t")
        await server.post(f"{ADMIN}/t/messageTTL", 5)
        await server.post(f"{ADMIN}/t/maxProducers", 5)
        await server.delete(f"{ADMIN}/t/policies")
        assert await server.get(f"{ADMIN}/t/messageTTL") is None
        assert await server.get(f"{ADMIN}/t/maxProducers") is None
        await server.delete(f"{ADMIN}/nothing/policies", 404)


async def test_partitions_are_never_missing() -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/p/partitions", 2)
        await server.put(f"{ADMIN}/t")
        await server.post(f"{ADMIN}/p/createMissedPartitions")
        await server.post(f"{ADMIN}/t/createMissedPartitions", status=404)
