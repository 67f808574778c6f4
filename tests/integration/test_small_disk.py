"""A real disk of a few megabytes that fills and empties again: a file system of its own for one server."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.disk import call
from tests.support.waiting import until

SIZE_MB = 24
TOPIC = "/topics/public/default/t"
ADMIN = "/admin/v2/persistent/public/default/t"
LARGE = "x" * 200_000
OTHERS_MB = 6  # of somebody else's on the same disk, who makes room in the end


def _can_mount() -> bool:
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return False
    tried = ["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not _can_mount(), reason="no file system can be mounted without privileges here"),
]


@contextlib.contextmanager
def on_a_small_disk(folder: Path, *flags: str) -> Iterator[tuple[int, Path]]:
    """A server whose data is on a file system of its own, which it alone sees: its port, and another's file."""
    folder.mkdir()
    said = folder.with_suffix(".log")
    command = (
        f"mount -t tmpfs -o size={SIZE_MB}m tmpfs {folder} && "
        f"head -c {OTHERS_MB}000000 /dev/zero > {folder}/other && "
        f"exec {sys.executable} -m penstock serve --data {folder}/data --http 127.0.0.1:0 --pulsar off "
        f"--set broker.keep_check_ms=20 {' '.join(flags)}"
    )
    with said.open("wb") as errors:
        process = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", command],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("penstock ready"), line + said.read_text()
        yield int(line.split()[2].rsplit(":", 1)[1]), Path(f"/proc/{process.pid}/root{folder}/other")
        process.terminate()
        assert process.wait(30) == 0, said.read_text()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def fill(port: int, value: str = LARGE) -> int:
    """Publish until it is refused; how many were stored."""
    stored = 0
    while True:
        status, body = call(port, "POST", TOPIC, {"messages": [{"value": value}]})
        if status != 200:
            assert (status, body["error_code"]) == (503, 50302), body
            return stored
        stored += 1


def values(port: int) -> list[Any]:
    found: list[Any] = []
    while True:
        path = f"{TOPIC}/partitions/0/messages?max_messages=20&offset={len(found)}"
        status, body = call(port, "GET", path)
        assert status == 200, body
        if not body["messages"]:
            return found
        found += [message["value"] for message in body["messages"]]


def test_it_fills_and_empties_again(tmp_path: Path) -> None:
    with on_a_small_disk(tmp_path / "disk") as (port, other):
        assert call(port, "PUT", f"{ADMIN}/subscription/s", "earliest")[0] == 204
        stored = fill(port)
        assert stored > 20
        assert values(port) == [LARGE] * stored  # what was acknowledged stays, and can be read
        for _ in range(3):
            assert fill(port) <= 1  # the end of the log may have room for one more
        stored = len(values(port))
        # Somebody makes a little room; a cursor goes to the end, and retention lets go of what is before it.
        other.unlink()
        assert call(port, "POST", f"{ADMIN}/subscription/s/skip_all")[0] == 204
        nothing = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
        assert call(port, "POST", f"{ADMIN}/retention", nothing)[0] == 204
        until(lambda: not call(port, "GET", f"{ADMIN}/stats")[1]["storageSize"])
        again, end = 0, time.monotonic() + 60
        while again < stored // 2:  # as room is swept together
            status, body = call(port, "POST", TOPIC, {"messages": [{"value": f"{again}"}, {"value": LARGE}]})
            if status == 200:
                again += 1
            else:
                assert body["error_code"] == 50302
            assert call(port, "POST", f"{ADMIN}/subscription/s/skip_all")[0] == 204
            assert time.monotonic() < end
        status, body = call(port, "GET", f"{TOPIC}/partitions/0/offsets")
        assert body["latest"] == stored + 2 * again  # numbers go on where they were


def eat(other: Path) -> None:
    """Let another program have all that the disk has left."""
    with other.open("ab") as file, contextlib.suppress(OSError):
        while True:
            os.write(file.fileno(), bytes(4096))


def test_on_a_disk_without_a_byte_deletes_retention_and_acknowledgements_make_room(tmp_path: Path) -> None:
    with on_a_small_disk(tmp_path / "disk") as (port, other):
        gone = "/topics/public/default/gone"
        for path in (TOPIC, gone):
            for _ in range(20):
                assert call(port, "POST", path, {"messages": [{"value": LARGE}]})[0] == 200
        assert call(port, "PUT", f"{ADMIN}/subscription/s", "earliest")[0] == 204
        eat(other)
        fill(port, "x" * 10_000)
        eat(other)  # the reserve is what the server has; its own files keep their blocks
        status, body = call(port, "GET", "/health/ready")
        assert (status, body["error_code"], body["reason"]) == (503, 50302, "storage_full"), body
        # No other program frees room: it comes of what the server deletes.
        assert call(port, "DELETE", "/admin/v2/persistent/public/default/gone?force=true")[0] == 204
        assert call(port, "POST", f"{ADMIN}/subscription/s/skip_all")[0] == 204
        nothing = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
        assert call(port, "POST", f"{ADMIN}/retention", nothing)[0] == 204
        until(lambda: not call(port, "GET", f"{ADMIN}/stats")[1]["storageSize"])
        until(lambda: call(port, "GET", "/health/ready")[0] == 200)
        for _ in range(20):
            status, body = call(port, "POST", TOPIC, {"messages": [{"value": LARGE}]})
            assert status == 200, body
