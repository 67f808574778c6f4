"""Backups taken while a server is busy, restored, checked and compared with what was acknowledged."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
from tests.support.waiting import until_async

from penstock.testing.server import Address, running

TOPIC = "/topics/public/default/t"


def penstock(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", *(str(argument) for argument in arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def answer(*arguments: object) -> dict[str, Any]:
    ran = penstock(*arguments)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def values(server: Address) -> list[str]:
    found: list[str] = []
    while True:
        url = f"{server.url}{TOPIC}/partitions/0/messages"
        messages = httpx.get(url, params={"offset": len(found)}).json()["messages"]
        if not messages:
            return found
        found += [message["value"] for message in messages]


async def test_under_load(tmp_path: Path) -> None:
    """Everything acknowledged before the backup began is in it, in order, and nothing that was never sent."""
    data, copied = tmp_path / "data", tmp_path / "copy.db"
    acknowledged: list[str] = []
    over = asyncio.Event()

    async def publish(http: httpx.AsyncClient) -> None:
        while not over.is_set():
            value = str(len(acknowledged))
            sent = await http.post(TOPIC, json={"messages": [{"value": value}]})
            assert sent.status_code == 200
            acknowledged.append(value)

    with running(data) as server:
        async with httpx.AsyncClient(base_url=server.url) as http:
            await http.put("/admin/v2/persistent/public/default/t/subscription/s")
            publishing = asyncio.get_running_loop().create_task(publish(http))
            await until_async(lambda: len(acknowledged) >= 50)
            before = len(acknowledged)
            report = await asyncio.to_thread(answer, "backup", copied, "--data", data)
            after = len(acknowledged) + 1  # one may be on its way
            await until_async(lambda: len(acknowledged) >= after + 10)
            over.set()
            await publishing
        assert report == {"file": str(copied), "bytes": copied.stat().st_size}
        found = await asyncio.to_thread(answer, "check", data)  # the running server's own
        assert (found["sound"], found["messages"]) == (True, len(acknowledged))

    assert (await asyncio.to_thread(answer, "check", copied))["sound"]
    restored = tmp_path / "restored"
    await asyncio.to_thread(answer, "restore", copied, "--data", restored)
    assert (await asyncio.to_thread(answer, "check", restored))["cursors"] == 1
    with running(restored) as server:
        stored = await asyncio.to_thread(values, server)
        assert before <= len(stored) <= after
        assert stored == [str(number) for number in range(len(stored))]
        sent = httpx.post(f"{server.url}{TOPIC}", json={"messages": [{"value": "more"}]})
        assert sent.status_code == 200


def test_a_folder_that_is_used_or_not_empty(tmp_path: Path) -> None:
    data, copied = tmp_path / "data", tmp_path / "backups"
    copied.mkdir()
    with running(data) as server:
        httpx.post(f"{server.url}{TOPIC}", json={"messages": [{"value": "kept"}]})
        file = answer("backup", copied, "--data", data)["file"]
        assert Path(file).parent == copied
        assert Path(file).stat().st_mode & 0o077 == 0  # nobody else's business
        again = penstock("backup", file, "--data", data)
        assert (again.returncode, again.stderr) == (1, f"penstock: {file} is there already\n")
        httpx.post(f"{server.url}{TOPIC}", json={"messages": [{"value": "lost"}]})
        used = penstock("restore", file, "--data", data, "--force")
        assert used.returncode == 1
        assert "is in use by process" in used.stderr
    full = penstock("restore", file, "--data", data)
    assert full.returncode == 1
    assert "is not empty" in full.stderr
    assert "--force" in full.stderr
    with running(data) as server:
        assert values(server) == ["kept", "lost"]
    answer("restore", file, "--data", data, "--force")
    with running(data) as server:
        assert values(server) == ["kept"]


def test_what_is_no_backup(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no backup" * 1000)
    for file in ("text", "nothing"):
        ran = penstock("restore", tmp_path / file, "--data", tmp_path / "data")
        assert ran.returncode == 1, ran.stdout
        assert str(tmp_path / file) in ran.stderr
        assert not (tmp_path / "data").exists()
    ran = penstock("backup", tmp_path / "copy", "--data", tmp_path / "data")
    assert ran.returncode == 1
    assert "--data names its folder" in ran.stderr


def test_check_says_what_is_wrong(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        httpx.post(f"{server.url}{TOPIC}", json={"messages": [{"value": "x" * 100}]})
    assert answer("check", tmp_path)["findings"] == []
    file = tmp_path / "penstock.db"
    file.write_bytes(file.read_bytes().replace(b"x" * 100, b"x" * 99 + b"y"))
    ran = penstock("check", tmp_path, "--json")
    assert ran.returncode == 1
    found = json.loads(ran.stdout)
    assert found["findings"] == [
        {"place": "persistent://public/default/t, entry 0", "message": "the entry's checksum is wrong"}
    ]
