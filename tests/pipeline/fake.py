"""A server that speaks just enough for the data source, and a maker of entries by protobuf's own encoder."""

import json
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

    def __init__(self) -> None:
        self.logs: dict[str, list[list[tuple[int, int, int, bytes, int]]]] = {}
        self.partitioned: dict[str, int] = {}
        self.ledgers: dict[tuple[str, int], int] = {}
        self.earliest: dict[tuple[str, int], int] = {}
        self.cuts: list[int] = []
        self.requests: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                server.requests.append(self.path)
                try:
                    server.answer(self)
                except KeyError:
                    server.send(self, 404, {"error_code": 40401, "message": "Topic not found"})

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def create(self, topic: str, partitions: int = 0) -> None:
        self.logs[topic] = [[] for _ in range(max(partitions, 1))]
        self.partitioned[topic] = partitions
        for partition in range(max(partitions, 1)):
            self.ledgers[topic, partition] = len(self.ledgers) + 1
            self.earliest[topic, partition] = 0

    def append(self, topic: str, data: bytes, count: int = 1, partition: int = 0, time: int = TIME) -> None:
        log = self.logs[topic][partition]
        offset = log[-1][0] + log[-1][1] if log else 0
        log.append((offset, count, len(log), data, time))

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
                log = self.logs[topic][int(number)]
                latest = log[-1][0] + log[-1][1] if log else 0
                answer = {
                    "ledger": self.ledgers[topic, int(number)],
                    "earliest": self.earliest[topic, int(number)],
                    "latest": latest,
                }
                if "publish_time" in query:
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
