import pytest
from tests.integration.admin_harness import ADMIN, office

from penstock.broker.settings import BrokerSettings
from penstock.model.names import TopicName


async def test_a_topic_is_created_described_and_deleted() -> None:
    async with office() as at:
        await at.put(f"{ADMIN}/t", {"owner": "me"})
        assert (await at.put(f"{ADMIN}/t", status=409))["error_code"] == 40906
        found = await at.get(f"{ADMIN}/t")
        assert found["name"] == "persistent://public/default/t"
        assert found["partitions"] == 0
        assert found["properties"] == {"owner": "me"}
        assert await at.get(f"{ADMIN}/t/partitions") == {"partitions": 0}
        await at.delete(f"{ADMIN}/t")
        refused = await at.get(f"{ADMIN}/t", 404)
        assert refused == {"error_code": 40401, "message": refused["reason"], "reason": refused["reason"]}
        await at.delete(f"{ADMIN}/t", 404)


async def test_a_partitioned_topic_grows_and_is_listed_by_its_partitions() -> None:
    async with office() as at:
        await at.put(f"{ADMIN}/p/partitions", 2)
        await at.put(f"{ADMIN}/p/partitions", 2, 409)
        await at.put(f"{ADMIN}/p", status=409)
        assert await at.get(f"{ADMIN}/p/partitions") == {"partitions": 2}
        await at.post(f"{ADMIN}/p/partitions", 3)
        assert (await at.post(f"{ADMIN}/p/partitions", 1, 422))["error_code"] == 42206
        await at.put(f"{ADMIN}/t")
        names = [f"persistent://public/default/{name}" for name in ("p-partition-0", "p-partition-1")]
        names += [f"persistent://public/default/{name}" for name in ("p-partition-2", "t")]
        assert await at.get(ADMIN) == names
        assert await at.get("/admin/v2/namespaces/public/default/topics") == names
        assert await at.get(f"{ADMIN}/partitioned") == ["persistent://public/default/p"]
        await at.post(f"{ADMIN}/t/partitions", 3, 400)
        await at.delete(f"{ADMIN}/p/partitions")
        await at.get(f"{ADMIN}/p/partitions", 404)


async def test_each_kind_of_topic_is_deleted_by_its_own_call() -> None:
    async with office() as at:
        await at.put(f"{ADMIN}/p/partitions", 2)
        await at.put(f"{ADMIN}/t")
        await at.produce("p", *"abcd")
        for params in ({}, {"force": "true"}):
            refused = await at.delete(f"{ADMIN}/p", 409, **params)
            assert refused["error_code"] == 40912
            assert "is a partitioned topic, instead of calling delete topic" in refused["reason"]
            assert (await at.delete(f"{ADMIN}/t/partitions", 409, **params))["error_code"] == 40912
        assert (await at.get(f"{ADMIN}/p"))["messages"] == 4
        await at.get(f"{ADMIN}/t")
        await at.delete(f"{ADMIN}/nothing/partitions", 404)
        await at.delete(f"{ADMIN}/p/partitions", force="true")
        await at.delete(f"{ADMIN}/t")
        assert await at.get(ADMIN) == []


async def test_a_topic_grows_by_a_number_or_an_object() -> None:
    async with office() as at:
        await at.put(f"{ADMIN}/p/partitions", {"partitions": 1, "properties": {"a": "b"}})
        await at.post(f"{ADMIN}/p/partitions", 2)
        await at.post(f"{ADMIN}/p/partitions", {"partitions": 3, "properties": {"a": "c"}})
        assert await at.get(f"{ADMIN}/p/partitions") == {"partitions": 3, "properties": {"a": "b"}}
        await at.post(f"{ADMIN}/p/partitions", {"properties": {}}, 400)


@pytest.mark.parametrize("count", [0, -1, 1025, "2", 1.5, None, [2]])
async def test_a_number_of_partitions_that_cannot_be_is_refused(count: object) -> None:
    async with office() as at:
        assert (await at.put(f"{ADMIN}/p/partitions", count, 400))["error_code"] == 40001
        assert await at.get(ADMIN) == []


async def test_non_persistent_topics_say_so_and_are_listed_apart() -> None:
    async with office() as at:
        await at.put("/admin/v2/non-persistent/public/default/n")
        await at.put(f"{ADMIN}/t")
        assert (await at.get("/admin/v2/non-persistent/public/default/n"))["persistent"] is False
        assert (await at.get("/admin/v2/non-persistent/public/default/n/stats"))["persistent"] is False
        listed = "/admin/v2/namespaces/public/default/topics"
        assert await at.get(listed) == ["persistent://public/default/t"]
        assert await at.get(listed, mode="NON_PERSISTENT") == ["non-persistent://public/default/n"]
        assert len(await at.get(listed, mode="ALL")) == 2
        await at.get(listed, 400, mode="SOME")


async def test_a_name_may_hold_a_slash_and_words_that_are_paths() -> None:
    async with office() as at:
        for name in ("a%2Fb", "stats", "partitions", "%C3%A9t%C3%A9", "a%20b"):
            await at.put(f"{ADMIN}/{name}")
            assert (await at.get(f"{ADMIN}/{name}/partitions")) == {"partitions": 0}
        assert at.broker.topics.exists(TopicName.parse("public/default/a/b"))
        assert at.broker.topics.exists(TopicName.parse("public/default/été"))


@pytest.mark.parametrize("path", ["/admin/v2/persistent/pub%20lic/default/t", f"{ADMIN}/%01", f"{ADMIN}/%20"])
async def test_bad_names_are_412(path: str) -> None:
    async with office() as at:
        assert (await at.put(path, status=412))["error_code"] == 41201


async def test_what_is_not_there_or_not_for_this_method() -> None:
    async with office() as at:
        assert (await at.get("/admin/v2/nothing", 404))["error_code"] == 40400
        assert (await at.get("/admin/v2/persistent", 404))["error_code"] == 40400
        await at.get("/admin/v2/persistent/public/elsewhere", 404)
        response = await at.client.patch(f"{ADMIN}/t")
        assert response.status_code == 405
        assert response.headers["allow"] == "DELETE, GET, HEAD, PUT"
        assert response.json()["error_code"] == 40501
        assert (await at.client.put(f"{ADMIN}/%FF")).status_code == 400
        head = await at.client.head("/admin/v2/clusters")
        assert (head.status_code, head.content) == (200, b"")


async def test_auto_creation_counts_as_being_there() -> None:
    async with office() as at:
        await at.get(f"{ADMIN}/new/partitions", 404)
        found = await at.get(f"{ADMIN}/new/partitions", checkAllowAutoCreation="true")
        assert found == {"partitions": 0}
        assert not at.broker.topics.exists(TopicName.parse("new"))
    async with office(BrokerSettings(auto_create_partitions=3)) as at:
        found = await at.get(f"{ADMIN}/new/partitions", checkAllowAutoCreation="true")
        assert found == {"partitions": 3}
    async with office(BrokerSettings(auto_create_topics=False)) as at:
        await at.get(f"{ADMIN}/new/partitions", 404, checkAllowAutoCreation="true")


async def test_terminate_answers_the_last_id_and_lets_nothing_follow() -> None:
    async with office() as at:
        await at.produce("t", "a")
        await at.produce("t", "b")
        last = await at.get(f"{ADMIN}/t/lastMessageId")
        assert await at.post(f"{ADMIN}/t/terminate", status=200) == last
        assert last["entryId"] == 1
        assert last["partitionIndex"] == -1
        assert (await at.get(f"{ADMIN}/t"))["terminated"] is True
        response = await at.client.post("/topics/public/default/t", json={"messages": [{"value": "c"}]})
        assert "terminated" in response.text
        await at.put(f"{ADMIN}/p/partitions", 2)
        ends = await at.post(f"{ADMIN}/p/terminate", status=200)
        assert {end["entryId"] for end in ends.values()} == {-1}
        assert list(ends) == ["0", "1"]
        await at.post(f"{ADMIN}/nothing/terminate", status=404)


async def test_stats_have_pulsar_s_names() -> None:
    async with office() as at:
        await at.produce("t", "a", "b", "c")
        await at.put(f"{ADMIN}/t/subscription/s", "earliest")
        found = await at.get(f"{ADMIN}/t/stats")
        assert found["msgInCounter"] == 3
        assert found["bytesInCounter"] == found["storageSize"] > 0
        assert found["publishers"] == []
        subscription = found["subscriptions"]["s"]
        assert subscription["msgBacklog"] == 3
        assert subscription["unackedMessages"] == 0
        assert subscription["durable"] is True
        assert subscription["consumers"] == []
        inner = await at.get(f"{ADMIN}/t/internalStats")
        assert inner["lastConfirmedEntry"].endswith(":0")
        assert inner["cursors"]["s"]["markDeletePosition"].endswith(":-1")
        assert inner["nextOffset"] == 3


async def test_partitioned_stats_sum_up() -> None:
    async with office() as at:
        await at.put(f"{ADMIN}/p/partitions", 2)
        await at.put(f"{ADMIN}/p/subscription/s", "earliest")
        await at.produce("p", *"abcd")
        found = await at.get(f"{ADMIN}/p/partitioned-stats")
        assert found["metadata"] == {"partitions": 2}
        assert found["msgInCounter"] == 4
        assert found["subscriptions"]["s"]["msgBacklog"] == 4
        parts = found["partitions"].values()
        assert sum(part["subscriptions"]["s"]["msgBacklog"] for part in parts) == 4
        assert (await at.get(f"{ADMIN}/p/stats"))["msgInCounter"] == 4
        without = await at.get(f"{ADMIN}/p/partitioned-stats", perPartition="false")
        assert without["partitions"] == {}
        assert (await at.get(f"{ADMIN}/p-partition-1/stats"))["msgInCounter"] == 2
        await at.put(f"{ADMIN}/t")
        await at.get(f"{ADMIN}/t/partitioned-stats", 404)


async def test_a_topic_in_use_is_deleted_only_by_force() -> None:
    async with office() as at:
        producer = await at.broker.producer(TopicName.parse("t"))
        assert (await at.delete(f"{ADMIN}/t", 412))["error_code"] == 41202
        assert (await at.get(f"{ADMIN}/t/stats"))["publishers"][0]["producerName"] == producer.name
        await at.delete(f"{ADMIN}/t", force="true")
        assert producer.closed
        await at.delete(f"{ADMIN}/t", 400, force="maybe")
