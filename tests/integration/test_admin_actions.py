"""What is done to topics and namespaces as a whole, and their properties."""

from tests.integration.admin_harness import ADMIN, Office, office

from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions
from penstock.protocols.limits import Limits

SPACE = "/admin/v2/namespaces/public/default"
NOTHING = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}


async def _backlog(at: Office, topic: str = "t", name: str = "s") -> int:
    backlog: int = (await at.get(f"{ADMIN}/{topic}/stats"))["subscriptions"][name]["msgBacklog"]
    return backlog


async def test_unload_disconnects_and_keeps_everything() -> None:
    async with office() as at:
        await at.put(f"{ADMIN}/p/partitions", 2)
        await at.produce("p", *"abcd")
        await at.put(f"{ADMIN}/p/subscription/s", "earliest")
        producer = await at.broker.producer(TopicName.parse("p"))
        consumer = await at.broker.subscribe([TopicName.parse("p")], "s", ConsumerOptions(name="c"))
        told = []
        producer.ousted = told.append
        await at.put(f"{ADMIN}/p/unload")
        assert producer.closed
        assert consumer.closed
        assert [error.retriable for error in told] == [True]
        found = await at.get(f"{ADMIN}/p/stats")
        assert found["publishers"] == []
        assert found["subscriptions"]["s"]["consumers"] == []
        assert found["subscriptions"]["s"]["msgBacklog"] == 4
        await at.produce("p", "e")  # the next comes in as ever
        await at.put(f"{ADMIN}/nothing/unload", status=404)


async def test_a_namespace_is_unloaded_whole_or_by_its_bundle() -> None:
    async with office() as at:
        bundles = await at.get(f"{SPACE}/bundles")
        assert bundles == {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}
        for path in ("unload", "0x00000000_0xffffffff/unload"):
            producers = [await at.broker.producer(TopicName.parse(name)) for name in ("t", "u")]
            await at.put(f"{SPACE}/{path}")
            assert all(producer.closed for producer in producers)
        await at.put(f"{SPACE}/0x00000000_0x40000000/unload", status=404)
        await at.put("/admin/v2/namespaces/public/nothing/unload", status=404)
        found = await at.client.get("/lookup/v2/topic/persistent/public/default/t/bundle")
        assert found.text == "0x00000000_0xffffffff"


async def test_truncate_deletes_what_nobody_acknowledged_and_keeps_subscriptions() -> None:
    async with office() as at:
        await at.produce("t", "a", "b")
        await at.put(f"{ADMIN}/t/subscription/s", "earliest")
        await at.delete(f"{ADMIN}/t/truncate")
        found = await at.get(f"{ADMIN}/t/stats")
        assert (found["messages"], found["storageSize"]) == (0, 0)
        assert await _backlog(at) == 0
        await at.produce("t", "c")
        assert await _backlog(at) == 1
        found = await at.get("/topics/public/default/t/partitions/0/messages", timeout=0)
        assert [message["value"] for message in found["messages"]] == ["c"]
        await at.delete(f"{ADMIN}/nothing/truncate", 404)


async def test_trim_lets_go_of_what_retention_does_not_keep_now() -> None:
    async with office() as at:
        await at.put(f"{ADMIN}/t/subscription/s", "earliest")
        await at.produce("t", "a")
        await at.post(f"{ADMIN}/t/trim")
        assert (await at.get(f"{ADMIN}/t/stats"))["messages"] == 1  # everything is kept
        await at.post(f"{ADMIN}/t/retention", NOTHING)
        await at.clock.advance(1)
        await at.post(f"{ADMIN}/t/trim")
        assert (await at.get(f"{ADMIN}/t/stats"))["messages"] == 1  # not acknowledged
        await at.post(f"{ADMIN}/t/subscription/s/skip_all")
        await at.post(f"{ADMIN}/t/trim")
        assert (await at.get(f"{ADMIN}/t/stats"))["messages"] == 0
        await at.post(f"{ADMIN}/nothing/trim", status=404)
        transient = "/admin/v2/non-persistent/public/default/n"
        await at.put(transient)
        await at.post(f"{transient}/trim", status=405)
        await at.delete(f"{transient}/truncate", 405)


async def test_properties_of_topics() -> None:
    async with office() as at:
        await at.put(f"{ADMIN}/t", {"a": "b"})
        await at.put(f"{ADMIN}/t/properties", {"c": "d", "e": "f"})
        assert await at.get(f"{ADMIN}/t/properties") == {"a": "b", "c": "d", "e": "f"}
        await at.delete(f"{ADMIN}/t/properties", key="c")
        await at.delete(f"{ADMIN}/t/properties", key="unknown")
        assert await at.get(f"{ADMIN}/t/properties") == {"a": "b", "e": "f"}
        await at.put(f"{ADMIN}/t/properties", {"n": 1}, 400)
        await at.delete(f"{ADMIN}/t/properties")
        assert await at.get(f"{ADMIN}/t/properties") == {}
        await at.put(f"{ADMIN}/p/partitions", {"partitions": 3, "properties": {"x": "y"}})
        assert await at.get(f"{ADMIN}/p/partitions") == {"partitions": 3, "properties": {"x": "y"}}
        await at.put(f"{ADMIN}/p-partition-1/properties", {"z": "1"})
        assert await at.get(f"{ADMIN}/p/properties") == {"x": "y", "z": "1"}
        await at.put(f"{ADMIN}/p2/partitions", {"properties": {}}, 400)
        for method in ("GET", "PUT", "DELETE"):
            await at.ask(method, f"{ADMIN}/nothing/properties", {}, 404)


async def test_properties_have_a_bound_together() -> None:
    async with office(limits=Limits(max_properties_bytes=100)) as at:
        await at.put(f"{ADMIN}/t", {"a": "x" * 60})
        await at.put(f"{ADMIN}/t/subscription/s", "earliest")
        more = {"b": "x" * 60}
        await at.put(f"{ADMIN}/t/properties", more, 413)
        assert await at.get(f"{ADMIN}/t/properties") == {"a": "x" * 60}
        await at.put(f"{SPACE}/properties", more)
        await at.put(f"{SPACE}/property/c/{'x' * 60}", status=413)
        too_many = {"a": "x" * 101}
        for path in (f"{ADMIN}/t/subscription/s/properties", f"{ADMIN}/u", f"{SPACE}/properties"):
            await at.put(path, too_many, 413)
        await at.put(f"{ADMIN}/p/partitions", {"partitions": 1, "properties": too_many}, 413)


async def test_properties_of_subscriptions_outlast_the_server() -> None:
    async with office() as at:
        await at.put(f"{ADMIN}/p/partitions", 2)
        await at.put(f"{ADMIN}/p/subscription/s", "earliest")
        assert await at.get(f"{ADMIN}/p/subscription/s/properties") == {}
        await at.put(f"{ADMIN}/p/subscription/s/properties", {"a": "b"})
        await at.put(f"{ADMIN}/p/subscription/s/properties", {"c": "d"})
        assert await at.get(f"{ADMIN}/p/subscription/s/properties") == {"c": "d"}
        log = await at.broker.topics.get(TopicName.parse("p-partition-1"))
        (saved,) = await log.store.load_cursors(log.ledger)
        assert saved.properties == b'{"c":"d"}'
        await at.get(f"{ADMIN}/p/subscription/none/properties", 404)
        await at.put(f"{ADMIN}/p/subscription/none/properties", {}, 404)


async def test_properties_of_namespaces() -> None:
    async with office() as at:
        await at.put("/admin/v2/tenants/acme")
        await at.put("/admin/v2/namespaces/acme/shop", {"properties": {"a": "b"}})
        shop = "/admin/v2/namespaces/acme/shop"
        await at.put(f"{shop}/properties", {"c": "d"})
        assert (await at.get(shop))["properties"] == {"a": "b", "c": "d"}
        await at.put(f"{shop}/property/k/v%2Fw")
        assert (await at.client.get(f"{shop}/property/k")).text == "v/w"
        assert (await at.client.get(f"{shop}/property/none")).text == ""
        assert (await at.client.delete(f"{shop}/property/k")).text == "v/w"
        assert await at.get(f"{shop}/properties") == {"a": "b", "c": "d"}
        await at.delete(f"{shop}/properties")
        assert await at.get(f"{shop}/properties") == {}
        await at.get("/admin/v2/namespaces/acme/none/properties", 404)


async def test_the_backlog_of_a_namespace_is_cleared() -> None:
    async with office() as at:
        for topic in ("t", "u"):
            await at.produce(topic, "a", "b")
            for name in ("s", "r"):
                await at.put(f"{ADMIN}/{topic}/subscription/{name}", "earliest")
        await at.post(f"{SPACE}/clearBacklog/s")
        assert [await _backlog(at, t, n) for t in "tu" for n in "sr"] == [0, 2, 0, 2]
        await at.post(f"{SPACE}/0x00000000_0xffffffff/clearBacklog")
        assert [await _backlog(at, t, n) for t in "tu" for n in "sr"] == [0, 0, 0, 0]


async def test_a_subscription_of_a_whole_namespace_is_deleted_unless_it_is_used() -> None:
    async with office() as at:
        for topic in ("t", "u"):
            await at.put(f"{ADMIN}/{topic}")
            await at.put(f"{ADMIN}/{topic}/subscription/s", "earliest")
        consumer = await at.broker.subscribe([TopicName.parse("u")], "s", ConsumerOptions(name="c"))
        await at.post(f"{SPACE}/unsubscribe/s", status=409)
        assert await at.get(f"{ADMIN}/t/subscriptions") == ["s"]  # not one of them went
        consumer.close()
        await at.post(f"{SPACE}/unsubscribe/s")
        await at.post(f"{SPACE}/unsubscribe/s")
        assert await at.get(f"{ADMIN}/t/subscriptions") == await at.get(f"{ADMIN}/u/subscriptions") == []


async def test_a_tenant_is_deleted_with_all_it_has() -> None:
    async with office() as at:
        await at.put("/admin/v2/tenants/acme", {"adminRoles": ["r"]})
        await at.put("/admin/v2/namespaces/acme/shop")
        await at.put("/admin/v2/persistent/acme/shop/t")
        assert (await at.delete("/admin/v2/tenants/acme", 409))["error_code"] == 40908
        await at.delete("/admin/v2/tenants/acme", force="true")
        await at.get("/admin/v2/tenants/acme", 404)
        assert await at.get("/admin/v2/namespaces/public") == ["public/default"]
        assert not at.broker.topics.exists(TopicName.parse("acme/shop/t"))


async def test_the_policies_of_a_topic_are_forgotten_at_once() -> None:
    async with office() as at:
        await at.put(f"{ADMIN}/t")
        await at.post(f"{ADMIN}/t/messageTTL", 5)
        await at.post(f"{ADMIN}/t/maxProducers", 5)
        await at.delete(f"{ADMIN}/t/policies")
        assert await at.get(f"{ADMIN}/t/messageTTL") is None
        assert await at.get(f"{ADMIN}/t/maxProducers") is None
        await at.delete(f"{ADMIN}/nothing/policies", 404)


async def test_partitions_are_never_missing() -> None:
    async with office() as at:
        await at.put(f"{ADMIN}/p/partitions", 2)
        await at.put(f"{ADMIN}/t")
        await at.post(f"{ADMIN}/p/createMissedPartitions")
        await at.post(f"{ADMIN}/t/createMissedPartitions", status=404)
