"""A server of S3's protocol for tests: moto's, in a process of its own. It keeps everything in memory.

What it does with a request it does whole, before the next: so `If-None-Match` holds for writers at once, as with
S3 itself.
"""

import contextlib
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from typing import Final
from uuid import uuid4

from deltalake.fs import DeltaStorageHandler

BUCKET: Final = "bucket"
KEY: Final = "test-key"
SECRET: Final = "test-secret-0b1b7a"  # recognised where it must not be

_SERVE: Final = """
import threading
import boto3
from moto.server import create_backend_app
from werkzeug.serving import make_server

app, lock = create_backend_app("s3"), threading.Lock()

served = []

def serve(environ, start):
    with lock:
        if environ["PATH_INFO"] == "/served":
            start("200 OK", [])
            return ["\\n".join(served).encode()]
        served.append(environ["REQUEST_METHOD"] + " " + environ["PATH_INFO"])
        return list(app(environ, start))

server = make_server("127.0.0.1", 0, serve, threaded=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
keys = {"aws_access_key_id": "test-key", "aws_secret_access_key": "test-secret-0b1b7a", "region_name": "us-east-1"}
boto3.client("s3", endpoint_url=url, **keys).create_bucket(Bucket="bucket")
print(url, flush=True)
input()
"""


class ObjectStore:
    """A store with one bucket."""

    def __init__(self, url: str, key: str = KEY, secret: str = SECRET) -> None:
        self.endpoint = url
        self.key = key
        self.secret = secret

    @property
    def options(self) -> dict[str, str]:
        """What a table's reader or writer has to know."""
        return {
            "aws_endpoint_url": self.endpoint,
            "aws_access_key_id": self.key,
            "aws_secret_access_key": self.secret,
            "aws_region": "us-east-1",
            "aws_allow_http": "true",
        }

    def served(self) -> list[str]:
        """The requests so far: method and path."""
        with urllib.request.urlopen(f"{self.endpoint}/served") as answer:
            return answer.read().decode().split("\n")

    def folder(self) -> str:
        """The URL of a folder of a test's own."""
        return f"s3://{BUCKET}/t{uuid4().hex[:12]}"

    def paths(self, url: str) -> list[str]:
        """The objects below a URL."""
        from pyarrow.fs import FileSelector, PyFileSystem

        system = PyFileSystem(DeltaStorageHandler(url, self.options))
        return sorted(
            info.path for info in system.get_file_info(FileSelector("", recursive=True)) if info.is_file
        )


@contextlib.contextmanager
def serving() -> Iterator[ObjectStore]:
    """Start a store; it ends when its standard input does.

    OBJECT_STORE names another one, for work at one test: "URL KEY SECRET". It has the bucket.
    """
    if given := os.environ.get("OBJECT_STORE"):
        yield ObjectStore(*given.split())
        return
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    running = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
        start_new_session=True,
    )
    assert running.stdin is not None
    assert running.stdout is not None
    try:
        url = running.stdout.readline().strip()
        assert url, "the object store does not start"
        yield ObjectStore(url)
    finally:
        running.stdin.close()
        running.kill()
        running.wait(60)
        running.stdout.close()
