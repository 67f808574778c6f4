"""Messages one by one over the admin API, with the headers that Pulsar's clients read."""

import json
from typing import Any

import msgspec
import pytest
from tests.support.admin import ADMIN, AdminServer

from penstock.model.message import OutMessage
from penstock.model.names import TopicName
from penstock.wire import entry as wire
from penstock.wire.batch import split
from penstock.wire.contents import compressed, parse
from penstock.wire.pulsar_pb2 import LZ4, NONE

PUBLISHED = "2023-11-14T22:13:20.000Z"  # the server's clock stands still


async def _publish(server: AdminServer, *messages: dict[str, Any]) -> None:
    """Each message as an entry of its own."""
    for message in messages:
        await server.post("/topics/public/default/t", {"messages": [message]}, 200)


async def test_a_message_names_its_times_and_properties_as_pulsar_does() -> None:
    async with AdminServer.open() as server:
        due = 1_800_000_000_000
        message = {
            "value": "hi",
            "key": "k",
            "eventTime": 1603045262772,
            "deliverAt": due,
            "properties": {"p": "ä\n", "q": "r"},
        }
        await _publish(server, message)
        await server.put(f"{ADMIN}/t/subscription/s", "earliest")
        ledger = (await server.get(f"{ADMIN}/t/lastMessageId"))["ledgerId"]
        for path in ("subscription/s/position/1", "examinemessage", f"ledger/{ledger}/entry/0"):
            found = await server.client.get(f"{ADMIN}/t/{path}")
            assert found.status_code == 200
            assert found.content == b"hi"
            head = found.headers
            assert head["X-Pulsar-deliver-at-time"] == "2027-01-15T08:00:00.000Z"
            assert head["X-Pulsar-publish-time"] == PUBLISHED
            assert head["X-Pulsar-event-time"] == "2020-10-18T18:21:02.772Z"
            assert head["X-Pulsar-partition-key"] == "k"
            properties = dict(head.raw)[b"X-Pulsar-PROPERTY"]  # Java compares the case
            assert json.loads(properties) == {"p": "ä\n", "q": "r"}
            assert head["X-Pulsar-PROPERTY-q"] == "r"
            assert head["X-Pulsar-Message-ID"].split(":")[:2] == [str(ledger), "0"]


@pytest.mark.parametrize("compression", [NONE, LZ4])
async def test_a_batch_comes_whole_and_uncompressed(compression: int) -> None:
    async with AdminServer.open() as server:
        [topic] = await server.broker.topics.all_of(TopicName.parse("t"))
        messages = [
            OutMessage(payload=b"a" * 50, key="k", properties={"p": "q"}),
            OutMessage(payload=b""),
            OutMessage(payload=b"c" * 50),
        ]
        entry = wire.encode(
            messages,
            producer="someone",
            sequence_id=7,
            publish_time=server.clock.now_ms(),
            schema_version=None,
        )
        data = entry.data if compression == NONE else compressed(entry.data, compression)
        await topic.append([msgspec.structs.replace(entry, data=data)])
        found = await server.client.get(f"{ADMIN}/t/ledger/{topic.ledger}/entry/0")
        assert found.status_code == 200
        assert found.headers["X-Pulsar-num-batch-message"] == "3"
        metadata, payload = parse(data)
        assert (
            int(found.headers["X-Pulsar-batch-size"]) == len(data) - metadata.ByteSize() == len(payload) + 10
        )
        assert found.headers["X-Pulsar-Message-ID"] == f"{topic.ledger}:0"
        assert found.headers["X-Pulsar-publish-time"] == PUBLISHED
        assert found.headers["X-Pulsar-producer-name"] == "someone"
        first, second, third = split(found.content, 3)
        assert first[0] is not None
        assert (first[0].partition_key, first[1], second[1], third[1]) == ("k", b"a" * 50, b"", b"c" * 50)
        assert {one.key: one.value for one in first[0].properties} == {"p": "q"}
        # By their number, messages of a batch still come one by one.
        alone = await server.client.get(f"{ADMIN}/t/examinemessage", params={"initialPosition": "earliest"})
        assert alone.content == b"a" * 50
        assert "X-Pulsar-num-batch-message" not in alone.headers


async def test_a_topic_is_examined_from_either_end() -> None:
    async with AdminServer.open() as server:
        await server.produce("t", "a", "b")
        await server.produce("t", "c")
        for start, position, wanted in [
            ("earliest", 1, b"a"),
            ("earliest", 2, b"b"),
            ("latest", 1, b"c"),
            ("latest", 3, b"a"),
            ("earliest", 0, b"a"),  # Pulsar counts 0 as 1
        ]:
            params = {"initialPosition": start, "messagePosition": position}
            assert (await server.client.get(f"{ADMIN}/t/examinemessage", params=params)).content == wanted
        assert (await server.client.get(f"{ADMIN}/t/examinemessage")).content == b"c"
        await server.get(f"{ADMIN}/t/examinemessage", 404, messagePosition=4)
        await server.get(f"{ADMIN}/t/examinemessage", 400, messagePosition="one")
        await server.get(f"{ADMIN}/t/examinemessage", 400, initialPosition="middle")
        await server.put(f"{ADMIN}/p/partitions", 2)
        await server.get(f"{ADMIN}/p/examinemessage", 405)
        await server.get(f"{ADMIN}/p/messageid/0", 405)
        await server.get(f"{ADMIN}/nothing/examinemessage", 404)


async def test_what_is_not_in_the_log_is_404() -> None:
    async with AdminServer.open() as server:
        await server.produce("t", "a")
        ledger = (await server.get(f"{ADMIN}/t/lastMessageId"))["ledgerId"]
        await server.get(f"{ADMIN}/t/ledger/{ledger}/entry/1", 404)
        await server.get(f"{ADMIN}/t/ledger/{ledger + 1}/entry/0", 404)
        await server.get(f"{ADMIN}/t/ledger/x/entry/0", 400)


async def test_the_first_message_at_a_time() -> None:
    async with AdminServer.open() as server:
        await server.produce("t", "a")
        between = server.clock.now_ms() + 1
        await server.clock.advance(10)
        await server.produce("t", "b")
        for when, entry in ((0, 0), (between, 1), (between + 100, 2)):
            found = await server.get(f"{ADMIN}/t/messageid/{when}")
            assert (found["entryId"], found["partitionIndex"], found["batchIndex"]) == (entry, -1, -1)


async def test_the_last_id_names_its_place_in_a_batch() -> None:
    async with AdminServer.open() as server:
        await server.produce("t", "a")
        assert "batchIndex" not in await server.get(f"{ADMIN}/t/lastMessageId")
        await server.produce("t", "b", "c", "d")
        found = await server.get(f"{ADMIN}/t/lastMessageId")
        assert (found["entryId"], found["batchIndex"], found["batchSize"]) == (1, 2, 3)


async def test_a_position_of_an_older_ledger_is_before_the_whole_log() -> None:
    async with AdminServer.open() as server:
        await server.produce("before", "a")
        await server.produce("t", "b")
        ledger = (await server.get(f"{ADMIN}/t/lastMessageId"))["ledgerId"]
        assert ledger > 0
        for other, size in (
            (ledger - 1, (await server.get(f"{ADMIN}/t/stats"))["storageSize"]),
            (ledger + 1, 0),
        ):
            body = {"ledgerId": other, "entryId": 5}
            assert await server.put(f"{ADMIN}/t/backlogSize", body, 200) == size


async def test_a_backlog_is_analyzed() -> None:
    async with AdminServer.open() as server:
        await server.produce("t", "a", "b", "c")
        await server.produce("t", "d")
        await server.produce("t", "e")
        await server.put(f"{ADMIN}/t/subscription/s", "earliest")
        analyze = f"{ADMIN}/t/subscription/s/analyzeBacklog"
        found = await server.post(analyze, status=200)
        ledger = found["firstMessageId"].split(":")[0]
        assert found == {
            "entries": 3,
            "messages": 5,
            "filterRejectedEntries": 0,
            "filterAcceptedEntries": 3,
            "filterRescheduledEntries": 0,
            "filterRejectedMessages": 0,
            "filterAcceptedMessages": 5,
            "filterRescheduledMessages": 0,
            "aborted": False,
            "firstMessageId": f"{ledger}:0",
            "lastMessageId": f"{ledger}:2",
        }
        await server.post(f"{ADMIN}/t/subscription/s/skip/2")
        found = await server.post(analyze, status=200)
        assert (found["entries"], found["messages"]) == (3, 3)
        found = await server.post(analyze, {"ledgerId": int(ledger), "entryId": 2}, 200)
        assert (found["entries"], found["messages"]) == (1, 1)
        await server.post(f"{ADMIN}/t/subscription/s/skip_all")
        found = await server.post(analyze, status=200)
        assert (found["entries"], "firstMessageId" in found) == (0, False)
        await server.post(f"{ADMIN}/t/subscription/none/analyzeBacklog", status=404)


async def test_messages_expire_up_to_one_of_them() -> None:
    async with AdminServer.open() as server:
        for value in "abcd":
            await server.produce("t", value)
        await server.put(f"{ADMIN}/t/subscription/s", "earliest")
        ledger = (await server.get(f"{ADMIN}/t/lastMessageId"))["ledgerId"]
        await server.post(f"{ADMIN}/t/subscription/s/expireMessages", {"ledgerId": ledger, "entryId": 1})
        stats = await server.get(f"{ADMIN}/t/stats")
        assert stats["subscriptions"]["s"]["msgBacklog"] == 2


@pytest.mark.parametrize("partitions", [0, 2])
async def test_internals_have_pulsar_s_names(partitions: int) -> None:
    async with AdminServer.open() as server:
        if partitions:
            await server.put(f"{ADMIN}/t/partitions", partitions)
        else:
            await server.put(f"{ADMIN}/t", {"a": "b"})
        await server.put(f"{ADMIN}/t/subscription/s", {"properties": {"owner": "me"}})
        await server.produce("t", "a")
        info, inner = (
            await server.get(f"{ADMIN}/t/internal-info"),
            await server.get(f"{ADMIN}/t/internalStats"),
        )
        if partitions:
            assert await server.get(f"{ADMIN}/t/partitioned-internalStats") == inner
            assert inner["metadata"] == {"partitions": 2}
            name = "persistent://public/default/t-partition-0"
            info, inner = info["partitions"][name], inner["partitions"][name]
        else:
            await server.get(f"{ADMIN}/t/partitioned-internalStats", 404)
            assert info["properties"] == {"a": "b"}
        assert info["ledgers"][0]["ledgerId"] == inner["ledgers"][0]["ledgerId"]
        assert info["cursors"]["s"]["markDelete"]["entryId"] == -1
        cursor = inner["cursors"]["s"]
        assert cursor["properties"] == {}  # numbers in Pulsar
        assert cursor["subscriptionProperties"] == {"owner": "me"}
        assert cursor["individuallyDeletedMessages"] == "[]"
        assert inner["compactedLedger"]["ledgerId"] == -1
