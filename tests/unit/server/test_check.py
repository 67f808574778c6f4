"""`penstock serve --check`: what is right, what is wrong, and that nothing is changed."""

import json
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import trustme
from tests.support.commands import runner

from penstock.cli.serve import serve_command
from penstock.engines.sqlite.connection import open_writer
from penstock.engines.sqlite.schema import APPLICATION_ID, MIGRATIONS, VERSION, prepare
from penstock.engines.storage import FILE_NAME
from penstock.server.check import Checked, check
from penstock.server.sources import load

SECRET = "a secret of sixteen bytes"
LOCAL = {"http.listen": "127.0.0.1:0", "pulsar.listen": "off"}


def checked(folder: Path, **settings: object) -> Checked:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return check(load(flags={**LOCAL, "data.folder": str(folder), **named}))


def certificate(tmp_path: Path, name: str) -> tuple[Path, Path]:
    made = trustme.CA().issue_cert("localhost")
    key, chain = tmp_path / f"{name}.key", tmp_path / f"{name}.pem"
    made.private_key_pem.write_to_path(str(key))
    made.cert_chain_pems[0].write_to_path(str(chain))
    return chain, key


def test_the_defaults_are_right_and_nothing_is_made(tmp_path: Path) -> None:
    found = checked(tmp_path / "a" / "data")
    assert found.wrong == []
    assert "http.listen: 127.0.0.1:0" in found.right
    assert f"data.folder: {tmp_path}/a/data, where the storage is yet to be made" in found.right
    assert list(tmp_path.iterdir()) == []


def test_every_problem_is_told_with_its_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = checked(
        tmp_path / "file" / "data",
        http__listen="0.0.0.0:0",
        http__tls_listen="127.0.0.1:0",
        auth__token_secret_key_file=str(tmp_path / "none"),
    )
    said = "\n".join(found.wrong)
    for setting in (
        "http.listen",
        "tls.cert_file",
        "auth.token_secret_key_file",
        "data.folder",
    ):
        assert setting in said
    assert len(found.wrong) == 4


def test_a_port_that_the_running_server_has_is_no_problem(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        listen = f"127.0.0.1:{server.getsockname()[1]}"
        found = checked(tmp_path, http__listen=listen)
    assert found.wrong == []
    assert f"http.listen: {listen}, whose port a running program has now" in found.right


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"http__listen": "off"}, "http.listen and http.tls_listen are both off"),
        ({"http__listen": "192.0.2.1:1"}, "http.listen: cannot listen on 192.0.2.1:1"),  # of no machine
        (
            {"http__listen": "127.0.0.1:9999", "pulsar__listen": "127.0.0.1:9999"},
            "http.listen and pulsar.listen are both 127.0.0.1:9999",
        ),
        ({"engine__url": "pulsar://127.0.0.1:6650"}, "engine.admin_url is missing"),
        (
            {"engine__url": "kafka+ssl://127.0.0.1:9092", "engine__tls_trust_file": "/is/not"},
            "engine.tls_trust_file: /is/not: No such file",
        ),
        ({"auth__enabled": True}, "auth.enabled needs a way to come in"),
        ({"http__tls_listen": "127.0.0.1:0"}, "tls.cert_file is needed"),
    ],
)
def test_a_start_that_would_fail(tmp_path: Path, settings: dict[str, object], said: str) -> None:
    assert [said in problem for problem in checked(tmp_path, **settings).wrong] == [True]


def test_a_certificate_needs_its_own_key(tmp_path: Path) -> None:
    chain, key = certificate(tmp_path, "one")
    _, other = certificate(tmp_path, "other")
    tls = {"http__tls_listen": "127.0.0.1:0", "tls__cert_file": str(chain)}
    found = checked(tmp_path, **tls, tls__key_file=str(key))
    assert f"tls.cert_file: {chain}, with its key, valid until 3000-01-01 00:00 UTC" in found.right
    assert found.doubts == []
    problems = checked(tmp_path, **tls, tls__key_file=str(other)).wrong
    assert problems == [
        f"tls.cert_file, key_file or client_ca_file: the key in {other} does not belong to the certificate in {chain}"
    ]


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (VERSION, f"whose storage has version {VERSION}"),
        (1, f"whose storage has version 1; a start makes {VERSION} of it: back it up first"),
    ],
)
def test_the_version_of_the_storage(tmp_path: Path, version: int, said: str) -> None:
    connection = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    prepare(connection, MIGRATIONS[:version])
    connection.close()
    before = (tmp_path / FILE_NAME).read_bytes()
    found = checked(tmp_path)
    assert (found.wrong, found.right[-1]) == ([], f"data.folder: {tmp_path}, {said}")
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_a_stopped_servers_folder_stays_as_it_is(tmp_path: Path) -> None:
    """Files of a write-ahead log that the check made would belong to the user who checks, and not to the one who serves."""
    writer = open_writer(tmp_path / FILE_NAME)
    prepare(writer)
    writer.close()
    assert checked(tmp_path).right[-1].endswith(f"has version {VERSION}")
    assert [file.name for file in tmp_path.iterdir()] == [FILE_NAME]


@pytest.mark.parametrize("linked", [False, True])
def test_what_is_in_the_log_of_a_running_server_counts(tmp_path: Path, linked: bool) -> None:
    folder, file = tmp_path, tmp_path / FILE_NAME
    if linked:
        folder, file = tmp_path / "data", tmp_path / "elsewhere.db"
        folder.mkdir()
        (folder / FILE_NAME).symlink_to(file)
    writer = open_writer(file)
    writer.execute("PRAGMA wal_autocheckpoint = 0")
    prepare(writer)
    found = checked(folder)
    writer.close()
    assert found.right[-1] == f"data.folder: {folder}, whose storage has version {VERSION}"


def test_a_newer_storage_and_what_is_none(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    connection = sqlite3.connect(file)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    (problem,) = checked(tmp_path).wrong
    assert "data.folder" in problem
    assert f"version {VERSION + 1}, written by a newer Penstock" in problem
    file.write_bytes(b"a letter to the editor " * 1000)
    (problem,) = checked(tmp_path).wrong
    assert "data.folder" in problem
    assert "not a database" in problem


@pytest.mark.parametrize(
    ("name", "url", "admin_url"),
    [
        ("url", "pulsar://me:s3cret@127.0.0.1:1", "http://127.0.0.1:1"),
        ("admin_url", "pulsar://127.0.0.1:1", "http://127.0.0.1:1,me:s3cret@127.0.0.1:1"),
        ("url", "kafka://127.0.0.1:1,me:s3cret@127.0.0.1:1", ""),
        ("url", "nats://me:s3cret@127.0.0.1:1", "http://127.0.0.1:1"),
    ],
)
def test_a_password_in_an_address_is_refused_and_not_shown(
    tmp_path: Path, name: str, url: str, admin_url: str
) -> None:
    found = checked(tmp_path, engine__url=url, engine__admin_url=admin_url)
    assert found.wrong == [
        f"engine.{name} may have no user or password in it: they are engine.username and engine.password"
    ]
    assert "s3cret" not in "".join(found.right)


@pytest.mark.parametrize(("listen", "code"), [("127.0.0.1:0", 0), ("off", 1)])
def test_the_command_answers_programs(tmp_path: Path, listen: str, code: int) -> None:
    arguments = ["--check", "--http", listen, "--pulsar", "off", "--data", str(tmp_path)]
    result = runner().invoke(serve_command, arguments, standalone_mode=False)
    assert result.return_value == code
    said = json.loads(result.stdout)
    assert said["valid"] is (code == 0)
    assert f"data.folder: {tmp_path}, where the storage is yet to be made" in said["checked"]
    assert result.stderr == "".join(f"penstock: {problem}\n" for problem in said["problems"])
    assert len(said["problems"]) == code


def test_a_folder_that_this_user_may_not_look_into(tmp_path: Path) -> None:
    """In a process of its own: root may look everywhere, and setuid is for good."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    tmp_path.chmod(0o711)
    code = (
        "import os, sys; from pathlib import Path\n"
        "from penstock.engines.storage import look; from penstock.model.errors import PenstockError\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: look(Path(sys.argv[1]), 'penstock.db')\n"
        "except PenstockError as error: print(error.message)"
    )
    data = closed / "a" / "data"
    command = [sys.executable, "-c", code, str(data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert done.stdout.startswith(f"data folder {data} cannot be used: ")
    assert " is not writable for user " in done.stdout


def test_an_error_of_the_system_is_a_problem_like_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    monkeypatch.setattr("penstock.server.check.look", refuse)
    assert checked(tmp_path).wrong == [f"[Errno 13] Permission denied: '{tmp_path}'"]


async def _said(*_: object) -> tuple[list[str], list[str]]:
    return ["no other principal"], ["User:app may write __penstock"]


def test_what_a_kafka_cluster_says_of_the_internal_topics_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.server.check.check_kafka", _said)
    found = checked(tmp_path, engine__url="kafka://127.0.0.1:1", fleet__secret=SECRET)
    assert found.wrong == []
    assert found.doubts == ["User:app may write __penstock"]
    assert "no other principal" in found.right


def test_an_internal_topic_that_clients_could_publish_to_is_a_problem(tmp_path: Path) -> None:
    settings = {"engine__url": "kafka://127.0.0.1:1", "engine__documents_topic": "docs"}
    (problem,) = checked(tmp_path, **settings).wrong
    assert problem.startswith("engine.documents_topic: docs is a topic of namespace public/default")


def test_several_processes_before_a_cluster_need_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulsar = {"engine__url": "pulsar://127.0.0.1:1", "engine__admin_url": "http://127.0.0.1:1"}
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found = checked(tmp_path, **pulsar)
    sentence = f"processes of this user on this machine share {tmp_path}/state/penstock/fleet.secret"
    assert any(sentence in said for said in found.right), found.right
    assert found.doubts == checked(tmp_path).doubts == []
    assert not (tmp_path / "state").exists()  # the check writes nothing
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    for given in ({"fleet__secret": SECRET}, {"fleet__secret_file": str(file)}):
        found = checked(tmp_path, **pulsar, **given)
        assert (found.doubts, found.wrong) == ([], [])
        assert "fleet.secret: given" in found.right
    for given, said in (
        ({"fleet__secret": "short"}, "shorter than 16 bytes"),
        ({"fleet__secret_file": str(tmp_path / "none")}, "fleet.secret_file: "),
        ({"fleet__secret": SECRET, "fleet__secret_file": str(file)}, "both given"),
        ({"fleet__secret": SECRET, "fleet__tls_trust_file": str(file)}, "fleet.tls_trust_file: "),
    ):
        wrong = checked(tmp_path, **pulsar, **given).wrong
        assert said in wrong[0]
        assert SECRET not in "".join(wrong)
