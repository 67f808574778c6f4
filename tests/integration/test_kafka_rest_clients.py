"""Other people's clients against a real server: curl with every example of the proposal, httpx, Node's fetch.

The proposal's examples are sent as they stand; where an answer differs from it, docs/kafka-rest.md says why.
"""

import gzip
import hashlib
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tests.support.kafka_rest import framed

from penstock.testing.server import running

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")

LINES = [f"this is message {n}".encode() for n in range(1, 11)]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running() as address:
        yield address.url


@pytest.fixture
def log(server: str, request: pytest.FixtureRequest) -> str:
    """A topic's partition of the test's own."""
    return f"{server}/kafka/topics/{request.node.name.replace('[', '-').rstrip(']')}/0"


class Curled:
    """What curl got."""

    def __init__(self, answer: bytes) -> None:
        head, _, self.body = answer.partition(b"\r\n\r\n")
        while head.startswith(b"HTTP/1.1 100"):
            head, _, self.body = self.body.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        self.status = int(first.split()[1])
        self.headers = dict(line.lower().split(": ", 1) for line in lines)
        self.raw_headers = dict(line.split(": ", 1) for line in lines)

    def header(self, name: str) -> str:
        return next(value for key, value in self.raw_headers.items() if key.lower() == name)


def curl(*arguments: str, data: bytes | None = None) -> Curled:
    command = ["curl", "--silent", "--show-error", "--include", "--max-time", "90", *arguments]
    if data is not None:
        command += ["--data-binary", "@-"]
    done = subprocess.run(command, input=data, capture_output=True, timeout=120, check=True)
    return Curled(done.stdout)


def headers(*lines: str) -> list[str]:
    return [part for line in lines for part in ("-H", line)]


def write_lines(log: str) -> None:
    assert curl(*headers("Content-Type: application/x-kafka"), log, data=framed(*LINES)).status == 204


def test_the_tree(server: str, log: str) -> None:
    write_lines(log)
    welcome = curl(f"{server}/kafka")
    assert (welcome.status, welcome.header("content-type")) == (200, "application/json")
    page = curl("-H", "Accept: text/html", f"{server}/kafka")
    assert b"<h1>" in page.body
    assert b"test_the_tree" in curl(f"{server}/kafka/topics").body
    assert b'"partition":0' in curl(log.rsplit("/", 1)[0]).body


def test_consuming_over_the_dumb_transport(log: str) -> None:
    write_lines(log)
    sent = headers("Accept: application/x-kafka", "Accept-Encoding: gzip", "Range: bytes=0-99")
    got = curl(*sent, log)
    assert got.status == 206
    assert got.header("content-type") == "application/x-kafka"
    assert got.header("content-encoding") == "gzip"
    assert got.header("content-range") == f"bytes 0-107/{len(framed(*LINES))}"  # four messages begin in it
    assert got.header("content-md5") == b64encode(hashlib.md5(got.body).digest()).decode()
    assert int(got.header("content-length")) == len(got.body)
    assert gzip.decompress(got.body) == framed(*LINES[:4])
    head = curl("--head", *sent, log)
    assert head.status == 206
    assert head.body == b""
    assert {k: v for k, v in head.headers.items() if k != "date"} == {
        k: v for k, v in got.headers.items() if k != "date"
    }


@pytest.mark.parametrize("md5", ["hex", "base64", "none"])
def test_producing(log: str, md5: str) -> None:
    body = gzip.compress(framed(*LINES))
    sent = headers("Content-Type: application/x-kafka", "Content-Encoding: gzip")
    digest = hashlib.md5(body)
    if md5 != "none":
        checksum = digest.hexdigest() if md5 == "hex" else b64encode(digest.digest()).decode()
        sent += headers(f"Content-MD5: {checksum}")
    got = curl(*sent, log, data=body)
    assert (got.status, got.body) == (204, b"")
    size = len(framed(*LINES))
    assert got.header("content-range") == f"bytes 0-{size - 1}/{size}"
    assert curl("-r", "0-", log).body == framed(*LINES)


def test_the_proposals_own_digest_does_not_fit(log: str) -> None:
    sent = headers("Content-Type: application/x-kafka", "Content-MD5: d3b07384d113edec49eaa6238ad5ff00")
    assert curl(*sent, log, data=framed(b"a")).status == 400
    assert curl(log).status == 404


def test_pipelining_with_multipart(log: str) -> None:
    parts = []
    for line in LINES:
        body = gzip.compress(framed(line))
        head = (
            "--some boundary\nContent-Type: application/x-kafka\nContent-Encoding: gzip\n"
            f"Content-MD5: {hashlib.md5(body).hexdigest()}\n\n"
        )
        parts.append(head.encode() + body + b"\n")
    body = b"ignored\n" + b"".join(parts) + b"--some boundary--\nignored\n"
    got = curl(*headers('Content-Type: multipart/mixed; boundary="some boundary"'), log, data=body)
    assert got.status == 204
    assert curl("-r", "0-", log).body == framed(*LINES)


def test_consuming_text(log: str) -> None:
    write_lines(log)
    got = curl(*headers("Accept: text/plain", "Accept-Charset: utf-8", "Range: bytes=0-1023"), log)
    assert got.status == 206
    assert got.header("content-type") == "text/plain; charset=utf-8"
    size = len(framed(*LINES))
    assert got.header("content-range") == f"bytes 0-{size - 1}/{size}"
    assert got.body == b"\n".join(LINES) + b"\n"


def test_consuming_json(log: str) -> None:
    write_lines(log)
    got = curl(*headers("Accept: text/json", "Accept-Charset: utf-8", "Range: bytes=0-30"), log)
    assert got.status == 206
    assert got.header("content-type") == "text/json; charset=utf-8"
    assert got.body == b'["this is message 1","this is message 2"]'


def test_producing_text(log: str) -> None:
    got = curl(*headers("Content-Type: text/plain; charset=utf-8"), log, data=b"this is message 1")
    assert got.status == 204
    assert curl("-r", "0-", log).body == framed(b"this is message 1")


def test_producing_several_texts(log: str) -> None:
    body = (
        b"ignored\n--some boundary\nContent-Type: text/plain; charset=utf-8\n\nthis is message 1\n"
        b"--some boundary\nContent-Type: text/plain; charset=utf-8\n\nthis is message 2\n"
        b"--some boundary--\nignored\n"
    )
    for one in (body, body.replace(b"\n", b"\r\n")):
        got = curl(*headers('Content-Type: multipart/mixed; boundary="some boundary"'), log, data=one)
        assert got.status == 204
    assert curl("-r", "0-", log).body == framed(*LINES[:2], *LINES[:2])


def test_curls_own_ways(log: str, tmp_path: Path) -> None:
    assert curl("-H", "Content-Type: text/plain", "-d", "a", log).status == 204
    refused = curl("-d", "a", log)  # a form, says curl, and a log of forms is what nobody wants
    assert refused.status == 415
    assert b"text/plain" in refused.body
    large = bytes(range(256)) * 8000  # curl asks whether it may go on (Expect: 100-continue)
    assert curl("-H", "Content-Type: application/octet-stream", log, data=large).status == 204
    assert curl("--compressed", "-r", "11-", log).body == framed(large)
    assert curl("-r", "0-5,-1", "-H", "Accept: text/plain", log).status == 206
    saved = tmp_path / "log"
    subprocess.run(["curl", "-sS", "-o", saved, "-r", "0-10", log], check=True, timeout=60)
    subprocess.run(["curl", "-sS", "-o", saved, "-C", "-", log], check=True, timeout=60)  # resumes at byte 11
    assert saved.read_bytes() == framed(b"a", large)


def test_following_a_log(log: str) -> None:
    write_lines(log)
    size = len(framed(*LINES))
    with ThreadPoolExecutor() as pool:
        sent = headers("Accept: text/plain", "Prefer: wait=60", f"Range: bytes={size}-")
        following = [pool.submit(curl, *sent, log) for _ in range(3)]
        assert not following[0].done()
        assert curl("-H", "Content-Type: text/plain", "-d", "news", log).status == 204
        for one in following:
            got = one.result(timeout=120)
            assert (got.status, got.body) == (206, b"news\n")
            assert got.header("preference-applied") == "wait=60"


def test_httpx(log: str) -> None:
    with httpx.Client() as client:
        texts = {"content-type": "application/x-ndjson"}
        assert client.post(log, content=b'"a"\n{"b": 1}\n', headers=texts).status_code == 204
        got = client.get(log, headers={"accept": "application/json", "range": "bytes=0-"})
        assert got.json() == ["a", '{"b": 1}']
        assert client.get(log, headers={"if-none-match": got.headers["etag"], "accept": "application/json", "range": "bytes=0-"}).status_code == 304  # fmt: skip


def test_a_log_of_other_endpoints(server: str, log: str) -> None:
    topic = log.split("/")[-2]
    with httpx.Client(base_url=server) as client:
        path = f"/topics/public/default/{topic}"
        produced = client.post(path, json={"messages": [{"value": "from REST"}]})
        assert produced.status_code == 200
        assert curl("-r", "0-", log).body == framed(b"from REST")
        assert (
            curl("-H", "Content-Type: text/plain", "-H", "X-Kafka-Key: k", "-d", "from Kafka", log).status
            == 204
        )
        read = client.get(f"{path}/partitions/0/messages", params={"encoding": "text"}).json()["messages"]
        assert [(m["value"], m.get("key")) for m in read] == [("from REST", None), ("from Kafka", "k")]


FETCH = """
const log = process.argv[1];
const check = (what, found, wanted) => {
  if (found !== wanted) { console.error(what, found, 'instead of', wanted); process.exit(1); }
};
const post = await fetch(log, {method: 'POST', headers: {'Content-Type': 'text/plain'}, body: 'zwölf'});
check('post', post.status, 204);
check('written', post.headers.get('content-range'), 'bytes 0-15/16');
const got = await fetch(log, {headers: {'Accept': 'text/plain', 'Range': 'bytes=0-'}});
check('status', got.status, 206);
check('text', await got.text(), 'zwölf\\n');
const json = await fetch(log, {headers: {'Accept': 'application/json'}});
check('json', (await json.json())[0], 'zwölf');
const bytes = await (await fetch(log)).arrayBuffer();
check('bytes', new DataView(bytes).getUint32(0), 12);
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
def test_fetch(log: str) -> None:
    done = subprocess.run(
        ["node", "--input-type=module", "-e", FETCH, log],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_restart_moves_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as address:
        log = f"{address.url}/kafka/topics/foo/0"
        write_lines(log)
    with running(tmp_path) as address:
        log = f"{address.url}/kafka/topics/foo/0"
        got = curl("-r", "30-60", log)
        assert got.body == framed(*LINES[2:3])
        assert got.header("content-range") == "bytes 54-80/271"
        got = curl("-H", "Content-Type: text/plain", "-d", "a", log)
        assert got.header("content-range") == "bytes 271-281/282"
