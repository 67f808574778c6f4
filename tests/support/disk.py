"""A server on a disk that fails when the test says so: real errors of real system calls, in a process of its own."""

import contextlib
import http.client
import json
import mmap
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from penstock.testing.server import Launched, launch
from tests.support.preloaded import library
from tests.support.waiting import until

FIELDS = struct.Struct("=6i")  # of the control file; faulty_disk.c says what they mean
WITHIN_S = 30  # of anything that is waited for: it comes in a fraction of this


class FaultyDisk:
    """The disk of one server: which calls fail there, each with an errno (0: none)."""

    def __init__(self, control: Path, folder: Path) -> None:
        control.write_bytes(bytes(FIELDS.size))
        with control.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), FIELDS.size)
        self.environment = {
            "LD_PRELOAD": str(library("faulty_disk")),
            "FAULTY_CONTROL": str(control),
            "FAULTY_FOLDER": str(folder),
        }

    def fail(
        self, *, sync: int = 0, write: int = 0, after: int = 0, main_only: bool = False, drop: bool = False
    ) -> None:
        """From now on syncs and writes fail with these; syncs after so many more that succeed.

        `main_only`: only syncs of the main file, which only checkpoints make. `drop`: what a sync that fails should
        have written is gone.
        """
        self._control[:] = FIELDS.pack(sync, write, after, main_only, drop, 0)

    @property
    def failed_syncs(self) -> int:
        """How many syncs failed since the last `fail` or `mend`."""
        return int(FIELDS.unpack(self._control[:])[-1])

    def mend(self, *, drop: bool = False) -> None:
        """From now on nothing fails; `drop` as of syncs that will fail later."""
        self.fail(drop=drop)


def call(port: int, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """The status of a plain HTTP request, and its answer; JSON is decoded."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN_S)
    try:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    return answer.status, json.loads(content) if content[:1] in (b"{", b"[") else content


class FaultyServer:
    """A launched server, its disk, and plain requests to it."""

    def __init__(self, server: Launched, disk: FaultyDisk) -> None:
        self.server = server
        self.disk = disk

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """The status of a request, and its answer."""
        return call(self.server.port, method, path, body)

    def publish(self, value: str, topic: str = "t") -> tuple[int, Any]:
        return self.call("POST", f"/topics/public/default/{topic}", {"messages": [{"value": value}]})

    def values(self, topic: str = "t") -> list[Any]:
        status, page = self.call("GET", f"/topics/public/default/{topic}/partitions/0/messages")
        assert status == 200, page
        return [message["value"] for message in page["messages"]]

    def ready(self) -> tuple[int, Any]:
        return self.call("GET", "/health/ready")

    def metrics(self) -> dict[str, float]:
        """Every sample by its name and labels, as the page has them."""
        lines = self.call("GET", "/metrics")[1].decode().splitlines()
        pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
        return {name: float(value) for name, value in pairs}

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The lines of the log with this event."""
        lines = [json.loads(line) for line in self.server.log.splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until something is so."""
        until(condition, said=lambda: self.server.log)


@contextlib.contextmanager
def on_a_faulty_disk(folder: Path, *flags: str) -> Iterator[FaultyServer]:
    """A server whose data is in `folder`, and whose disk the test rules."""
    disk = FaultyDisk(folder / "control", folder / "data")
    environment = {**disk.environment, "PENSTOCK_LOG__FORMAT": "json"}
    with launch(folder / "data", *flags, environment=environment) as server:
        try:
            yield FaultyServer(server, disk)
        finally:
            disk.mend()
