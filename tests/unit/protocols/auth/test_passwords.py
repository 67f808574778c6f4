"""Users with passwords: the file, what is checked and what is remembered."""

import asyncio
from pathlib import Path

import pytest

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.auth import passwords
from penstock.protocols.auth.passwords import Basic, Hash, hash_password, pair_of, read_users, write_users
from penstock.protocols.auth.principal import peer_role, scope_role
from penstock.protocols.auth.watched import LOOK_MS, WatchedFile


class Time:
    ms = 0

    def __call__(self) -> int:
        return self.ms


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "_N", 16)


def users(folder: Path, time: Time | None = None, **by_name: str) -> Basic:
    file = folder / "users"
    file.write_bytes(write_users({name: hash_password(word.encode()) for name, word in by_name.items()}))
    return Basic(WatchedFile("auth.basic_file", str(file), read_users, time or Time()))


async def refused(found: Basic, pair: bytes) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        await found.verify(pair)
    return caught.value


def test_a_file_is_read_as_it_was_written() -> None:
    kept = {"alice": hash_password(b"a"), "Zoë": hash_password("pässword".encode())}
    content = b"# who may come in\n\n" + write_users(kept)
    assert read_users(content) == kept
    assert kept["Zoë"].matches("pässword".encode())
    assert not kept["Zoë"].matches(b"password")
    assert hash_password(b"a").digest != hash_password(b"a").digest  # by the salt


@pytest.mark.parametrize(
    "line",
    [
        "alice",
        "alice:secret",
        "alice:scrypt:1:8:1:AAAA:AAAA",
        "alice:scrypt:17:8:1:c2FsdHNhbHQ=:" + "A" * 44,
        ":x",
    ],
)
def test_lines_that_are_none(line: str) -> None:
    with pytest.raises(ValueError, match="line 2 is not name:scrypt"):
        read_users(f"# users\n{line}\n".encode())


def test_hashes_that_would_eat_the_memory() -> None:
    huge = Hash(1 << 20, 32, 1, b"s" * 16, b"d" * 32)
    with pytest.raises(ValueError, match="line 1"):
        read_users(f"alice:{huge}".encode())


async def test_names_and_passwords(tmp_path: Path) -> None:
    found = users(tmp_path, alice="a:b", bob="b")
    assert (await found.verify(b"alice:a:b")).role == "alice"
    for pair in (
        b"alice:b",
        b"alice:",
        b"alice",
        b"",
        b"carol:b",
        b":b",
        b"bob:" + b"b" * 2000,
        b"\xff:\xff",
    ):
        error = await refused(found, pair)
        assert (error.kind, error.message) == (ErrorKind.UNAUTHENTICATED, "the name or the password is wrong")


async def test_what_was_right_is_remembered_until_the_file_changes(tmp_path: Path) -> None:
    clock = Time()
    found = users(tmp_path, clock, alice="a")
    assert found.known(b"alice:a") is None
    principal = await found.verify(b"alice:a")
    assert found.known(b"alice:a") is principal
    assert found.known(b"alice:b") is None
    users(tmp_path, alice="other")
    clock.ms += LOOK_MS
    assert found.known(b"alice:a") is None
    await refused(found, b"alice:a")
    assert (await found.verify(b"alice:other")).role == "alice"


async def test_guessing_is_bounded_and_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = users(tmp_path, alice="a")
    hold = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(self: Hash, password: bytes) -> bool:
        asyncio.run_coroutine_threadsafe(hold.wait(), loop).result(30)
        return False

    monkeypatch.setattr(Hash, "matches", slow)
    guesses = asyncio.gather(
        *(found.verify(b"alice:%d" % number) for number in range(passwords.WAITING_MAX + 3)),
        return_exceptions=True,
    )
    for _ in range(3):  # the loop goes round while passwords are checked
        await asyncio.sleep(0)
    hold.set()
    kinds = [error.kind for error in await guesses if isinstance(error, PenstockError)]
    assert kinds.count(ErrorKind.TOO_MANY_REQUESTS) == 3
    assert kinds.count(ErrorKind.UNAUTHENTICATED) == passwords.WAITING_MAX


async def test_what_is_remembered_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "REMEMBERED_MAX", 2)
    found = users(tmp_path, a="1", b="2", c="3")
    for pair in (b"a:1", b"b:2", b"c:3"):
        await found.verify(pair)
    assert [found.known(pair) is None for pair in (b"a:1", b"b:2", b"c:3")] == [True, False, False]


def test_base64_that_is_none() -> None:
    assert pair_of(b" YTpi ") == b"a:b"
    for text in (b"a:b", b"\xff", b"YQ"):
        with pytest.raises(PenstockError):
            pair_of(text)


class Transport:
    def __init__(self, certificate: object) -> None:
        self._certificate = certificate

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._certificate if name == "peercert" else default


@pytest.mark.parametrize(
    ("certificate", "role"),
    [
        (None, None),
        ({}, None),  # not verified
        ({"subject": ((("commonName", "alice"),),)}, "alice"),
        ({"subject": ((("organizationName", "acme"), ("commonName", "alice")),)}, "alice"),
        ({"subject": ((("commonName", "alice"),), (("commonName", "root"),))}, None),
        ({"subject": ((("organizationName", "acme"),),)}, None),
    ],
)
def test_the_role_of_a_certificate(certificate: object, role: str | None) -> None:
    assert peer_role(Transport(certificate)) == role
    assert scope_role({"state": {"peercert": certificate}}) == role
    assert scope_role({}) is None
