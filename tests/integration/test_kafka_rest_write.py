"""Posting: every kind of body, all of it or nothing."""

import asyncio
import gzip
import hashlib
import json
import zlib
from base64 import b64encode

import pytest
from tests.support.kafka_rest import FOO, LOG, KafkaRestServer, consumed, framed

from penstock.broker.settings import BrokerSettings
from penstock.model.message import Message
from penstock.model.policy import NamespacePolicies
from penstock.model.schema import STRING_SCHEMA
from penstock.protocols.limits import Limits
from penstock.wire import entry as wire


async def stored(server: KafkaRestServer) -> list[Message]:
    topic = await server.log()
    return [m for entry in await topic.read(0, 10_000) for m in wire.decode(entry)]


async def payloads(server: KafkaRestServer) -> list[bytes]:
    return [message.payload for message in await stored(server)]


@pytest.mark.parametrize(
    ("type", "body", "messages"),
    [
        ("text/plain", b"this is message 1", [b"this is message 1"]),
        ("text/plain; charset=utf-8", "zwölf\n".encode(), ["zwölf\n".encode()]),
        ("text/plain; charset=ISO-8859-1", "zwölf".encode("latin-1"), ["zwölf".encode()]),
        ('text/plain;charset="utf-16"', "zwölf".encode("utf-16"), ["zwölf".encode()]),
        ("text/plain", b"", [b""]),
        ("application/octet-stream", b"\0\xff", [b"\0\xff"]),
        (None, b"\0\xff", [b"\0\xff"]),
        ("application/x-kafka", framed(b"a", b"", b"\xff"), [b"a", b"", b"\xff"]),
        ("application/json", b'["a","\\u00f6"]', [b"a", "ö".encode()]),
        ("application/json", b'[{"x": 1}, 2,null, [3 ]]', [b'{"x": 1}', b"2", b"null", b"[3 ]"]),
        ("application/json", b' {"x": 1}\n', [b'{"x": 1}']),
        ("application/json", b'"a"', [b"a"]),
        ("text/json; charset=iso-8859-1", '["ö"]'.encode("latin-1"), ["ö".encode()]),
        ("application/x-ndjson", b'"a"\r\n\n{"x": 1}\n[1]\n', [b"a", b'{"x": 1}', b"[1]"]),
    ],
)
async def test_bodies(type: str | None, body: bytes, messages: list[bytes]) -> None:
    async with KafkaRestServer.open() as server:
        response = await server.post(body, type)
        assert await payloads(server) == messages
        size = len(framed(*messages))
        assert response.headers["content-range"] == f"bytes 0-{size - 1}/{size}"
        assert (await server.get("0-")).content == framed(*messages)
        assert response.content == b""


@pytest.mark.parametrize(
    ("type", "body", "status", "code"),
    [
        ("application/x-www-form-urlencoded", b"a", 415, 41501),
        ("image/png", b"a", 415, 41501),
        ("nonsense", b"a", 415, 41501),
        ("text/plain; charset=klingon", b"a", 415, 41501),
        ("text/plain; charset=rot13", b"a", 415, 41501),
        ("text/plain; charset=utf-8", b"\xff", 422, 42205),
        ("text/plain; charset=us-ascii", b"\xff", 422, 42205),
        ("application/json", b"", 422, 42205),
        ("application/json", b"{", 422, 42205),
        ("application/json", b'["a",]', 422, 42205),
        ("application/json", b'["\xff"]', 422, 42205),
        ("application/json", b'["\\ud800"]', 422, 42205),
        ("application/json", b"[" * 100_000, 422, 42205),
        ("application/json", b"[" + b"[" * 50_000 + b"]" * 50_000 + b"]", 422, 42205),
        ("application/json", b"[]", 422, 42205),
        ("application/x-ndjson", b'"a"\n"b', 422, 42205),
        ("application/x-ndjson", b"\n\n", 422, 42205),
        ("application/x-kafka", b"", 422, 42205),
        ("application/x-kafka", framed(b"a", b"b")[:-1], 422, 42205),
        ("application/x-kafka", framed(b"a") + b"\0\0\0\7\1\0\0\0\0\0b", 400, 40002),
        ("multipart/mixed", b"--b\r\n\r\na\r\n--b--", 422, 42205),
        ("multipart/mixed; boundary=b", b"--b\r\n\r\na\r\n--b", 422, 42205),
        (
            "multipart/mixed; boundary=b",
            b"--b\r\nContent-Type: multipart/mixed\r\n\r\na\r\n--b--",
            415,
            41501,
        ),
    ],
)
async def test_bad_bodies_change_nothing(type: str, body: bytes, status: int, code: int) -> None:
    async with KafkaRestServer.open() as server:
        response = await server.post(body, type, status=status)
        assert response.json()["error_code"] == code
        assert response.json()["message"]
        assert server.broker.topics.names(FOO.namespace_name) == []


async def test_gzip_and_digests() -> None:
    async with KafkaRestServer.open() as server:
        body = gzip.compress(framed(b"a", b"b"))
        md5 = hashlib.md5(body).digest()
        for header in (md5.hex(), b64encode(md5).decode()):
            await server.post(body, "application/x-kafka", content_encoding="gzip", content_md5=header)
        assert await payloads(server) == [b"a", b"b"] * 2
        wrong = hashlib.md5(framed(b"a", b"b")).hexdigest()  # of what it was before it was packed
        response = await server.post(
            body, "application/x-kafka", content_encoding="gzip", content_md5=wrong, status=400
        )
        assert response.json()["error_code"] == 40002
        await server.post(body, "application/x-kafka", content_md5="what", status=400)
        await server.post(body[:-1], "application/x-kafka", content_encoding="gzip", status=422)
        await server.post(b"x", content_encoding="br", status=415)
        await server.post(b"x", content_encoding="gzip, gzip", status=415)
        await server.post(b"x", content_transfer_encoding="base64", status=415)
        await server.post(b"x", content_encoding="identity")
        await server.post(zlib.compress(b"x"), content_encoding="deflate")


async def test_bombs_are_too_large() -> None:
    async with KafkaRestServer.open(
        limits=Limits(max_request_bytes=100_000, max_read_bytes=1_000_000)
    ) as server:
        response = await server.post(gzip.compress(bytes(50_000_000)), content_encoding="gzip", status=413)
        assert response.json()["error_code"] == 41301
        await server.post(bytes(100_001), "application/octet-stream", status=413)
        part = b"--b\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"ab" * 15_000) + b"\r\n"
        await server.post(part * 30 + b"--b--", "multipart/mixed; boundary=b")
        await server.post(part * 40 + b"--b--", "multipart/mixed; boundary=b", status=413)
        await server.post(framed(b"") * 10_001, "application/x-kafka", status=413)
        await server.post(b"1\n" * 10_001, "application/x-ndjson", status=413)
        assert len(await stored(server)) == 30


async def test_the_rate_of_a_role_counts_what_a_body_unfolds_to() -> None:
    async with KafkaRestServer.open(limits=Limits(max_bytes_per_s=20_000)) as server:
        await server.post(gzip.compress(b"ab" * 20_000), content_encoding="gzip")
        refused = await server.post(b"x", status=429)
        assert "max_bytes_per_s" in refused.json()["message"]


async def test_one_message_that_is_too_large_refuses_all() -> None:
    async with KafkaRestServer.open(BrokerSettings(max_message_bytes=10)) as server:
        response = await server.post(framed(b"a", b"b" * 11), "application/x-kafka", status=413)
        assert response.json()["error_code"] == 41301
        assert server.broker.topics.names(FOO.namespace_name) == []


def parts(*bodies: bytes, headers: bytes = b"") -> bytes:
    return b"".join(b"--b\r\n" + headers + b"\r\n" + body + b"\r\n" for body in bodies) + b"--b--\r\n"


async def test_all_parts_or_none() -> None:
    async with KafkaRestServer.open() as server:
        await server.post(b"zero")
        md5 = hashlib.md5(b"one").hexdigest().encode()
        bad = parts(b"one")[:-7] + b"--b\r\nContent-MD5: " + md5 + b"\r\n\r\ntwo\r\n--b--"
        await server.post(bad, "multipart/mixed; boundary=b", status=400)
        assert await payloads(server) == [b"zero"]
        appends = 0
        append = server.broker.store.append

        def counted(*given: object) -> object:
            nonlocal appends
            appends += 1
            return append(*given)  # type: ignore[arg-type]

        server.broker.store.append = counted  # type: ignore[method-assign,assignment]
        many = parts(*(bytes(1000) for _ in range(3000)))
        response = await server.post(many, "multipart/mixed; boundary=b")
        assert appends == 1  # several entries, one append
        assert (await server.log()).next_entry > 2
        assert consumed(response) == (14, 14 + 3000 * 1010 - 1, 14 + 3000 * 1010)


async def test_parts_of_several_kinds() -> None:
    async with KafkaRestServer.open() as server:
        packed = gzip.compress(framed(b"3", b"4"))
        body = (
            b"--b\r\n\r\n1\r\n"
            b'--b\r\nContent-Type: application/json\r\n\r\n["2"]\r\n'
            b"--b\r\nContent-Type: application/x-kafka\r\nContent-Encoding: gzip\r\n"
            b"Content-MD5: " + hashlib.md5(packed).hexdigest().encode() + b"\r\n\r\n" + packed + b"\r\n"
            b"--b\r\nX-Kafka-Key: own\r\n\r\n5\r\n--b--"
        )
        await server.post(body, 'multipart/mixed; boundary="b"', x_kafka_key="all")
        assert [(m.payload, m.key) for m in await stored(server)] == [
            (b"1", "all"), (b"2", "all"), (b"3", "all"), (b"4", "all"), (b"5", "own"),
        ]  # fmt: skip


async def test_a_key() -> None:
    async with KafkaRestServer.open() as server:
        await server.broker.topics.create(FOO, 3)
        sent = {"content-type": "text/plain", b"x-kafka-key": "schlüssel".encode()}
        for partition in range(3):  # the path says where, whatever the key would
            response = await server.client.post(f"/kafka/topics/foo/{partition}", content=b"a", headers=sent)  # type: ignore[arg-type]
            assert response.status_code == 204
            topic = await server.broker.topics.get(FOO.of_partition(partition))
            (entry,) = await topic.read(0, 10)
            assert wire.decode(entry)[0].key == "schlüssel"
        bad = {"content-type": "text/plain", b"x-kafka-key": b"\xff"}
        assert (await server.client.post(LOG, content=b"a", headers=bad)).status_code == 422  # type: ignore[arg-type]


async def test_topics_are_made_as_configured() -> None:
    async with KafkaRestServer.open(BrokerSettings(auto_create_topics=False)) as server:
        assert (await server.post(b"a", status=404)).json()["error_code"] == 40401
    async with KafkaRestServer.open(BrokerSettings(auto_create_partitions=2)) as server:
        assert (await server.post(b"a", path="/kafka/topics/foo/2", status=404)).json()["error_code"] == 40402
        assert server.broker.topics.names(FOO.namespace_name) == []
        await server.post(b"a", path="/kafka/topics/foo/1")
        assert server.broker.topics.partitions(FOO) == 2
        assert (await server.post(b"a", path="/kafka/topics/foo/2", status=404)).json()["error_code"] == 40402
    async with KafkaRestServer.open() as server:
        await server.post(b"a", path="/kafka/topics/foo/1", status=404)
        await server.post(b"a", path="/kafka/topics/foo-partition-0/0", status=404)


async def test_where_schemas_are_demanded() -> None:
    async with KafkaRestServer.open() as server:
        await server.broker.schemas.get_or_create(FOO, STRING_SCHEMA)
        await server.broker.namespaces.update(
            FOO.namespace_name, NamespacePolicies(schema_validation_enforced=True)
        )
        await server.post(b"a", status=409)


async def test_a_terminated_topic_and_a_draining_server() -> None:
    async with KafkaRestServer.open() as server:
        await server.post(b"a")
        await server.broker.topics.terminate(FOO)
        await server.post(b"b", status=503)
        server.endpoint._context.draining = True
        response = await server.post(b"b", status=503)
        assert (response.json()["error_code"], response.headers["retry-after"]) == (50301, "1")


async def test_many_at_once_are_told_where_each_lies() -> None:
    async with KafkaRestServer.open() as server:
        bodies = [b"%d" % n * (n % 7 + 1) for n in range(100)]
        answers = await asyncio.gather(*(server.post(body) for body in bodies))
        for body, answer in zip(bodies, answers, strict=True):
            first, last, _ = consumed(answer)
            assert (await server.get(f"{first}-{last}")).content == framed(body)


async def test_what_was_written_comes_back_in_every_form() -> None:
    async with KafkaRestServer.open() as server:
        texts = ["a", "zwölf", '"', "€"]
        await server.post(json.dumps(texts).encode(), "application/json")
        for kind in ("application/json", "text/json"):
            again = await server.get("0-", accept=kind)
            assert again.json() == texts
        lines = await server.get("0-", accept="text/plain", accept_charset="iso-8859-1")
        assert lines.headers["content-type"] == "text/plain; charset=iso-8859-1"
        assert lines.content.decode("latin-1") == 'a\nzwölf\n"\n?\n'
        await server.post((await server.get("0-")).content, "application/x-kafka")
        assert await payloads(server) == [t.encode() for t in texts] * 2
