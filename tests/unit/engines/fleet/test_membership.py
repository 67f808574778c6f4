"""What processes believe of one another: signed documents, renewed, of addresses that lead there."""

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from penstock.broker.fleet import Learned, Process
from penstock.engines.fleet.fleet import ProcessFleet
from penstock.engines.fleet.membership import (
    LAPSE,
    REMOVED_LAPSE,
    Membership,
    decode,
    encode,
    encode_end,
    is_end,
)
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.secret import Secret
from penstock.runtime.tasks import Tasks
from penstock.testing.clock import ManualClock, settle

SECRET, OTHER = Secret("a secret of sixteen bytes"), Secret("another secret, also long")
VECTORS = Path(__file__).parents[3] / "vectors" / "cluster"
URL = "http://127.0.0.1:8080"


class Shared:
    """Documents of one cluster, of all processes before it."""

    def __init__(self) -> None:
        self.documents: dict[str, bytes] = {}
        self.listeners: list[Learned] = []
        self.asked = 0
        self.away = False

    def _check(self) -> None:
        if self.away:
            raise PenstockError(ErrorKind.UNAVAILABLE, "the cluster does not answer")

    async def start(self, learned: Learned) -> None:
        self._check()
        for key, document in self.documents.items():
            learned(key, document)
        self.listeners.append(learned)

    async def write(self, key: str, document: bytes) -> None:
        self._check()
        self.documents[key] = document
        for learned in self.listeners:
            learned(key, document)

    async def remove(self, key: str, last: bytes = b"") -> None:
        self._check()
        self.documents.pop(key, None)
        for document in (last, None) if last else (None,):
            for learned in self.listeners:
                learned(key, document)

    async def catch_up(self) -> None:
        self.asked += 1


class Member:
    def __init__(self, shared: Shared, secret: Secret = SECRET, machine: str = "m") -> None:
        self.tasks = Tasks()
        self.fleet = ProcessFleet(secret)
        self.membership = Membership(self.fleet, shared, self.tasks, ManualClock(), machine=machine)

    @property
    def others(self) -> dict[str, str]:
        return {peer.process.id: peer.process.url for peer in self.fleet}


@asynccontextmanager
async def members(*made: Member, url: str = URL) -> AsyncIterator[None]:
    for one in made:
        await one.membership.start(url)
    try:
        yield
    finally:
        for one in made:
            await one.membership.close()
            await one.tasks.close()


async def test_processes_know_one_another_until_they_end() -> None:
    shared = Shared()
    one, other = Member(shared), Member(shared)
    async with members(one, other):
        assert one.others == {other.fleet.id: URL}
        assert other.others == {one.fleet.id: URL}
        await other.membership.close()
        assert one.others == {}
    assert shared.documents == {}


async def test_a_process_that_renews_nothing_has_ended() -> None:
    shared = Shared()
    one, other = Member(shared), Member(shared)
    async with members(one, other):
        for _ in range(LAPSE):
            assert one.others == {other.fleet.id: URL}
            await one.membership.renew()
        await one.membership.renew()
        assert one.others == {}
        assert list(shared.documents) == [one.fleet.id]
        await other.membership.renew()
        assert one.others == {other.fleet.id: URL}


async def test_a_process_whose_document_others_remove_goes_on() -> None:
    shared = Shared()
    one, other = Member(shared), Member(shared)
    async with members(one, other):
        (peer,) = one.fleet
        for proof in (b"", b"{}", encode_end(ProcessFleet(OTHER), other.fleet.id)):
            await shared.remove(other.fleet.id, proof)
            assert list(one.fleet) == [peer]  # with the requests that it has
        await settle()
        assert shared.documents.keys() == {one.fleet.id, other.fleet.id}
        for _ in range(LAPSE):
            await one.membership.renew()
        assert list(one.fleet) == [peer]

        other.membership._restored = asyncio.get_running_loop().time() + 1000
        await other.membership.renew()
        await shared.remove(other.fleet.id)  # it does not write again
        for _ in range(REMOVED_LAPSE):
            await one.membership.renew()
            assert list(one.fleet) == [peer]
        await one.membership.renew()
        assert one.others == {}


async def test_only_own_renewals_count() -> None:
    shared = Shared()
    one, other, stranger = Member(shared), Member(shared), Member(shared, OTHER)
    async with members(one, other):
        own = shared.documents[one.fleet.id]
        forged = encode(stranger.fleet, Process(id=one.fleet.id, url=URL), "m")
        for _ in range(2 * LAPSE):
            await shared.write(one.fleet.id, own)
            shared.away = True
            await one.membership.renew()
            shared.away = False
            await shared.write(one.fleet.id, forged)
            one.membership._renewing = False
        await one.membership.renew()
        assert one.others == {other.fleet.id: URL}
        await settle()
        assert shared.documents[one.fleet.id] == own


async def test_a_cluster_that_is_away_ends_no_process(caplog: pytest.LogCaptureFixture) -> None:
    shared = Shared()
    one, other = Member(shared), Member(shared)
    async with members(one, other):
        shared.away = True
        for _ in range(3 * LAPSE):
            await one.membership.renew()
        assert one.others == {other.fleet.id: URL}
        assert caplog.text.count("processes do not know one another") == 1
        shared.away = False
        await one.membership.renew()
        assert one.others == {other.fleet.id: URL}


async def test_a_cluster_that_is_away_at_the_start_is_tried_again() -> None:
    shared = Shared()
    shared.away = True
    one, other = Member(shared), Member(shared)
    async with members(one, other):
        assert one.others == other.others == {}
        shared.away = False
        for member in (one, other):
            await member.membership.renew()
        assert one.others == {other.fleet.id: URL}
        assert other.others == {one.fleet.id: URL}


async def test_processes_of_another_secret_are_a_problem_while_they_renew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shared = Shared()
    one, ended, killed = Member(shared), Member(shared, OTHER), Member(shared, OTHER)
    async with members(one, ended, killed):
        assert (one.fleet.problem or "").startswith(
            "2 other processes before the cluster use another fleet.secret"
        )
        await ended.membership.close()
        assert (one.fleet.problem or "").startswith("1 other processes")
        for _ in range(LAPSE):
            await killed.membership.renew()
            await one.membership.renew()
        for _ in range(LAPSE):
            assert one.fleet.problem is not None
            await one.membership.renew()
        await one.membership.renew()
        assert one.fleet.problem is None
        assert killed.fleet.id not in shared.documents  # a process that starts later does not count it
        await killed.membership.renew()
        assert one.fleet.problem is not None
        logged = [getattr(each, "process_id", "") for each in caplog.records]
        assert logged.count(killed.fleet.id) == 1


async def test_processes_of_other_machines_need_an_address() -> None:
    shared = Shared()
    one, other = Member(shared), Member(shared, machine="another")
    async with members(one, other):
        assert "set their http.advertise" in (one.fleet.problem or "")
    apart = Shared()
    one, other = Member(apart), Member(apart, machine="another")
    async with members(one, other, url="http://10.0.0.1:8080"):
        assert one.fleet.problem is None


async def test_a_document_of_another_secret_or_id_is_not_believed() -> None:
    shared = Shared()
    one, stranger = Member(shared), Member(shared, OTHER)
    async with members(one, stranger):
        assert one.others == {}
        made = Process(id="0" * 16, url="http://attacker.example")
        signed = encode(one.fleet, made, "m")
        for key, document in (
            ("1" * 16, signed),
            ("0" * 16, signed.replace(b"attacker", b"attack3r")),
            ("0" * 16, encode(stranger.fleet, made, "m")),
            ("0" * 16, msgspec.json.encode({"document": "{}", "code": "é"})),
            ("0" * 16, b"{}"),
            ("0" * 16, b"\xff"),
            ("\ud800", b"null"),
        ):
            await shared.write(key, document)
            assert one.others == {}
        assert decode(one.fleet, "0" * 16, signed, "m") == made


async def test_loopback_addresses_of_another_machine_are_left_out() -> None:
    shared = Shared()
    one, other = Member(shared), Member(shared, machine="n")
    async with members(one, other):
        assert one.others == {other.fleet.id: ""}
        await other.membership.start("http://10.0.0.7:8080")
        assert one.others == {other.fleet.id: "http://10.0.0.7:8080"}


async def test_an_unknown_process_is_looked_up_seldom() -> None:
    shared = Shared()
    one = Member(shared)
    async with members(one):
        await asyncio.gather(*(one.membership.look_up() for _ in range(50)))
        assert shared.asked == 1


def test_documents_of_every_version_are_read() -> None:
    for name, kind in (("kafka", "documents"), ("pulsar", "processes")):
        stored = msgspec.json.decode((VECTORS / f"{name}-1.json").read_bytes())[kind]
        texts = [b64decode(one["value"]) for one in stored if one["value"]]
        fleet = ProcessFleet(Secret("the secret of these vectors"))
        (process,) = (found for text in texts if (found := decode(fleet, "0123456789abcdef", text, "")))
        ends = [text for text in texts if is_end(fleet, "0123456789abcdef", text)]
        assert len(ends) == (kind == "processes")
        assert process.url == "http://10.0.0.5:8001"
        assert process.pulsar_url == "pulsar://10.0.0.5:6651"


async def test_without_a_place_for_documents_a_process_stays_alone(caplog: pytest.LogCaptureFixture) -> None:
    class Refusing(Shared):
        async def start(self, learned: Learned) -> None:
            raise PenstockError(ErrorKind.FORBIDDEN, "the role may not consume")

    one = Member(Refusing())
    async with members(one):
        assert one.others == {}
    assert "processes do not know one another" in caplog.text
