"""Records streamed over version 3 of the REST proxy's API: both directions at once, over real sockets."""

import base64
import json
import socket
import ssl
import subprocess
import time
from base64 import b64decode
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.auth import AUDIENCE, headers_of, issuer, token
from tests.support.tls import Pki

from penstock.protocols.limits import Limits
from penstock.testing.server import Address, Running, launch, running

TOPIC = "persistent://public/default"


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = None if request.param == "memory" else tmp_path_factory.mktemp("data")
    with running(folder, settings={"rest_proxy": {"listen": "127.0.0.1:0"}}) as address:
        yield address


def cluster_of(server: Address, **more: Any) -> str:
    found = httpx.get(f"{server.url}/rest/v3/clusters", trust_env=False, **more).json()
    return str(found["data"][0]["cluster_id"])


def records_path(server: Address, topic: str, **more: Any) -> str:
    return f"/rest/v3/clusters/{cluster_of(server, **more)}/topics/{topic}/records"


def post(server: Address, topic: str, body: bytes | str, **more: Any) -> httpx.Response:
    headers = {"content-type": "application/json", **more.pop("headers", {})}
    url = server.url + records_path(server, topic)
    return httpx.post(url, content=body, headers=headers, trust_env=False, **more)


def results(answer: httpx.Response) -> list[Any]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def produced(server: Address, topic: str, *records: Any) -> list[Any]:
    return results(post(server, topic, "".join(json.dumps(one) for one in records)))


def json_value(data: Any) -> dict[str, Any]:
    return {"value": {"type": "JSON", "data": data}}


class Stream:
    """One request over a socket: chunks out, lines in."""

    def __init__(
        self,
        server: Address,
        topic: str,
        port: int = 0,
        path: str = "",
        head: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        path = path or records_path(server, topic)
        self.socket = socket.create_connection(("127.0.0.1", port or server.port), timeout=20)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="127.0.0.1")
        self.socket.sendall(
            f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n{head}"
            "transfer-encoding: chunked\r\n\r\n".encode()
        )
        self._file = self.socket.makefile("rb")
        self._lines: deque[bytes] = deque()
        self._left = b""
        self.status = 0
        self.ended = False

    def send(self, *records: Any, end: bytes = b"") -> None:
        self.send_bytes(b"".join(json.dumps(one).encode() for one in records) + end)

    def send_bytes(self, part: bytes) -> None:
        self.socket.sendall(b"%x\r\n%b\r\n" % (len(part), part))

    def finish(self) -> None:
        self.socket.sendall(b"0\r\n\r\n")

    def _head(self) -> None:
        self.status = int(self._file.readline().split()[1])
        while self._file.readline() not in (b"\r\n", b""):
            pass

    def read(self) -> Any:
        """The next result; None at the end."""
        if not self.status:
            self._head()
        while not self._lines and not self.ended:
            size = int(self._file.readline() or b"0", 16)
            *lines, self._left = (self._left + self._file.read(size)).split(b"\n")
            self._lines.extend(lines)
            self._file.readline()
            self.ended = not size
        return json.loads(self._lines.popleft()) if self._lines else None

    def rest(self) -> list[Any]:
        return list(iter(self.read, None))

    def close(self) -> None:
        self._file.close()
        self.socket.close()


@contextmanager
def streaming(*args: Any, **more: Any) -> Iterator[Stream]:
    stream = Stream(*args, **more)
    try:
        yield stream
    finally:
        stream.close()


def values(server: Running, topic: str) -> list[Any]:
    """The payloads of a topic, in order, as JSON."""
    found = server.messages(f"{TOPIC}/{topic}", encoding="base64")
    return [json.loads(base64.b64decode(one["value"])) for one in found]


def test_each_record_is_answered_before_the_next_is_sent(server: Running) -> None:
    with streaming(server, "pingpong") as stream:
        for number in range(20):
            stream.send(json_value(number))
            found = stream.read()
            assert (found["error_code"], found["partition_id"], found["offset"]) == (200, 0, number)
        stream.finish()
        assert stream.read() is None
    assert values(server, "pingpong") == list(range(20))


def test_many_records_in_any_pieces_keep_their_order(server: Running) -> None:
    count = 5_000
    body = b"".join(
        json.dumps(json_value({"n": n})).encode() + b" \n"[n % 3 : n % 3 + 1] for n in range(count)
    )
    with streaming(server, "many") as stream:
        at = step = 0
        while at < len(body):
            step = step * 7 % 4_999 + 1
            stream.send_bytes(body[at : at + step])
            at += step
        stream.finish()
        found = stream.rest()
    assert [one["offset"] for one in found] == list(range(count))
    assert [one["n"] for one in values(server, "many")] == list(range(count))


def test_a_record_is_stored_with_all_that_it_says(server: Running) -> None:
    record = {
        "partition_id": 0,
        "key": {"type": "STRING", "data": "k"},
        "value": {"type": "BINARY", "data": "AAEC"},
        "headers": [{"name": "h", "value": base64.b64encode(b"hi").decode()}],
        "timestamp": "2026-02-05T20:14:42.123+01:00",
    }
    (found,) = produced(server, "whole", record)
    assert found == {
        "error_code": 200,
        "cluster_id": cluster_of(server),
        "topic_name": "whole",
        "partition_id": 0,
        "offset": 0,
        "timestamp": "2026-02-05T19:14:42.123Z",
        "key": {"type": "STRING", "size": 1},
        "value": {"type": "BINARY", "size": 3},
    }
    (message,) = server.messages(f"{TOPIC}/whole", encoding="base64")
    assert (message["value"], message["key"], message["properties"]) == ("AAEC", "k", {"h": "hi"})
    assert message["eventTime"] == 1770318882123
    (empty,) = produced(server, "whole", {})
    assert "key" not in empty
    assert "value" not in empty
    assert server.messages(f"{TOPIC}/whole")[1]["value"] is None


def test_what_is_wrong_with_a_record_is_said_in_its_place(server: Running) -> None:
    server.create_topic("wrong", partitions=2)
    good = {"value": {"type": "STRING", "data": "x"}}
    given: list[tuple[Any, int, str]] = [
        ({"value": {"type": "BINARY", "data": "?"}}, 400, "Bad Request: data=? is not a base64 string."),
        ({"value": {"type": "BINARY", "data": 7}}, 400, "Bad Request: data=7 is not a base64 string."),
        ({"value": {"type": "STRING", "data": 7}}, 400, "Bad Request: data=7 is not a string."),
        ({"headers": [{"name": "h", "value": "?"}]}, 400, "Bad Request: data=? is not a base64 string."),
        ({"partition_id": 2}, 40402, "Partition not found."),
        ({"partition_id": -1}, 40402, "Partition not found."),
        ({"partition_id": "1"}, 400, "Bad Request: Error processing JSON: Expected `int | null`, got `str`"),
        ({"timestamp": "2026-02-05"}, 400, "Bad Request: Error processing JSON"),
        ({"timestamp": "1969-02-05T00:00:00Z"}, 400, "Bad Request: Invalid timestamp: -"),
        ({"timestamp": "9999-12-31T23:59:59-01:00"}, 400, "Bad Request: Invalid timestamp: 2534"),
        (
            {"partition": 1},
            400,
            "Bad Request: Error processing JSON: Object contains unknown field `partition`",
        ),
        (
            {"value": {"type": "TEXT", "data": 7}},
            400,
            "Bad Request: Error processing JSON: Invalid enum value 'TEXT'",
        ),
        (
            {"value": {"type": "AVRO", "data": 7}},
            400,
            "Bad Request: Error processing JSON: 'schema_version=latest'",
        ),
        (
            {"value": {"type": "JSON", "schema_id": 1, "data": 7}},
            400,
            "Bad Request: Error processing JSON: 'type=JSON' cannot be used with 'schema_id'.",
        ),
        (
            {"value": {"schema_version": 1, "schema_id": 1, "data": 7}},
            400,
            "Bad Request: Error processing JSON: Only one of 'schema_id', 'schema_version' or 'schema' can be used.",
        ),
        (
            {"value": {"subject": "a", "subject_name_strategy": "TOPIC_NAME", "data": 7}},
            400,
            "Bad Request: Error processing JSON: Only one of 'subject_name_strategy' or 'subject' can be used.",
        ),
        (
            {"value": {"data": 7}},
            422,
            "Error: 42207 : Error serializing message. Error when fetching latest schema",
        ),
        ({"value": {"schema_id": 9999, "data": 7}}, 422, "Error: 42207 : Error serializing message."),
    ]
    found = produced(server, "wrong", *(one for record, *_ in given for one in (record, good)))
    assert [one["error_code"] for one in found[1::2]] == [200] * len(given)
    for (record, code, text), one in zip(given, found[::2], strict=True):
        assert one["error_code"] == code, record
        assert one["message"].startswith(text), one
        assert set(one) == {"error_code", "message"}


@pytest.mark.parametrize("broken", ["xx", "[1]", "{]}", '{"a" 1}', "}"])
def test_what_is_no_json_ends_the_stream(server: Running, broken: str) -> None:
    topic = f"broken-{len(broken)}{ord(broken[0])}"
    good = json.dumps(json_value(1))
    with streaming(server, topic) as stream:
        stream.send_bytes(f"{good}{good}{broken}{good}".encode())
        first, second, last = stream.rest()
        assert (first["offset"], second["offset"]) == (0, 1)
        assert last["error_code"] == 400
        assert last["message"].startswith("Bad Request: Error processing message: ")
    assert values(server, topic) == [1, 1]


def test_half_a_record_at_the_end(server: Running) -> None:
    *stored, last = results(post(server, "half", json.dumps(json_value(1)) + '{"value": {'))
    assert len(stored) == 1
    assert last == {
        "error_code": 400,
        "message": "Bad Request: Error processing message: Unexpected end of the body",
    }


def test_what_fails_before_the_stream_is_a_status(server: Running) -> None:
    def asked(path: str, body: str = "{}", kind: str = "application/json", **more: str) -> tuple[int, Any]:
        answer = httpx.post(
            server.url + path, content=body, headers={"content-type": kind, **more}, trust_env=False
        )
        return answer.status_code, answer.json()

    path = records_path(server, "status")
    empty = {"error_code": 42206, "message": "Payload error. Request body is empty. Data is required."}
    assert asked(path, "") == (422, empty)
    assert asked(path, " \n") == (422, empty)
    unsupported = {"error_code": 415, "message": "HTTP 415 Unsupported Media Type"}
    assert asked(path, kind="text/plain") == (415, unsupported)
    assert asked(path, **{"content-encoding": "gzip"}) == (415, unsupported)
    assert asked(path, kind="application/json; charset=utf-16")[0] == 400
    assert asked(path, **{"accept": "text/html"})[0] == 406
    assert asked("/rest/v3/clusters/none/topics/t/records") == (
        404,
        {"error_code": 404, "message": "Cluster none cannot be found."},
    )
    assert asked(path.replace("status", "a%00b")) == (
        404,
        {"error_code": 40403, "message": "This server does not host this topic-partition."},
    )


def test_charsets(server: Running) -> None:
    body = json.dumps(json_value("é"), ensure_ascii=False)
    latin = {"content-type": "application/json; charset=ISO-8859-1"}
    assert len(results(post(server, "charsets", body.encode("latin-1"), headers=latin))) == 1
    assert len(results(post(server, "charsets", body.encode()))) == 1
    assert values(server, "charsets") == ["é", "é"]


def test_schemas_are_those_of_the_subject(server: Running) -> None:
    flight = {
        "type": "record",
        "name": "Flight",
        "namespace": "air",
        "fields": [{"name": "n", "type": "int"}],
    }
    raw = {"value": {"type": "AVRO", "schema": json.dumps(flight), "data": {"n": 1}}}
    first, newest, by_id, by_version, bad = produced(
        server,
        "flights",
        raw,
        {"value": {"data": {"n": 2}}},
        {"value": {"schema_id": 1, "data": {"n": 3}}},
        {"value": {"schema_version": 1, "data": {"n": 4}}},
        {"value": {"schema_version": 1, "data": {"m": 4}}},
    )
    schema = first["value"]["schema_id"]
    for one in (first, newest, by_version):
        assert one["value"] == {
            "type": "AVRO",
            "subject": "flights-value",
            "schema_id": schema,
            "schema_version": 1,
            "size": 1,
        }
    assert schema == 1 or by_id["error_code"] == 422
    assert (bad["error_code"], bad["message"][:12]) == (400, "Bad Request:")
    read = [one["value"] for one in server.messages(f"{TOPIC}/flights")]
    assert read[0] == {"n": 1}
    record, topic_record, misfit = produced(
        server,
        "flights",
        {"key": {**raw["value"], "subject_name_strategy": "RECORD_NAME"}, "value": {"data": {"n": 1}}},
        {"key": {**raw["value"], "subject_name_strategy": "TOPIC_RECORD_NAME"}, "value": {"data": {"n": 1}}},
        {"value": {"subject_name_strategy": "RECORD_NAME", "data": {"n": 1}}},
    )
    assert (record["key"]["subject"], topic_record["key"]["subject"]) == ("air.Flight", "flights-air.Flight")
    assert record["key"]["size"] == 6
    assert misfit["error_code"] == 400
    produced(server, "trains", {"value": {"type": "AVRO", "schema": '"string"', "data": "x"}})
    produced(server, "trains", {"value": {"subject": "flights-value", "data": {"n": 5}}})
    (_, other) = server.messages(f"{TOPIC}/trains")
    framed = b"\0" + schema.to_bytes(4, "big") + b"\n"  # no version of this topic
    assert (b64decode(other["value"]), other.get("schema_version")) == (framed, None)
    shape = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    proto = 'syntax = "proto3"; message P { int32 x = 1; }'
    js, pb, no, broken = produced(
        server,
        "shapes",
        {"key": {"type": "JSONSCHEMA", "schema": json.dumps(shape), "data": {"x": 1}}},
        {"key": {"type": "PROTOBUF", "subject": "p", "schema": proto, "data": {"x": 1}}},
        {"key": {"type": "JSONSCHEMA", "schema": json.dumps(shape), "data": {"x": "no"}}},
        {"key": {"type": "AVRO", "schema": "{", "data": 1}},
    )
    assert (js["key"]["type"], js["key"]["subject"], js["key"]["size"]) == ("JSONSCHEMA", "shapes-key", 12)
    assert (pb["key"]["type"], pb["key"]["subject"], pb["key"]["size"]) == ("PROTOBUF", "p", 8)
    assert no["error_code"] == 400
    assert (broken["error_code"], broken["message"][:14]) == (422, "Error: 42205 :")


def test_batches(server: Running) -> None:
    path = records_path(server, "batches") + ":batch"

    def asked(body: Any) -> tuple[int, Any]:
        answer = httpx.post(server.url + path, json=body, trust_env=False)
        return answer.status_code, answer.json()

    entries = [{"id": "a", **json_value(1)}, {"id": "b", "partition_id": 5}, {"id": "c"}]
    status, found = asked({"entries": entries})
    assert status == 207
    assert [(one["id"], one["offset"]) for one in found["successes"]] == [("a", 0), ("c", 1)]
    assert "error_code" not in found["successes"][0]
    assert found["failures"] == [{"id": "b", "error_code": 40402, "message": "Partition not found."}]
    for wrong in ([], [{"id": str(n)} for n in range(11)], [{"id": "a"}, {"id": "a"}]):
        status, found = asked({"entries": wrong})
        assert (status, found["error_code"]) == (422, 42208)
    assert asked({"entries": [{"id": ""}]})[0] == 422
    assert asked([])[0] == 422


def test_a_port_of_its_own_has_no_prefix(server: Running) -> None:
    (port,) = server.own_ports
    found = httpx.get(f"http://127.0.0.1:{port}/v3/clusters", trust_env=False).json()
    own = found["data"][0]["metadata"]["self"]
    assert own == f"http://127.0.0.1:{port}/v3/clusters/{cluster_of(server)}"
    path = f"/v3/clusters/{cluster_of(server)}/topics/own/records"
    with streaming(server, "own", port=port, path=path) as stream:
        stream.send(json_value(1))
        assert stream.read()["offset"] == 0


def test_over_tls(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    with pki.server(plain=True) as server:
        port = int(server.https.rpartition(":")[2])
        with streaming(server, "tls", port=port, tls=pki.trust()) as stream:
            for number in range(3):
                stream.send(json_value(number))
                assert stream.read()["offset"] == number
            stream.finish()
            assert stream.read() is None


def test_curl(server: Running) -> None:
    command = ["curl", "-s", "-X", "POST", "-T", ".", "-H", "content-type: application/json", "-N"]
    url = server.url + records_path(server, "curled")
    with subprocess.Popen([*command, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as curl:
        assert curl.stdin is not None
        assert curl.stdout is not None
        for number in range(3):
            curl.stdin.write(json.dumps(json_value(number)).encode() + b"\n")
            curl.stdin.flush()
            assert json.loads(curl.stdout.readline())["offset"] == number
        curl.stdin.close()
        assert curl.stdout.read() == b""


def test_a_client_that_does_not_read_is_not_read(server: Running) -> None:
    """What waits is bounded; once the client reads, every record has its result."""
    with streaming(server, "slow") as stream:
        part = b"".join(json.dumps(json_value("x" * 100)).encode() for _ in range(200))
        stream.socket.setblocking(False)
        sent, stuck = 0, 0
        pending = b""
        while stuck < 20 and sent < 4_000:
            pending = pending or b"%x\r\n%b\r\n" % (len(part), part)
            try:
                pending = pending[stream.socket.send(pending) :]
                sent += not pending
                stuck = 0
            except BlockingIOError:
                stuck += 1
                time.sleep(0.02)  # for the server to take more, if it does
        assert stuck == 20, "the server reads without end"
        stream.socket.setblocking(True)
        stream.socket.settimeout(20)
        for number in range(sent * 200 - 10):
            assert stream.read()["offset"] == number


def test_an_open_stream_does_not_hold_the_server() -> None:
    with ExitStack() as clients:
        with running(drain_ms=30_000) as server:
            stream, half, silent = (clients.enter_context(streaming(server, "open")) for _ in range(3))
            stream.send(json_value(1))
            half.send_bytes(json.dumps(json_value(2)).encode() + b'{"value"')
            assert {stream.read()["offset"], half.read()["offset"]} == {0, 1}
            began = time.monotonic()
        assert time.monotonic() - began < 5
        assert stream.read() is None
        assert half.read() is not None
        assert half.read() is None
        assert silent.socket.recv(1 << 16).startswith(b"HTTP/1.1 503 ")


def test_a_stream_lasts_longer_than_a_body_may_take() -> None:
    with running(limits=Limits(body_ms=100)) as server, streaming(server, "lasting") as stream:
        for number in range(3):
            stream.send(json_value(number))
            assert stream.read()["offset"] == number
            time.sleep(0.3)  # silence, in which another request would be refused
        stream.finish()
        assert stream.read() is None


def test_a_stream_ends_after_a_day(tmp_path: Path) -> None:
    with running() as server, streaming(server, "day") as stream:
        stream.send(json_value(1))
        assert stream.read()["offset"] == 0
        server.advance(24 * 3_600_000)
        last = stream.read()
        assert last["error_code"] == 408
        assert last["message"].startswith("Streaming connection open for longer than allowed")
        assert stream.read() is None


def test_rights_are_looked_at_as_long_as_it_lasts() -> None:
    with running(auth=issuer.settings(audience=AUDIENCE, super_users=("root",))) as server:
        root = headers_of(token("root"))
        grants = f"{server.url}/admin/v2/persistent/public/default/secured/permissions/me"
        with httpx.Client(headers=root, trust_env=False) as admin:
            admin.put(f"{server.url}/admin/v2/persistent/public/default/secured")
            admin.post(grants, json=["consume"])
            path = records_path(server, "secured", headers=root)
            mine = headers_of(token("me"))
            refused = httpx.post(
                server.url + path,
                content="{}",
                headers={**mine, "content-type": "application/json"},
                trust_env=False,
            )
            assert (refused.status_code, refused.json()["error_code"]) == (403, 40301)
            admin.post(grants, json=["produce"])
            head = f"authorization: {mine['Authorization']}\r\n"
            with streaming(server, "secured", path=path, head=head) as stream:
                stream.send(json_value(1))
                assert stream.read()["offset"] == 0
                admin.delete(grants)
                last = stream.read()
                assert last["error_code"] == 403
                assert stream.read() is None
        assert httpx.post(server.url + path, content="{}", trust_env=False).status_code == 401


def test_subjects_of_other_topics_need_rights_of_theirs() -> None:
    """`me` administers one topic, and may only know the other."""
    avro = {"type": "AVRO", "schema": '"string"', "data": "x"}
    with running(auth=issuer.settings(audience=AUDIENCE, super_users=("root",))) as server:
        root = headers_of(token("root"))
        with httpx.Client(base_url=server.url, headers=root, trust_env=False) as admin:
            for topic, actions in (("mine", ["produce", "admin"]), ("known", ["consume"]), ("hidden", [])):
                path = f"/admin/v2/persistent/public/default/{topic}"
                admin.put(path)
                admin.post(f"{path}/permissions/me", json=actions)
                schema = {"schema": '"int"'}
                found = admin.post(f"/registry/subjects/{topic}-value/versions", json=schema)
                assert found.status_code == 200, found.text
            number = found.json()["id"]
            path = records_path(server, "mine", headers=root)
            given = [
                ({"subject": "known-value", **avro}, 40301),
                ({"subject": "hidden-value", **avro}, 40301),
                ({"subject": "hidden-value", "schema_id": number, "data": 1}, 40301),
                ({"subject": "hidden-value", "schema_version": 1, "data": 1}, 40301),
                ({"subject": "hidden-value", "data": 1}, 40301),
                (
                    {
                        "type": "JSONSCHEMA",
                        "schema": '{"title": "hidden-value"}',
                        "subject_name_strategy": "RECORD_NAME",
                        "data": 1,
                    },
                    40301,
                ),
                ({"subject": "known-value", "data": 1}, 200),
                ({"subject": "mine-value", "schema_id": number, "data": 1}, 200),
                ({"subject": "of-no-topic", **avro}, 200),
            ]
            answer = httpx.post(
                server.url + path,
                content="".join(json.dumps({"value": one}) for one, _ in given),
                headers={**headers_of(token("me")), "content-type": "application/json"},
                trust_env=False,
            )
            for (one, code), found in zip(given, results(answer), strict=True):
                assert found["error_code"] == code, (one, found)
            assert admin.get("/registry/subjects/hidden-value/versions").json() == [1]
            assert admin.get("/registry/subjects/known-value/versions").json() == [1]


def test_each_record_counts_in_the_rate_of_its_caller() -> None:
    with (
        running(limits=Limits(max_requests_per_s=20)) as server,
        streaming(server, "rated", path=records_path(server, "rated")) as stream,
    ):
        for number in range(35):
            stream.send(json_value(number))
        began = time.monotonic()
        assert [stream.read()["offset"] for _ in range(35)] == list(range(35))
        assert time.monotonic() - began > 0.4


def test_through_a_worker(tmp_path: Path) -> None:
    with launch(tmp_path, "--workers", "2") as server, streaming(server, "worked") as stream:
        for number in range(3):
            stream.send(json_value(number))
            assert stream.read()["offset"] == number
        began = time.monotonic()
        assert server.terminate() == 0
        assert time.monotonic() - began < 15
        assert stream.read() is None
