"""Keys, tokens and users are written for their owner alone, whole or not at all, and over nothing."""

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from penstock.cli.credentials import tokens_command as tokens
from penstock.cli.credentials import users_command as users
from penstock.cli.secret_files import write_secret


@pytest.fixture(autouse=True)
def open_to_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In a folder of its own, with a umask that lets everyone read."""
    monkeypatch.chdir(tmp_path)
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: str) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


def run(*arguments: str, group: click.Group = tokens, text: str = "") -> Result:
    return CliRunner().invoke(group, arguments, input=text)


def test_a_token_goes_to_a_file_of_its_owner() -> None:
    assert run("create-secret-key", "--output", "k").exit_code == 0
    create = ("create", "--secret-key", "k", "--subject", "root", "--output", "root.token")
    made = run(*create)
    assert (made.exit_code, made.output) == (0, "root.token\n")
    token = Path("root.token").read_text()
    assert token.count(".") == 2
    assert token.endswith("\n")
    assert (mode("k"), mode("root.token")) == (0o600, 0o600)
    assert "root" in run("validate", "--secret-key", "k", text=token).output
    again = run(*create, "--claim", "a=b")
    assert again.exit_code == 1
    assert "is there already" in again.output
    assert Path("root.token").read_text() == token
    Path("root.token").chmod(0o644)
    assert run(*create, "--claim", "a=b", "--force").exit_code == 0
    assert Path("root.token").read_text() != token
    assert mode("root.token") == 0o600
    printed = run(*create[:-2])
    assert printed.output.count(".") == 2
    assert sorted(path.name for path in Path().iterdir()) == ["k", "root.token"]


def test_key_pairs_and_users() -> None:
    pair = ("create-key-pair", "-a", "ES256", "--output-private-key", "private.pem", "--output-public-key")
    assert run(*pair, "public.pem").exit_code == 0
    assert (mode("private.pem"), mode("public.pem")) == (0o600, 0o644)
    Path("private.pem").unlink()
    assert run(*pair, "public.pem").exit_code == 1
    assert not Path("private.pem").exists()  # no private key without its public one
    for name in ("alice", "bob"):
        added = run("add", "users.txt", name, "--password-stdin", group=users, text="secret\n")
        assert added.exit_code == 0, added.output
    assert mode("users.txt") == 0o600


@pytest.mark.parametrize("force", [("--force",), ()])
@pytest.mark.parametrize("kind", ["link", "broken link", "pipe", "socket"])
def test_only_regular_files_are_replaced(kind: str, force: tuple[str, ...]) -> None:
    """What `--output /dev/stdout` names is a link, and a device behind it: neither may become a file."""
    assert run("create-secret-key", "--output", "k").exit_code == 0
    Path("target").write_text("of another")
    out = Path("out")
    if kind == "pipe":
        os.mkfifo(out)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(out))
    else:
        out.symlink_to("target" if kind == "link" else "nothing")
    before, names = out.lstat(), sorted(path.name for path in Path().iterdir())
    made = run("create", "--secret-key", "k", "--subject", "root", "--output", "out", *force)
    assert made.exit_code == 1
    assert "out is not a regular file" in made.output
    after = out.lstat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert sorted(path.name for path in Path().iterdir()) == names
    assert Path("target").read_text() == "of another"


def test_a_file_that_comes_meanwhile_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def fsync(file: int) -> None:
        Path("k").write_text("of another")
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(click.ClickException, match="is there already"):
        write_secret(Path("k"), b"secret")
    assert [(path.name, path.read_text()) for path in Path().iterdir()] == [("k", "of another")]


def test_what_cannot_be_written_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(click.ClickException, match="No space left"):
        write_secret(Path("k"), b"secret")
    assert list(Path().iterdir()) == []
