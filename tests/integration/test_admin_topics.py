import pytest
from tests.support.admin import ADMIN, AdminServer

from penstock.broker.settings import BrokerSettings
from penstock.model.names import TopicName


async def test_a_topic_is_created_described_and_deleted() -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/t", {"owner": "me"})
        assert (await server.put(f"{ADMIN}/t", status=409))["error_code"] == 40906
        found = await server.get(f"{ADMIN}/t")
        assert found["name"] == "persistent://public/default/t"
        assert found["partitions"] == 0
        assert found["properties"] == {"owner": "me"}
        assert await server.get(f"{ADMIN}/t/partitions") == {"partitions": 0}
        await server.delete(f"{ADMIN}/t")
        refused = await server.get(f"{ADMIN}/t", 404)
        assert refused == {"error_code": 40401, "message": refused["reason"], "reason": refused["reason"]}
        await server.delete(f"{ADMIN}/t", 404)


async def test_a_partitioned_topic_grows_and_is_listed_by_its_partitions() -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/p/partitions", 2)
        await server.put(f"{ADMIN}/p/partitions", 2, 409)
        await server.put(f"{ADMIN}/p", status=409)
        assert await server.get(f"{ADMIN}/p/partitions") == {"partitions": 2}
        await server.post(f"{ADMIN}/p/partitions", 3)
        assert (await server.post(f"{ADMIN}/p/partitions", 1, 422))["error_code"] == 42206
        await server.put(f"{ADMIN}/t")
        names = [f"persistent://public/default/{name}" for name in ("p-partition-0", "p-partition-1")]
        names += [f"persistent://public/default/{name}" for name in ("p-partition-2", "t")]
        assert await server.get(ADMIN) == names
        assert await server.get("/admin/v2/namespaces/public/default/topics") == names
        assert await server.get(f"{ADMIN}/partitioned") == ["persistent://public/default/p"]
        await server.post(f"{ADMIN}/t/partitions", 3, 400)
        await server.delete(f"{ADMIN}/p/partitions")
        await server.get(f"{ADMIN}/p/partitions", 404)


async def test_each_kind_of_topic_is_deleted_by_its_own_call() -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/p/partitions", 2)
        await server.put(f"{ADMIN}/t")
        await server.produce("p", *"abcd")
        for params in ({}, {"force": "true"}):
            refused = await server.delete(f"{ADMIN}/p", 409, **params)
            assert refused["error_code"] == 40912
            assert "is a partitioned topic, instead of calling delete topic" in refused["reason"]
            assert (await server.delete(f"{ADMIN}/t/partitions", 409, **params))["error_code"] == 40912
        assert (await server.get(f"{ADMIN}/p"))["messages"] == 4
        await server.get(f"{ADMIN}/t")
        await server.delete(f"{ADMIN}/nothing/partitions", 404)
        await server.delete(f"{ADMIN}/p/partitions", force="true")
        await server.delete(f"{ADMIN}/t")
        assert await server.get(ADMIN) == []


async def test_a_topic_grows_by_a_number_or_an_object() -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/p/partitions", {"partitions": 1, "properties": {"a": "b"}})
        await server.post(f"{ADMIN}/p/partitions", 2)
        await server.post(f"{ADMIN}/p/partitions", {"partitions": 3, "properties": {"a": "c"}})
        assert await server.get(f"{ADMIN}/p/partitions") == {"partitions": 3, "properties": {"a": "b"}}
        await server.post(f"{ADMIN}/p/partitions", {"properties": {}}, 400)


@pytest.mark.parametrize("count", [0, -1, 1025, "2", 1.5, None, [2]])
async def test_a_number_of_partitions_that_cannot_be_is_refused(count: object) -> None:
    async with AdminServer.open() as server:
        assert (await server.put(f"{ADMIN}/p/partitions", count, 400))["error_code"] == 40001
        assert await server.get(ADMIN) == []


async def test_non_persistent_topics_say_so_and_are_listed_apart() -> None:
    async with AdminServer.open() as server:
        await server.put("/admin/v2/non-persistent/public/default/n")
        await server.put(f"{ADMIN}/t")
        assert (await server.get("/admin/v2/non-persistent/public/default/n"))["persistent"] is False
        assert (await server.get("/admin/v2/non-persistent/public/default/n/stats"))["persistent"] is False
        listed = "/admin/v2/namespaces/public/default/topics"
        assert await server.get(listed) == ["persistent://public/default/t"]
        assert await server.get(listed, mode="NON_PERSISTENT") == ["non-persistent://public/default/n"]
        assert len(await server.get(listed, mode="ALL")) == 2
        await server.get(listed, 400, mode="SOME")


async def test_a_name_may_hold_a_slash_and_words_that_are_paths() -> None:
    async with AdminServer.open() as server:
        for name in ("a%2Fb", "stats", "partitions", "%C3%A9t%C3%A9", "a%20b"):
            await server.put(f"{ADMIN}/{name}")
            assert (await server.get(f"{ADMIN}/{name}/partitions")) == {"partitions": 0}
        assert server.broker.topics.exists(TopicName.parse("public/default/a/b"))
        assert server.broker.topics.exists(TopicName.parse("public/default/été"))


@pytest.mark.parametrize("path", ["/admin/v2/persistent/pub%20lic/default/t", f"{ADMIN}/%01", f"{ADMIN}/%20"])
async def test_bad_names_are_412(path: str) -> None:
    async with AdminServer.open() as server:
        assert (await server.put(path, status=412))["error_code"] == 41201


async def test_what_is_not_there_or_not_for_this_method() -> None:
    async with AdminServer.open() as server:
        assert (await server.get("/admin/v2/nothing", 404))["error_code"] == 40400
        assert (await server.get("/admin/v2/persistent", 404))["error_code"] == 40400
        await server.get("/admin/v2/persistent/public/elsewhere", 404)
        response = await server.client.patch(f"{ADMIN}/t")
        assert response.status_code == 405
        assert response.headers["allow"] == "DELETE, GET, HEAD, PUT"
        assert response.json()["error_code"] == 40501
        assert (await server.client.put(f"{ADMIN}/%FF")).status_code == 400
        head = await server.client.head("/admin/v2/clusters")
        assert (head.status_code, head.content) == (200, b"")


async def test_auto_creation_counts_as_being_there() -> None:
    async with AdminServer.open() as server:
        await server.get(f"{ADMIN}/new/partitions", 404)
        found = await server.get(f"{ADMIN}/new/partitions", checkAllowAutoCreation="true")
        assert found == {"partitions": 0}
        assert not server.broker.topics.exists(TopicName.parse("new"))
    async with AdminServer.open(BrokerSettings(auto_create_partitions=3)) as server:
        found = await server.get(f"{ADMIN}/new/partitions", checkAllowAutoCreation="true")
        assert found == {"partitions": 3}
    async with AdminServer.open(BrokerSettings(auto_create_topics=False)) as server:
        await server.get(f"{ADMIN}/new/partitions", 404, checkAllowAutoCreation="true")


async def test_terminate_answers_the_last_id_and_lets_nothing_follow() -> None:
    async with AdminServer.open() as server:
        await server.produce("t", "a")
        await server.produce("t", "b")
        last = await server.get(f"{ADMIN}/t/lastMessageId")
        assert await server.post(f"{ADMIN}/t/terminate", status=200) == last
        assert last["entryId"] == 1
        assert last["partitionIndex"] == -1
        assert (await server.get(f"{ADMIN}/t"))["terminated"] is True
        response = await server.client.post("/topics/public/default/t", json={"messages": [{"value": "c"}]})
        assert "terminated" in response.text
        await server.put(f"{ADMIN}/p/partitions", 2)
        ends = await server.post(f"{ADMIN}/p/terminate", status=200)
        assert {end["entryId"] for end in ends.values()} == {-1}
        assert list(ends) == ["0", "1"]
        await server.post(f"{ADMIN}/nothing/terminate", status=404)


async def test_stats_have_pulsar_s_names() -> None:
    async with AdminServer.open() as server:
        await server.produce("t", "a", "b", "c")
        await server.put(f"{ADMIN}/t/subscription/s", "earliest")
        found = await server.get(f"{ADMIN}/t/stats")
        assert found["msgInCounter"] == 3
        assert found["bytesInCounter"] == found["storageSize"] > 0
        assert found["publishers"] == []
        subscription = found["subscriptions"]["s"]
        assert subscription["msgBacklog"] == 3
        assert subscription["unackedMessages"] == 0
        assert subscription["durable"] is True
        assert subscription["consumers"] == []
        inner = await server.get(f"{ADMIN}/t/internalStats")
        assert inner["lastConfirmedEntry"].endswith(":0")
        assert inner["cursors"]["s"]["markDeletePosition"].endswith(":-1")
        assert inner["nextOffset"] == 3


async def test_partitioned_stats_sum_up() -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/p/partitions", 2)
        await server.put(f"{ADMIN}/p/subscription/s", "earliest")
        await server.produce("p", *"abcd")
        found = await server.get(f"{ADMIN}/p/partitioned-stats")
        assert found["metadata"] == {"partitions": 2}
        assert found["msgInCounter"] == 4
        assert found["subscriptions"]["s"]["msgBacklog"] == 4
        parts = found["partitions"].values()
        assert sum(part["subscriptions"]["s"]["msgBacklog"] for part in parts) == 4
        assert (await server.get(f"{ADMIN}/p/stats"))["msgInCounter"] == 4
        without = await server.get(f"{ADMIN}/p/partitioned-stats", perPartition="false")
        assert without["partitions"] == {}
        assert (await server.get(f"{ADMIN}/p-partition-1/stats"))["msgInCounter"] == 2
        await server.put(f"{ADMIN}/t")
        await server.get(f"{ADMIN}/t/partitioned-stats", 404)


async def test_a_topic_in_use_is_deleted_only_by_force() -> None:
    async with AdminServer.open() as server:
        producer = await server.broker.producer(TopicName.parse("t"))
        assert (await server.delete(f"{ADMIN}/t", 412))["error_code"] == 41202
        assert (await server.get(f"{ADMIN}/t/stats"))["publishers"][0]["producerName"] == producer.name
        await server.delete(f"{ADMIN}/t", force="true")
        assert producer.closed
        await server.delete(f"{ADMIN}/t", 400, force="maybe")
