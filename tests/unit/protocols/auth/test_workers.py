"""What a worker says of itself and of its callers to the process that owns the log."""

from base64 import b64encode

import pytest

from penstock.engines.worker.broker import WorkerAuthentication
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.secret import Secret
from penstock.model.worker import WorkerAccess
from penstock.protocols.auth.workers import Workers

SECRET = Secret("what the supervisor made")
WORKERS = Workers(SECRET)


def authorization(worker: WorkerAuthentication) -> bytes:
    return worker.headers()["Authorization"].encode()


def test_a_worker_acts_for_itself_or_for_a_caller() -> None:
    own = WorkerAuthentication(SECRET)
    assert WORKERS.acting(own.data()) is None
    assert WORKERS.is_own(authorization(own))

    caller = WorkerAuthentication(SECRET, "alice")
    principal = WORKERS.acting(caller.data())
    assert principal is not None
    assert [one.role for one in principal.chain] == ["alice"]
    assert not WORKERS.is_own(authorization(caller))

    proxied = WORKERS.acting(WorkerAuthentication(SECRET, "alice", "proxy").data())
    assert proxied is not None
    assert [one.role for one in proxied.chain] == ["alice", "proxy"]


def test_other_credentials_are_not_a_worker_s() -> None:
    assert not WORKERS.is_own(None)
    assert not WORKERS.is_own(b"Bearer token")
    assert not WORKERS.is_own(b"Basic dTpw")


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"secret":1}', b'{"secret":""}'])
def test_wrong_credentials_are_refused(data: bytes) -> None:
    stranger = WorkerAuthentication(Secret("guessed"), "alice").data()
    for given in (data, stranger):
        with pytest.raises(PenstockError) as caught:
            WORKERS.acting(given)
        assert caught.value.kind is ErrorKind.UNAUTHENTICATED
        with pytest.raises(PenstockError):
            WORKERS.is_own(b"penstock-worker " + b64encode(given))
    with pytest.raises(PenstockError):
        WORKERS.is_own(b"penstock-worker !")


def test_an_address_names_no_secret() -> None:
    access = WorkerAccess("127.0.0.1:1", "127.0.0.1:2", "abc", SECRET)
    assert SECRET.reveal() not in str(access) + repr(access)
    assert WorkerAccess.parse(str(access), SECRET) == access
