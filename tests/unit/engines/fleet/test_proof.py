"""Ids that name a process, and the sessions by which processes prove who they are."""

import base64

import msgspec
import pytest

from penstock.broker.fleet import CONNECT, Caller
from penstock.client.errors import AuthenticationError, ConnectError
from penstock.engines.fleet.sessions import (
    SESSIONS_MAX,
    Asking,
    ProcessAuthentication,
    Proof,
    Sessions,
    Welcome,
    new_process_id,
)
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.secret import Secret

OURS, OTHER = Proof(Secret("a secret of sixteen bytes")), Proof(Secret("another secret, also long"))
CALLER = Caller(address="192.0.2.7", port=4711, scheme="https", host="queue.example", role="ann")
HEADERS = ((b"authorization", b"Bearer x"), (b"accept", b"*/*"))


def test_an_id_names_its_process_and_cannot_be_made_without_the_secret() -> None:
    process = new_process_id()
    made = OURS.new_id(process)
    assert OURS.owner_of(made) == process
    assert OTHER.owner_of(made) is None
    assert OURS.owner_of(OTHER.new_id(process)) is None
    for at, letter in enumerate(made):
        changed = made[:at] + ("B" if letter == "A" else "A") + made[at + 1 :]
        assert OURS.owner_of(changed) is None
    for wrong in ("", "é", "a" * 10_000, made + "AAAA", made[:-4], " " + made):
        assert OURS.owner_of(wrong) is None


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(PenstockError, match="openssl rand") as raised:
        Proof(Secret("short"))
    assert raised.value.kind is ErrorKind.BAD_PARAMETER


class Pair:
    """A process that asks, and one that is asked, in a session."""

    def __init__(self) -> None:
        self.asker, self.asked = new_process_id(), new_process_id()
        self.sessions = Sessions(OURS, self.asked)
        self.asking = self.begin()

    def begin(self) -> Asking:
        asking = Asking(OURS, self.asker, self.asked)
        assert asking.welcomed(self.sessions.begin(asking.hello, 30))
        return asking

    def sign(self) -> bytes:
        return self.asking.sign(b"GET", b"/topics?x=1", HEADERS, CALLER)

    def refused(self, proof: bytes, **changed: object) -> str:
        how = {"method": b"GET", "target": b"/topics?x=1", "headers": HEADERS, **changed}
        with pytest.raises(PenstockError) as raised:
            self.sessions.accept(proof, **how)  # type: ignore[arg-type]
        assert raised.value.kind is ErrorKind.MISDIRECTED
        return raised.value.message


def test_a_request_is_accepted_once_and_as_it_was_signed() -> None:
    pair = Pair()
    first, second = pair.sign(), pair.sign()
    for changed in (
        {"method": b"POST"},
        {"target": b"/topics?x=2"},
        {"headers": ((b"authorization", b"Bearer y"),)},
        {"headers": ()},
        {"headers": (*HEADERS, (b"x-original-principal", b"root"))},
    ):
        assert "does not match the request" in pair.refused(first, **changed)
    assert pair.sessions.accept(first, b"GET", b"/topics?x=1", HEADERS) == CALLER
    assert pair.sessions.accept(second, b"GET", b"/topics?x=1", (*HEADERS, (b"via", b"proxy"))) == CALLER
    assert "before" in pair.refused(first)
    assert "before" in pair.refused(second)


def test_another_client_number_or_session_is_not_accepted() -> None:
    pair = Pair()
    session, number, _, code = pair.sign().split(b" ")
    forged = base64.urlsafe_b64encode(msgspec.json.encode(Caller(address="127.0.0.1", role="root")))
    for proof in (
        b" ".join((session, number, forged, code)),
        b" ".join((session, b"2", pair.sign().split(b" ")[2], code)),
        b" ".join((b"0" * len(session), number, forged, code)),
        b"",
        b"x",
        session,
        b" ".join((session, number, forged, b"\xff")),
        b" ".join((session, number, forged, code, code)),
    ):
        pair.refused(proof)
    other = Pair()
    assert "does not have" in other.refused(pair.sign())


def test_a_session_needs_the_secret_and_the_right_process() -> None:
    pair = Pair()
    for hello, said in (
        (Asking(OTHER, pair.asker, pair.asked).hello, "another fleet.secret"),
        (Asking(OURS, pair.asker, new_process_id()).hello, "has ended"),
        (msgspec.structs.replace(pair.asking.hello, asker=pair.asked), "another fleet.secret"),
        (msgspec.structs.replace(pair.asking.hello, version=2), "version 2"),
    ):
        with pytest.raises(PenstockError, match=said):
            pair.sessions.begin(hello, 30)


def test_only_the_process_that_was_asked_is_believed() -> None:
    asked = new_process_id()
    asking = Asking(OURS, new_process_id(), asked)
    right = Sessions(OURS, asked).begin(asking.hello, 30)
    repeated = Sessions(OURS, asked).begin(Asking(OURS, new_process_id(), asked).hello, 30)
    assert not asking.welcomed(Welcome(session="s", nonce="n", code="é", idle_s=1))
    assert not asking.welcomed(repeated)
    assert not asking.welcomed(msgspec.structs.replace(right, session="0"))
    assert asking.welcomed(right)


def test_connections_of_another_protocol_are_proven_in_a_session() -> None:
    pair = Pair()
    own = ProcessAuthentication(pair.asking)
    for proof in (own.data(), own.data()):
        assert pair.sessions.accept(proof, CONNECT, b"", ()) == Caller()
    with pytest.raises(PenstockError, match="before"):
        pair.sessions.accept(proof, CONNECT, b"", ())
    assert "the proof does not match the request" in pair.refused(own.data())
    assert not own.stale
    assert isinstance(own.refused(AuthenticationError("gone")), ConnectError), "another session helps"
    assert own.stale


def test_sessions_are_bounded_and_the_ones_in_use_stay() -> None:
    pair = Pair()
    old = Asking(OURS, pair.asker, pair.asked)
    old.welcomed(pair.sessions.begin(old.hello, 30))
    for _ in range(SESSIONS_MAX - 2):
        pair.sessions.begin(pair.asking.hello, 30)
    pair.sessions.accept(pair.sign(), b"GET", b"/topics?x=1", HEADERS)
    pair.sessions.begin(pair.asking.hello, 30)
    pair.sessions.accept(pair.sign(), b"GET", b"/topics?x=1", HEADERS)
    assert "does not have" in pair.refused(old.sign(b"GET", b"/topics?x=1", HEADERS, CALLER))
