"""Fills the data folder of a running server, of any version, with some of everything that is stored.

How the storages beside this file were made, each by the last commit whose version of the storage it has:

    python make.py http://127.0.0.1:PORT     then SIGTERM to the server
    gzip -9nc FOLDER/penstock.db > version-N.db.gz

Version 1: commit ca3cc4d; 2: c854f14; 3: e73f209.
"""

import struct
import sys

import httpx

TOPICS = "/topics/public/default"
ADMIN = "/admin/v2/persistent/public/default"
SPACE = "/admin/v2/namespaces/public/default"
AVRO = '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"},{"name":"product","type":"string"}]}'


def fill(url: str) -> None:
    """Texts, keys and properties; partitions; a schema; a subscription that has acknowledged some; policies."""
    with httpx.Client(base_url=url, timeout=30) as http:

        def ask(method: str, path: str, body: object = None) -> httpx.Response:
            answer = http.request(method, path, json=body)
            assert answer.status_code < 300, (path, answer.status_code, answer.text)
            return answer

        texts = [{"value": f"text {number}"} for number in range(20)]
        ask("POST", f"{TOPICS}/plain", {"messages": texts})
        ask(
            "POST", f"{TOPICS}/plain", {"messages": [{"value": "with", "key": "k", "properties": {"a": "1"}}]}
        )
        ask("PUT", f"{ADMIN}/parted/partitions", 3)
        keyed = [{"value": f"v{number}", "key": f"k{number}"} for number in range(9)]
        ask("POST", f"{TOPICS}/parted", {"messages": keyed})
        schema = {"type": "AVRO", "schema": AVRO, "properties": {}}
        ask("POST", "/admin/v2/schemas/public/default/orders/schema", schema)
        orders = [{"value": {"id": number, "product": "tea"}} for number in range(3)]
        ask("POST", f"{TOPICS}/orders", {"schema_version": 0, "messages": orders})
        ask("PUT", f"{ADMIN}/plain/subscription/s", None)
        ask("POST", f"{ADMIN}/plain/subscription/s/resetcursor/0")
        ask("POST", f"{ADMIN}/plain/subscription/s/skip/5")
        if http.post("/stages", json={"topics": ["staged"]}).status_code >= 400:
            return  # version 1 has neither stages nor policies
        ask("POST", f"{TOPICS}/staged", {"messages": [{"value": "text first"}]})
        raw = {"accept": "application/vnd.penstock.entries"}
        answer = http.get(f"{TOPICS}/plain/partitions/0/messages", headers=raw)
        part = section("persistent://public/default/staged", entries(answer.content))
        count = {
            "stage": "s",
            "parts": 1,
            "messages": 21,
            "size_bytes": len(b"".join(entries(answer.content))),
        }
        for batch in (3, 4):  # the second one is not committed
            kind = {"content-type": "application/vnd.penstock.sections"}
            answer = http.put(f"/stages/job/{batch}/s/0", content=part, headers=kind)
            assert answer.status_code < 300, answer.text
        ask("POST", "/stages/job/3/commit", {"stages": [count]})
        ask("POST", f"{SPACE}/retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
        ask("POST", f"{SPACE}/deduplication", True)


def entries(answer: bytes) -> list[bytes]:
    """The entries of an answer in raw form."""
    found, at = [], 0
    while at < len(answer):
        _, _, _, size = struct.unpack_from(">QIQI", answer, at)
        at += 24
        found.append(answer[at : at + size])
        at += size
    return found


def section(topic: str, found: list[bytes]) -> bytes:
    """A part of a stage with the entries of one topic."""
    name = topic.encode()
    head = struct.pack(">H", len(name)) + name + struct.pack(">I", len(found))
    return head + b"".join(struct.pack(">I", len(entry)) + entry for entry in found)


if __name__ == "__main__":
    fill(sys.argv[1])
