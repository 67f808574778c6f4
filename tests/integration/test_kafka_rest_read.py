"""Reading partitions as byte ranges: what the proposal promises, and what HTTP does (RFC 9110)."""

import asyncio
import email
import gzip
import hashlib
from base64 import b64encode
from email.message import Message

import pytest
from tests.support.kafka_rest import FOO, LOG, X_KAFKA, KafkaRestServer, consumed, framed

from penstock.broker.settings import BrokerSettings
from penstock.model.names import TopicName
from penstock.protocols.limits import Limits
from penstock.runtime.tasks import Tasks
from penstock.server.dispatch import AsgiExchange
from penstock.testing.clock import settle


async def test_a_range_is_the_whole_messages_that_begin_in_it() -> None:
    async with KafkaRestServer.open() as server:
        await server.publish(b"a" * 10, b"b" * 10, b"c" * 10)  # at 0, 20, 40; 60 bytes
        for asked, start, end in (
            ("0-59", 0, 60), ("0-0", 0, 20), ("0-20", 0, 40), ("1-20", 20, 40), ("20-39", 20, 40), ("1-19", 20, 40),
            ("20-", 20, 60), ("21-", 40, 60), ("-1", 40, 60), ("-20", 40, 60), ("-21", 40, 60), ("-40", 20, 60),
            ("-999", 0, 60), ("0-999999999999999999999999", 0, 60),
        ):  # fmt: skip
            response = await server.get(asked)
            assert consumed(response) == (start, end - 1, 60), asked
            assert response.content == framed(b"a" * 10, b"b" * 10, b"c" * 10)[start:end]
            assert response.headers["content-type"] == "application/x-kafka"
            assert response.headers["accept-ranges"] == "bytes"


@pytest.mark.parametrize("asked", ["60-", "60-70", "41-", "41-59", "-0", "99999999999999999999-"])
async def test_past_the_end_is_416_with_the_size(asked: str) -> None:
    async with KafkaRestServer.open() as server:
        await server.publish(b"a" * 10, b"b" * 10, b"c" * 10)
        response = await server.get(asked, status=416)
        assert response.headers["content-range"] == "bytes */60"
        assert response.json()["error_code"] == 41601


async def test_an_empty_log() -> None:
    async with KafkaRestServer.open() as server:
        await server.broker.topics.create(FOO, 0)
        assert (await server.get("0-", status=416)).headers["content-range"] == "bytes */0"
        assert (await server.get("-5", status=416)).headers["content-range"] == "bytes */0"
        response = await server.get(status=200)
        assert (response.content, response.headers["content-range"]) == (b"", "bytes */0")


async def test_without_a_range_it_is_the_log_from_its_start() -> None:
    async with KafkaRestServer.open(limits=Limits(max_read_bytes=100)) as server:
        await server.publish(*(b"%09d" % n for n in range(10)))
        response = await server.get(status=200)
        assert consumed(response) == (0, 113, 190)  # six messages begin within 100 bytes
        assert response.headers["cache-control"] == "private, no-cache"
        assert len((await server.get("0-189")).content) == 114
        for ignored in ("5-4", "x-", "1-2;3-4"):
            assert (await server.get(ignored, status=200)).content == response.content


async def test_a_message_larger_than_the_bound_comes_whole() -> None:
    async with KafkaRestServer.open(limits=Limits(max_read_bytes=10)) as server:
        await server.publish(b"a" * 1000, b"b" * 1000)
        assert consumed(await server.get("0-")) == (0, 1009, 2020)


async def test_several_ranges_are_multipart() -> None:
    async with KafkaRestServer.open() as server:
        await server.publish(b"a" * 10, b"b" * 10, b"c" * 10)
        response = await server.get("0-0, 60-, 25-40, -1, 0-5", accept="text/plain")
        message: Message = email.message_from_bytes(
            b"Content-Type: " + response.headers["content-type"].encode() + b"\r\n\r\n" + response.content
        )
        parts = message.get_payload()
        assert isinstance(parts, list)
        assert [(p["content-range"], p["content-type"], p.get_payload()) for p in parts] == [
            ("bytes 0-19/60", "text/plain; charset=utf-8", "aaaaaaaaaa\n"),
            ("bytes 40-59/60", "text/plain; charset=utf-8", "cccccccccc\n"),
        ]
        assert response.headers["content-type"].startswith("multipart/byteranges; boundary=")
        assert "content-range" not in response.headers
        _check_digest(response.content, response.headers["content-md5"])
        assert consumed(await server.get("60-, 0-0")) == (0, 19, 60)
        assert (await server.get("60-, 70-80", status=416)).headers["content-range"] == "bytes */60"
        again = await server.get(
            "0-0,20-20", if_none_match=(await server.get("0-0,20-20")).headers["etag"], status=304
        )
        assert again.content == b""


async def test_many_large_ranges_stay_within_the_bound() -> None:
    async with KafkaRestServer.open(limits=Limits(max_read_bytes=100)) as server:
        await server.publish(*(b"%090d" % n for n in range(10)))
        response = await server.get(",".join(f"{n}00-{n}99" for n in range(10)))
        assert response.content.count(b"Content-Range") <= 2


async def test_digest_gzip_and_their_headers() -> None:
    async with KafkaRestServer.open() as server:
        await server.publish(*(b"line %d" % n for n in range(100)))
        whole = (await server.get("0-")).content
        sent = dict(X_KAFKA, range="bytes=0-", **{"accept-encoding": "gzip"})
        async with server.client.stream("GET", LOG, headers=sent) as response:
            raw = b"".join([part async for part in response.aiter_raw()])
        assert response.headers["content-encoding"] == "gzip"
        assert int(response.headers["content-length"]) == len(raw) < len(whole)
        assert gzip.decompress(raw) == whole
        _check_digest(raw, response.headers["content-md5"])  # RFC 2616 14.15: of what is sent
        assert response.headers["vary"] == "Accept, Accept-Charset, Accept-Encoding"


def _check_digest(body: bytes, header: str) -> None:
    assert header == b64encode(hashlib.md5(body).digest()).decode()


@pytest.mark.parametrize("asked", ["0-19", "-5", None])
@pytest.mark.parametrize("accept", ["application/x-kafka", "text/plain", "application/json"])
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_head_answers_what_get_would(asked: str | None, accept: str, encoding: str) -> None:
    async with KafkaRestServer.open() as server:
        await server.publish(b"a" * 100, b"b")
        sent = {"accept": accept, "accept-encoding": encoding} | (
            {"range": f"bytes={asked}"} if asked else {}
        )
        get = await server.client.get(LOG, headers=sent)
        head = await server.client.head(LOG, headers=sent)
        assert head.status_code == get.status_code
        assert dict(head.headers) == dict(get.headers)
        assert head.content == b""


async def test_tags_and_caching() -> None:
    async with KafkaRestServer.open() as server:
        await server.publish(b"a" * 10, b"b" * 10)
        first = await server.get("0-19")
        assert first.headers["cache-control"] == "private, max-age=3600, immutable"
        assert (await server.get("0-")).headers["cache-control"] == "private, no-cache"
        assert (await server.get("0-99")).headers["cache-control"] == "private, no-cache"
        tag = first.headers["etag"]
        await server.publish(b"c")
        same = await server.get("0-19", if_none_match=f'"x", W/{tag}', status=304)
        assert same.headers["etag"] == tag
        assert "content-length" not in same.headers
        assert (await server.get("0-19", if_none_match='"x"')).content == first.content
        await server.get("0-19", if_none_match="*", status=304)
        other = await server.get("20-39")
        text = await server.get("0-19", accept="text/plain")
        packed = await server.get("0-19", accept_encoding="gzip")
        assert len({tag, *(r.headers["etag"] for r in (other, text, packed))}) == 4
        assert (await server.get("0-19", if_range=tag)).content == first.content
        assert consumed(await server.get("0-19", if_range='"x"', status=200)) == (0, 50, 51)


async def test_a_topic_made_anew_has_other_tags() -> None:
    async with KafkaRestServer.open() as server:
        await server.publish(b"a")
        tag = (await server.get("0-0")).headers["etag"]
        await server.broker.administration.delete_topic(FOO)
        await server.get("0-0", status=404)
        await server.publish(b"b")
        response = await server.get("0-0", if_none_match=tag)
        assert (response.content, consumed(response)) == (framed(b"b"), (0, 10, 11))


async def test_what_cannot_be_had() -> None:
    async with KafkaRestServer.open() as server:
        await server.publish(b"a")
        assert (await server.get("0-", accept="image/png", status=406)).json()["error_code"] == 40601
        await server.get("0-", accept="text/plain", accept_charset="klingon", status=406)
        assert (await server.get(path="/kafka/topics/bar/0", status=404)).json()["error_code"] == 40401
        assert (await server.get(path="/kafka/topics/foo/1", status=404)).json()["error_code"] == 40402
        assert (await server.get(path="/kafka/topics/foo/x", status=404)).json()["error_code"] == 40402
        assert (await server.get(path="/kafka/nothing", status=404)).json()["error_code"] == 40400
        await server.get(path="/kafka/topics/%FF/0", status=412)
        response = await server.client.delete(LOG)
        assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD, POST")
        assert server.broker.topics.names(FOO.namespace_name) == [FOO]


# -- waiting


async def test_waiting_for_the_first_new_byte() -> None:
    async with KafkaRestServer.open() as server:
        await server.publish(b"a")
        tasks = Tasks()
        asked = tasks.spawn(server.get("11-", prefer="wait=10"), "get")
        await settle(50)
        assert not asked.done()
        await server.clock.advance(9_999)
        assert not asked.done()
        await server.publish(b"bc")
        await settle(50)
        response = asked.result()
        assert response.content == framed(b"bc")
        assert response.headers["preference-applied"] == "wait=10"


async def test_waiting_in_vain() -> None:
    async with KafkaRestServer.open(limits=Limits(max_wait_ms=20_000)) as server:
        await server.publish(b"a")
        tasks = Tasks()
        asked = tasks.spawn(server.get("11-", prefer="wait=60", status=416), "get")
        await settle(50)
        await server.clock.advance(19_999)
        assert not asked.done()
        await server.clock.advance(1)
        await settle(50)
        response = asked.result()
        assert response.headers["content-range"] == "bytes */11"
        assert response.headers["preference-applied"] == "wait=20"


async def test_waiting_for_a_range_that_is_further_on() -> None:
    async with KafkaRestServer.open() as server:
        await server.publish(b"a")
        asked = Tasks().spawn(server.get("25-30", prefer="wait=10"), "get")
        await settle(50)
        await server.publish(b"b")
        await settle(50)
        assert not asked.done()
        await server.publish(b"c")
        await server.publish(b"d")
        await settle(50)
        assert consumed(asked.result())[0] == 33


async def test_waiting_ends_when_the_client_hangs_up() -> None:
    async with KafkaRestServer.open() as server:
        await server.publish(b"a")
        hung_up = asyncio.Event()
        sent: list[object] = []

        async def receive() -> dict[str, object]:
            await hung_up.wait()
            return {"type": "http.disconnect"}

        async def send(message: object) -> None:
            sent.append(message)

        headers = [(b"range", b"bytes=11-"), (b"prefer", b"wait=300")]
        scope = {"type": "http", "method": "GET", "path": LOG, "headers": headers}
        asked = Tasks().spawn(server.endpoint(AsgiExchange(scope, receive, send)), "get")  # type: ignore[arg-type]
        await settle(50)
        assert not asked.done()
        hung_up.set()
        await settle(50)
        assert asked.done()
        assert len(server.endpoint._waits.tasks) == 0


async def test_waiting_ends_when_the_server_drains_or_the_topic_ends() -> None:
    async with KafkaRestServer.open() as server:
        await server.publish(b"a")
        asked = Tasks().spawn(server.get("11-", prefer="wait=300", status=416), "get")
        await settle(50)
        await server.broker.topics.terminate(FOO)
        await settle(50)
        assert asked.done()
        asked = Tasks().spawn(server.get("11-", prefer="wait=300", status=[416, 503]), "get")
        await settle(50)
        server.endpoint.drain()
        await settle(50)
        assert asked.done()


async def test_a_thousand_who_wait_cost_nothing_until_they_are_woken() -> None:
    async with KafkaRestServer.open() as server:
        await server.publish(b"a")
        tasks = Tasks()
        asked = [tasks.spawn(server.get("11-", prefer="wait=100"), "get") for _ in range(1000)]
        await settle(100)
        ran = 0
        read = server.broker.store.read

        def counted(*given: object) -> object:
            nonlocal ran
            ran += 1
            return read(*given)  # type: ignore[arg-type]

        server.broker.store.read = counted  # type: ignore[method-assign,assignment]
        await server.clock.advance(99_000)
        assert ran == 0
        await server.publish(b"b")
        await asyncio.gather(*asked)
        assert ran == 0  # from memory


# -- the tree of resources


async def test_lists() -> None:
    async with KafkaRestServer.open(BrokerSettings(auto_create_namespaces=True)) as server:
        await server.broker.topics.create(TopicName.parse("b&r"), 3)
        await server.broker.topics.create(TopicName.parse("other/space/t"), 0)
        await server.broker.topics.create(TopicName.parse("non-persistent://public/default/n"), 0)
        await server.publish(b"a")
        assert (await server.client.get("/kafka/topics")).json() == ["b&r", "foo"]
        assert (await server.client.get("/kafka/topics/b%26r/")).json() == {
            "topic": "b&r",
            "partitions": [{"partition": n, "href": f"/kafka/topics/b%26r/{n}"} for n in range(3)],
        }
        assert (await server.client.get("/kafka")).json()["topics"] == "/kafka/topics"
        browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
        page = await server.client.get("/kafka/", headers={"accept": browser})
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "b&amp;r" in page.text
        assert 'href="/kafka/topics/b%26r/2"' in page.text
        assert (await server.client.head("/kafka", headers={"accept": browser})).content == b""
        assert (await server.client.get("/kafka/topics/none")).json()["error_code"] == 40401
        assert (await server.client.post("/kafka/topics")).status_code == 405
        assert (await server.client.get(LOG, headers={"accept": browser})).text == "a\n"


async def test_a_partitioned_topic() -> None:
    async with KafkaRestServer.open() as server:
        await server.broker.topics.create(FOO, 2)
        for partition in (0, 1):
            await server.post(b"for %d" % partition, path=f"/kafka/topics/foo/{partition}")
        assert (await server.get("0-", path="/kafka/topics/foo/1")).content == framed(b"for 1")
        assert (await server.get("0-", path="/kafka/topics/foo-partition-1/0")).content == framed(b"for 1")
        await server.broker.topics.set_partitions(FOO, 3)
        assert (await server.get("0-", path="/kafka/topics/foo/1")).content == framed(b"for 1")
        await server.get("0-", path="/kafka/topics/foo/2", status=416)


async def test_topics_are_not_made_by_reading() -> None:
    async with KafkaRestServer.open(BrokerSettings(auto_create_topics=True)) as server:
        await server.get(status=404)
        assert server.broker.topics.names(FOO.namespace_name) == []
