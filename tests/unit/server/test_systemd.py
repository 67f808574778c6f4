"""What the service manager is told."""

import socket
from pathlib import Path

import pytest

from penstock.server.systemd import READY, STOPPING, notify


@pytest.mark.parametrize("shown", ["{}", "@penstock-test-{}"])
def test_the_manager_hears_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: str) -> None:
    address = str(tmp_path / "notify") if shown == "{}" else shown.format(tmp_path.name + str(id(tmp_path)))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + address[1:] if address.startswith("@") else address)
        manager.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        notify(READY)
        notify(STOPPING)
        assert [manager.recv(100) for _ in range(2)] == [b"READY=1", b"STOPPING=1"]


@pytest.mark.parametrize("address", ["", "vsock:2:1234", "/nowhere/to/be/found"])
def test_without_one_nothing_happens(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify(READY)
