"""A server that speaks just enough for the data source, and a maker of entries by protobuf's own encoder."""

import json
import re
import ssl
import struct
import threading
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import cramjam
import google_crc32c

from penstock.wire import pulsar_pb2 as pb

TIME = 1_700_000_000_000


def pack(metadata: Any, payload: bytes) -> bytes:
    """An entry's bytes."""
    raw = metadata.SerializeToString()
    body = struct.pack(">I", len(raw)) + raw + payload
    return struct.pack(">HI", 0x0E01, google_crc32c.value(body)) + body


def compress(codec: int, data: bytes) -> bytes:
    match codec:
        case 1:
            return bytes(cramjam.lz4.compress_block(data, store_size=False))
        case 2:
            return bytes(cramjam.zlib.compress(data))
        case 3:
            return bytes(cramjam.zstd.compress(data))
        case 4:
            return bytes(cramjam.snappy.compress_raw(data))
    return data


def batch(messages: list[dict[str, Any]], codec: int = 0, **metadata: Any) -> bytes:
    """A batch entry; a message is the fields of SingleMessageMetadata and `payload`."""
    parts = []
    for message in messages:
        own = dict(message)
        payload = own.pop("payload", b"")
        properties = own.pop("properties", {})
        single = pb.SingleMessageMetadata(payload_size=len(payload), **own)
        for key, value in properties.items():
            single.properties.add(key=key, value=value)
        raw = single.SerializeToString()
        parts += [struct.pack(">I", len(raw)), raw, payload]
    joined = b"".join(parts)
    fields = {"producer_name": "p", "sequence_id": 0, "publish_time": TIME} | metadata
    head = pb.MessageMetadata(
        num_messages_in_batch=len(messages), compression=codec, uncompressed_size=len(joined), **fields
    )
    return pack(head, compress(codec, joined))


def lone(payload: bytes, codec: int = 0, properties: dict[str, str] | None = None, **metadata: Any) -> bytes:
    """An entry of one message that was sent alone."""
    fields = {"producer_name": "p", "sequence_id": 0, "publish_time": TIME} | metadata
    head = pb.MessageMetadata(**fields)
    if codec:
        head.compression, head.uncompressed_size = codec, len(payload)
    for key, value in (properties or {}).items():
        head.properties.add(key=key, value=value)
    return pack(head, compress(codec, payload))


class FakeServer:
    """Topics of `public/default` on a free port; `cut_after` breaks the next data stream after so many bytes."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.logs: dict[str, list[list[tuple[int, int, int, bytes, int]]]] = {}
        self.partitioned: dict[str, int] = {}
        self.ledgers: dict[tuple[str, int], int] = {}
        self.earliest: dict[tuple[str, int], int] = {}
        self.cuts: list[int] = []
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.cursors: dict[tuple[str, str, int], int] = {}
        self._ledgers = 0
        self._news = threading.Condition()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                server.requests.append(self.path)
                server.headers.append(dict(self.headers))
                try:
                    server.answer(self)
                except KeyError:
                    server.send(self, 404, {"error_code": 40401, "message": "Topic not found"})

            def do_POST(self) -> None:
                server.requests.append(self.path)
                server.headers.append(dict(self.headers))
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                match self.path:
                    case "/topics/offsets":
                        server.send(self, 200, server.offsets(body))
                    case "/topics/sizes":
                        server.send(self, 200, {"ranges": [server.size(each) for each in body["ranges"]]})
                    case "/topics/cursors":
                        server.send(self, 200, {"marks": [server.mark(body, each) for each in body["marks"]]})
                    case _:
                        server.send(self, 404, {"error_code": 40400, "message": "Not found"})

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def create(self, topic: str, partitions: int = 0) -> None:
        with self._news:
            self.logs[topic] = [[] for _ in range(max(partitions, 1))]
            self.partitioned[topic] = partitions
            for partition in range(max(partitions, 1)):
                self._begin(topic, partition)
            self._news.notify_all()

    def _begin(self, topic: str, partition: int) -> None:
        self._ledgers += 1
        self.ledgers[topic, partition] = self._ledgers
        self.earliest[topic, partition] = 0

    def grow(self, topic: str, partitions: int) -> None:
        """More partitions."""
        with self._news:
            for partition in range(self.partitioned[topic], partitions):
                self.logs[topic].append([])
                self._begin(topic, partition)
            self.partitioned[topic] = partitions
            self._news.notify_all()

    def delete(self, topic: str) -> None:
        with self._news:
            del self.logs[topic], self.partitioned[topic]
            self._news.notify_all()

    def trim(self, topic: str, offset: int, partition: int = 0) -> None:
        """Retention takes what is below `offset`, in whole entries."""
        with self._news:
            self.earliest[topic, partition] = offset
            self._news.notify_all()

    def append(self, topic: str, data: bytes, count: int = 1, partition: int = 0, time: int = TIME) -> None:
        with self._news:
            log = self.logs[topic][partition]
            log.append((self.latest(topic, partition), count, len(log), data, time))
            self._news.notify_all()

    def latest(self, topic: str, partition: int) -> int:
        log = self.logs[topic][partition]
        return log[-1][0] + log[-1][1] if log else 0

    def offsets(self, body: dict[str, Any]) -> dict[str, Any]:
        """POST /topics/offsets, as Penstock answers it."""
        with self._news:
            found = self._look(body)
            if found["seen"] == body["seen"]:
                self._news.wait_for(lambda: self._look(body)["seen"] != body["seen"], body["wait_ms"] / 1000)
                found = self._look(body)
            if found["seen"] == body["seen"]:
                return {"seen": found["seen"], "changed": False, "topics": [], "missing": []}
            return found

    def _look(self, body: dict[str, Any]) -> dict[str, Any]:
        wanted = {name.rsplit("/", 1)[1] for name in body["topics"]}
        for pattern in body["patterns"]:
            wanted |= {topic for topic in self.logs if re.fullmatch(pattern["regex"], topic)}
        topics = []
        for topic in sorted(wanted & self.logs.keys()):
            partitions = []
            for number, log in enumerate(self.logs[topic]):
                latest = self.latest(topic, number)
                one = {
                    "ledger": self.ledgers[topic, number],
                    "earliest": self.earliest[topic, number],
                    "latest": latest,
                    "bytes": sum(len(entry[3]) for entry in log),
                }
                if body["publish_times"]:
                    one["at"] = [
                        next((e[0] for e in log if e[4] >= time), latest) for time in body["publish_times"]
                    ]
                partitions.append(one)
            name = f"persistent://public/default/{topic}"
            topics.append(
                {"topic": name, "partitioned": self.partitioned[topic] > 0, "partitions": partitions}
            )
        missing = [f"persistent://public/default/{topic}" for topic in sorted(wanted - self.logs.keys())]
        seen = str(hash(json.dumps([topics, missing])))
        return {"seen": seen, "changed": True, "topics": topics, "missing": missing}

    def size(self, wanted: dict[str, Any]) -> dict[str, int]:
        """POST /topics/sizes."""
        log = self.logs[wanted["topic"].rsplit("/", 1)[1]][wanted["partition"]]
        there = [entry for entry in log if entry[0] + entry[1] > wanted["offset"]]
        total = sum(len(entry[3]) for entry in there)
        size, end = 0, wanted["offset"]
        for entry in there:
            if size and wanted["bytes"] is not None and size + len(entry[3]) > wanted["bytes"]:
                break
            size, end = size + len(entry[3]), entry[0] + entry[1]
        return {"total": total, "bytes": size, "end": end}

    def mark(self, body: dict[str, Any], mark: dict[str, Any]) -> dict[str, Any]:
        """POST /topics/cursors."""
        topic, partition = mark["topic"].rsplit("/", 1)[1], mark["partition"]
        answer = {"topic": mark["topic"], "partition": partition}
        if self.ledgers[topic, partition] != mark["ledger"]:
            return answer | {"offset": None, "error_code": 40404, "error": "made anew"}
        key = body["subscription"], topic, partition
        before = 0 if body["exact"] else self.cursors.get(key, 0)
        self.cursors[key] = max(before, mark["offset"])
        return answer | {"offset": self.cursors[key]}

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        path = [unquote(segment) for segment in parts.path.strip("/").split("/")]
        query = {key: int(values[0]) for key, values in parse_qs(parts.query).items()}
        match path:
            case ["admin", "v2", "namespaces", "public", "default", "topics"]:
                names = [
                    f"persistent://public/default/{topic}" + (f"-partition-{n}" if partitions else "")
                    for topic, partitions in self.partitioned.items()
                    for n in range(max(partitions, 1))
                ]
                self.send(handler, 200, names)
            case ["admin", "v2", "persistent", _, _, topic, "partitions"]:
                self.send(handler, 200, {"partitions": self.partitioned[topic]})
            case ["topics", _, _, topic, "partitions", number, "offsets"]:
                latest = self.latest(topic, int(number))
                answer = {
                    "ledger": self.ledgers[topic, int(number)],
                    "earliest": self.earliest[topic, int(number)],
                    "latest": latest,
                }
                if "publish_time" in query:
                    log = self.logs[topic][int(number)]
                    answer["offset"] = next((e[0] for e in log if e[4] >= query["publish_time"]), latest)
                self.send(handler, 200, answer)
            case ["topics", _, _, topic, "partitions", number, "messages"]:
                self.stream(handler, topic, int(number), query["offset"], query["end_offset"])
            case _:
                self.send(handler, 404, {"error_code": 40400, "message": "Not found"})

    def stream(self, handler: BaseHTTPRequestHandler, topic: str, number: int, start: int, end: int) -> None:
        start = max(start, self.earliest[topic, number])
        body = b"".join(
            struct.pack(">QIQI", offset, count, entry, len(data)) + data
            for offset, count, entry, data, _ in self.logs[topic][number]
            if offset + count > start and offset < end
        )
        handler.send_response(200)
        handler.send_header("Content-Type", "application/vnd.penstock.entries")
        handler.send_header("X-Penstock-Ledger", str(self.ledgers[topic, number]))
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        cut = self.cuts.pop(0) if self.cuts else None
        for at in range(0, len(body if cut is None else body[:cut]), 65536):
            block = body[at : min(at + 65536, len(body) if cut is None else cut)]
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(block), block))
        if cut is None:
            handler.wfile.write(b"0\r\n\r\n")
        else:
            handler.close_connection = True

    @staticmethod
    def send(handler: BaseHTTPRequestHandler, status: int, answer: Any) -> None:
        body = json.dumps(answer).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


def base64(data: bytes) -> str:
    return b64encode(data).decode()
