"""The secret that processes of one user on one machine share: whole, readable by that user only, the same for all."""

import logging
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.broker.settings import ClusterSettings
from penstock.model.secret import Secret
from penstock.server.config import Config, FleetSettings
from penstock.server.local_secret import local_secret, secret_before_cluster, secret_file


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return secret_file()


def test_processes_that_start_at_once_share_one_secret(file: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = {each.result() for each in [pool.submit(local_secret) for _ in range(32)]}
    (secret,) = found
    assert len(secret.reveal()) == 64
    assert file.read_text() == f"{secret.reveal()}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert list(file.parent.iterdir()) == [file]


def test_a_file_that_others_could_have_read_is_not_used(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = local_secret()
    file.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        alone, other = local_secret(), local_secret()
    assert len({kept, alone, other}) == 3
    assert [getattr(each, "reason", "") for each in caplog.records] == [
        f"{file} can be read by other users: remove it, or chmod 600"
    ] * 2
    file.chmod(0o600)
    assert local_secret() == kept


@pytest.mark.parametrize("content", [b"", b"\xff\xfe"])
def test_a_file_without_a_secret_is_not_used(
    file: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    local_secret()
    file.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert len(local_secret().reveal()) == 64
    assert len(caplog.records) == 1
    assert file.read_bytes() == content


def test_a_folder_that_cannot_be_made_costs_the_others_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "no-folder").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "no-folder"))
    with caplog.at_level(logging.WARNING):
        assert local_secret() != local_secret()
    assert caplog.records[0].getMessage() == "this process shares no secret with others"


def test_the_file_is_where_services_and_users_keep_their_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert secret_file() == tmp_path / "state" / "penstock" / "fleet.secret"
    monkeypatch.setenv("STATE_DIRECTORY", f"{tmp_path}/lib{os.pathsep}{tmp_path}/other")
    assert secret_file() == tmp_path / "lib" / "fleet.secret"
    monkeypatch.delenv("STATE_DIRECTORY")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert secret_file() == tmp_path / ".local" / "state" / "penstock" / "fleet.secret"


def test_it_is_made_only_before_a_cluster_without_a_configured_one(file: Path) -> None:
    engine = ClusterSettings(url="kafka://127.0.0.1:1")
    assert secret_before_cluster(Config()) is None
    for given in (FleetSettings(secret=Secret("given")), FleetSettings(secret_file="given")):
        assert secret_before_cluster(Config(engine=engine, fleet=given)) is None
    assert not file.exists()
    assert secret_before_cluster(Config(engine=engine)) == local_secret()
