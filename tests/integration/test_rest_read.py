"""Reading partitions over REST: places, bounds, waiting, streams, raw entries."""

import asyncio
import struct
from io import BytesIO
from typing import Any

import msgspec
import pytest
from tests.support.rest import TOPIC, RestServer, Visit

from penstock.model.entry import Entry, NewEntry
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.pipeline.rows.entries import read_frames
from penstock.pipeline.rows.place import Place
from penstock.pipeline.rows.rows import decode
from penstock.testing.clock import settle
from penstock.wire import entry as wire
from penstock.wire.runs import ENTRY, RUN

PARTITION = f"{TOPIC}/partitions/0"
MESSAGES = f"{PARTITION}/messages"
NAME = TopicName.parse("t")


async def test_places_to_begin_and_end() -> None:
    async with RestServer.open() as server:
        ids = await server.produce("a", "b", "c")
        await server.clock.advance(1000)
        ids += await server.produce("d")
        then = server.clock.now_ms()
        assert await server.values(offset=1) == ["b", "c", "d"]
        assert await server.values(offset=1, end_offset=3) == ["b", "c"]
        assert await server.values(offset=9) == []
        assert await server.values(message_id=ids[0]) == ["b", "c", "d"]
        assert await server.values(message_id=ids[3]) == []
        assert await server.values(message_id="earliest", max_messages=1) == ["a"]
        assert await server.values(message_id="latest") == []
        assert await server.values(publish_time=then) == ["d"]
        assert await server.values(publish_time=then + 1) == []
        assert await server.values(publish_time=0) == ["a", "b", "c", "d"]
        whole = str(MessageId(MessageId.parse(ids[0]).ledger, 0))
        assert await server.values(message_id=whole) == ["d"]


async def test_paging_by_next_message_id() -> None:
    async with RestServer.open() as server:
        answer = await server.get(MESSAGES) if await server.produce("a", "b", "c", "d", "e") else {}
        seen: list[str] = []
        params: dict[str, Any] = {}
        for _ in range(4):
            answer = await server.get(MESSAGES, max_messages=2, **params)
            seen += [m["value"] for m in answer["messages"]]
            params = {"message_id": answer["next_message_id"]}
        assert seen == ["a", "b", "c", "d", "e"]
        await server.produce("f")
        assert await server.values(**params) == ["f"]


@pytest.mark.parametrize("params", [{}, {"offset": 3}, {"message_id": "latest"}, {"publish_time": 2**50}])
async def test_an_empty_answer_says_where_to_go_on(params: dict[str, Any]) -> None:
    async with RestServer.open() as server:
        if params:
            await server.produce("a", "b")
            await server.produce("c")
        else:
            await server.broker.topics.create(NAME, 0)
        answer = await server.get(MESSAGES, **params)
        assert answer["messages"] == []
        await server.produce("new")
        assert await server.values(message_id=answer["next_message_id"]) == ["new"]


async def test_bounds_never_stall() -> None:
    async with RestServer.open() as server:
        await server.produce("aaaa", "bb", "c" * 100, "d")
        assert await server.values(max_bytes=6) == ["aaaa", "bb"]
        assert await server.values(max_bytes=1) == ["aaaa"]
        assert await server.values(max_bytes=1, offset=2) == ["c" * 100]
        assert await server.values(max_messages=3) == ["aaaa", "bb", "c" * 100]


async def test_waiting_for_the_first_message() -> None:
    async with RestServer.open() as server:
        await server.produce("a")
        visit = Visit(server, MESSAGES, "offset=1&timeout=5000")
        await asyncio.sleep(0)
        await server.clock.advance(4999)
        assert not visit.done.done()
        await server.produce("b", "c")
        await visit.done
        assert b'"b"' in visit.body
        visit = Visit(server, MESSAGES, "offset=3&timeout=5000")
        await asyncio.sleep(0)
        await server.clock.advance(5000)
        await visit.done
        assert b'"messages":[]' in visit.body
        assert await server.values(offset=0, timeout=5000) == ["a", "b", "c"]


async def test_hanging_up_ends_a_wait_and_so_does_draining() -> None:
    async with RestServer.open() as server:
        await server.produce("a")
        visits = [Visit(server, MESSAGES, "offset=1&timeout=100000") for _ in range(1000)]
        await settle()
        for visit in visits[:500]:
            visit.hang_up()
        await asyncio.gather(*(visit.done for visit in visits[:500]))
        assert len(server.endpoint.services.polls.running) == 500
        server.context.draining = True
        server.endpoint.drain()
        await asyncio.gather(*(visit.done for visit in visits))
        assert {visit.status for visit in visits[500:]} == {200}


async def test_bad_parameters() -> None:
    async with RestServer.open() as server:
        await server.produce("a")
        for query in (
            "max_messages=0",
            "max_messages=x",
            "max_bytes=0",
            "timeout=-1",
            "offset=1&message_id=earliest",
            "message_id=!",
            "message_id=CAUQAA%3D%3D",
            "include_schema=perhaps",
            "encoding=rot13",
            "max_message=1",
        ):
            response = await server.client.get(f"{MESSAGES}?{query}")
            assert (response.status_code, response.json()["error_code"]) == (400, 40001), query
        for path, code in (
            (f"{TOPIC}/partitions/1/messages", 40402),
            (f"{TOPIC}2/partitions/0/messages", 40401),
        ):
            response = await server.client.get(path)
            assert (response.status_code, response.json()["error_code"]) == (404, code)
        response = await server.client.get(MESSAGES, headers={"accept": "image/png"})
        assert (response.status_code, response.json()["error_code"]) == (406, 40601)


async def test_what_cannot_be_decoded_is_told_in_its_place() -> None:
    async with RestServer.open() as server:
        await server.produce("a")
        topic = await server.broker.topics.get(NAME)
        stamp = server.clock.now_ms()
        encode = wire.encode_plain
        bad_text = encode([b"\xff"], producer="p", sequence_id=0, publish_time=stamp, schema_version=0)
        no_schema = encode([b"x"], producer="p", sequence_id=0, publish_time=stamp, schema_version=77)
        await topic.append([bad_text, no_schema, NewEntry(b"\x0e\x01garbage", 2, stamp)])
        await server.produce("z")
        messages = (await server.get(MESSAGES, include_schema=True))["messages"]
        assert [m["value"] for m in messages] == ["a", None, None, None, None, "z"]
        assert [bool(m.get("error")) for m in messages] == [False, True, True, True, True, False]
        assert [m["offset"] for m in messages] == [0, 1, 2, 3, 4, 5]
        assert len({m["messageId"] for m in messages}) == 6
        assert await server.values(encoding="base64", offset=1, end_offset=2) == ["/w=="]
        assert (await server.values(encoding="text", max_messages=1)) == ["a"]


async def test_offsets() -> None:
    async with RestServer.open() as server:
        await server.produce("a", "b")
        await server.clock.advance(10)
        await server.produce("c")
        found = await server.get(f"{PARTITION}/offsets", publish_time=server.clock.now_ms())
        assert found == {"ledger": 0, "earliest": 0, "latest": 3, "offset": 2}
        assert await server.get("/topics/persistent/public/default/t/partitions/0/offsets") == {
            "ledger": 0,
            "earliest": 0,
            "latest": 3,
        }


async def test_after_retention() -> None:
    async with RestServer.open() as server:
        first = (await server.produce("a", "b"))[0]
        await server.produce("c")
        await (await server.broker.topics.get(NAME)).trim(1)
        assert await server.values() == ["c"]
        assert await server.values(message_id=first) == ["c"]
        assert await server.values(offset=0) == ["c"]


# -- streams


async def stream(server: RestServer, accept: str, query: str = "") -> str:
    response = await server.client.get(f"{MESSAGES}?{query}", headers={"accept": accept})
    assert response.status_code == 200
    assert response.headers["content-type"] == accept
    return response.text


async def test_lines() -> None:
    async with RestServer.open() as server:
        for n in range(5):
            await server.produce(*(f"{n}.{m}" for m in range(300)))
        lines = (await stream(server, "application/x-ndjson")).splitlines()
        assert [msgspec.json.decode(line)["offset"] for line in lines] == list(range(1500))
        some = await stream(server, "application/x-ndjson", "offset=290&end_offset=310")
        assert [msgspec.json.decode(line)["offset"] for line in some.splitlines()] == list(range(290, 310))
        assert len((await stream(server, "application/x-ndjson", "max_messages=7")).splitlines()) == 7
        assert len((await stream(server, "application/x-ndjson", "max_bytes=10")).splitlines()) == 3
        assert len((await stream(server, "application/x-ndjson", "max_bytes=1")).splitlines()) == 1
        assert await stream(server, "application/x-ndjson", "offset=1500") == ""


async def test_lines_that_follow() -> None:
    async with RestServer.open() as server:
        await server.produce("a")
        accept = {"accept": "application/x-ndjson"}
        visit = Visit(server, MESSAGES, "follow=true", **accept)
        await visit.until(b'"a"')
        await server.produce("b")
        await visit.until(b'"b"')
        visit.hang_up()
        await visit.done
        limited = Visit(server, MESSAGES, "follow=true&timeout=1000", **accept)
        await limited.until(b'"b"')
        await server.clock.advance(900)
        await server.produce("c")
        await limited.until(b'"c"')
        await server.clock.advance(900)
        assert not limited.done.done()
        await server.clock.advance(100)
        await limited.done
        waiting = Visit(server, MESSAGES, "timeout=1000&message_id=latest", **accept)
        await asyncio.sleep(0)
        await server.produce("d", "e")
        await waiting.done
        assert waiting.body.count(b"\n") == 2
        ended = Visit(server, MESSAGES, "follow=true", **accept)
        await ended.until(b'"e"')
        await server.broker.topics.terminate(NAME)
        await ended.done


async def test_server_sent_events_resume() -> None:
    async with RestServer.open() as server:
        ids = await server.produce("a", "b", "c")
        visit = Visit(server, MESSAGES, accept="text/event-stream", last_event_id=ids[0])
        await visit.until(b'"c"')
        events = visit.body.decode().split("\n\n")
        assert events[0] == ":"
        assert [event.split("\n")[0] for event in events[1:3]] == [f"id: {i}" for i in ids[1:]]
        assert '"value":"b"' in events[1].split("\n")[1]
        await server.clock.advance(15_000)
        assert visit.body.endswith(b"\n\n:\n\n")
        await server.produce("d")
        await visit.until(b'"d"')
        server.endpoint.drain()
        await visit.done


async def test_a_slow_client_is_waited_for() -> None:
    async with RestServer.open() as server:
        for n in range(50):
            await server.produce(*(f"{n}.{m}" * 100 for m in range(100)))
        topic = await server.broker.topics.get(NAME)
        reads = 0
        read = topic.read

        async def counted(*args: Any) -> list[Entry]:
            nonlocal reads
            reads += 1
            return await read(*args)

        topic.read = counted  # type: ignore[method-assign]
        visit = Visit(server, MESSAGES, accept="application/x-ndjson")
        visit.taking.clear()
        await settle()
        assert reads <= 1
        visit.taking.set()
        await visit.done
        assert visit.body.count(b"\n") == 5000


async def test_messages_published_alone_share_a_frame() -> None:
    async with RestServer.open() as server:
        for number in range(5):
            await server.produce(str(number))
        await server.produce("a", "b")
        accept = "application/vnd.penstock.entry-runs, application/vnd.penstock.entries"
        response = await server.client.get(f"{MESSAGES}?offset=1", headers={"accept": accept})
        assert response.headers["content-type"] == "application/vnd.penstock.entry-runs"
        run, batch = frames = list(read_frames(BytesIO(response.content).read))
        assert (run.kind, run.offset, run.count, run.entry_id) == (RUN, 1, 4, 1)
        assert (batch.kind, batch.offset, batch.count, batch.entry_id) == (ENTRY, 5, 2, 5)
        (rows,) = decode(Place(TOPIC, 0, 0), frames, 1, 6)
        assert rows["value"].to_pylist() == [b"1", b"2", b"3", b"4", b"a"]
        assert rows["offset"].to_pylist() == [1, 2, 3, 4, 5]


async def test_raw_entries() -> None:
    async with RestServer.open() as server:
        await server.produce("a", "b")
        await server.produce("c")
        await server.produce("d", "e", "f")
        accept = "application/vnd.penstock.entries"

        async def frames(query: str) -> list[tuple[int, int, int, list[bytes]]]:
            response = await server.client.get(f"{MESSAGES}?{query}", headers={"accept": accept})
            assert response.headers["x-penstock-ledger"] == "0"
            assert response.headers["x-penstock-dense"] == "true"
            found, at, body = [], 0, response.content
            while at < len(body):
                offset, count, entry_id, length = struct.unpack_from(">QIQI", body, at)
                at += 24
                entry = Entry(0, entry_id, offset, count, 0, 0, body[at : at + length])
                at += length
                found.append((offset, count, entry_id, [m.payload for m in wire.decode(entry)]))
            return found

        assert await frames("") == [
            (0, 2, 0, [b"a", b"b"]),
            (2, 1, 1, [b"c"]),
            (3, 3, 2, [b"d", b"e", b"f"]),
        ]
        assert [f[0] for f in await frames("offset=1&end_offset=3")] == [0, 2]
        assert [f[0] for f in await frames("offset=4")] == [3]
        assert await frames("offset=6") == []
        assert await frames("offset=2&end_offset=2") == []
