"""Whose a writer of staged batches is, and when it is forgotten."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support.stages import issuer, of, refused, stage, topic

from penstock.broker.settings import BrokerSettings
from penstock.client.access import Access
from penstock.model.errors import ErrorKind
from penstock.pipeline.http.stages import Stages
from penstock.testing.server import Address, running

LAST = 2**63 - 1


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    with running(tmp_path_factory.mktemp("data")) as address:
        yield address


@pytest.fixture
def client(server: Address) -> Iterator[Stages]:
    with Stages(Access(url=server.url), retry_s=0) as made:
        yield made


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    settings = issuer.settings(super_users=("root",))
    with running(tmp_path_factory.mktemp("secured"), auth=settings) as address:
        with httpx.Client(base_url=address.url, headers=issuer.headers("root"), trust_env=False) as root:
            root.post("/topics/public/default/first", json={"messages": []})
            grants = "/admin/v2/persistent/public/default"
            for role, name in (("alice", "ours"), ("bob", "ours"), ("mallory", "elsewhere")):
                root.put(f"{grants}/{name}")
                assert root.post(f"{grants}/{name}/permissions/{role}", json=["produce"]).status_code == 204
        yield address


def test_a_strangers_empty_batch_with_the_highest_number(secured: Address) -> None:
    with of("alice", secured) as alice, of("mallory", secured) as mallory:
        held = [stage(alice, "etl", 1, "s", ours=2)]
        for targets in ([], [topic("ours")], [topic("elsewhere")]):
            assert refused(mallory.commit, "etl", LAST, [], targets).kind is ErrorKind.FORBIDDEN
        assert not alice.commit("etl", 1, held, [topic("ours")])["repeated"]
        for targets in ([], [topic("ours")], [topic("elsewhere")]):
            assert refused(mallory.commit, "etl", LAST, [], targets).kind is ErrorKind.FORBIDDEN
        done = alice.commit("etl", 2, [stage(alice, "etl", 2, "s", ours=3)], [topic("ours")])
        assert not done["repeated"]
        assert [s["end_offset"] - s["offset"] for s in done["spans"]] == [3]


def test_a_writer_belongs_to_the_role_that_staged_first(tmp_path: Path) -> None:
    auth = issuer.settings(
        super_users=("root",), permissions={"public/default": {r: ["produce"] for r in "ab"}}
    )
    with running(tmp_path, auth=auth) as server, of("a", server) as a:
        held = stage(a, "w", 1, "s", ours=1)
    with (
        running(tmp_path, auth=auth) as server,
        of("a", server) as a,
        of("b", server) as b,
        of("root", server) as root,
    ):
        for stranger in (b, root):
            assert refused(stage, stranger, "w", 1, "t", ours=1).kind is ErrorKind.FORBIDDEN
            assert refused(stranger.commit, "w", 1, [held]).kind is ErrorKind.FORBIDDEN
            assert refused(stranger.commit, "w", 1, [held], [topic("ours")]).kind is ErrorKind.FORBIDDEN
            assert refused(stranger.abort, "w", 1).kind is ErrorKind.FORBIDDEN
        for call in (b.status, b.forget):
            assert refused(call, "w").kind is ErrorKind.FORBIDDEN
        assert root.status("w")["owner"] == "a"
        assert a.status("w")["staged"][0]["batch"] == 1
        assert not a.commit("w", 1, [held], [topic("ours")])["repeated"]
        root.forget("w")
        b.commit("w", 0, [stage(b, "w", 0, "s", ours=1)], [topic("ours")])
        assert refused(a.status, "w").kind is ErrorKind.FORBIDDEN


def test_a_role_declares_only_topics_that_it_may_publish_to(secured: Address) -> None:
    with of("bob", secured) as bob:
        assert (
            refused(bob.commit, "declared", 1, [], [topic("ours"), topic("elsewhere")]).kind
            is ErrorKind.FORBIDDEN
        )
        assert bob.status("declared")["targets"] == []
        assert not bob.commit("declared", 1, [], [topic("ours")])["repeated"]


def test_a_writer_without_an_owner_is_taken_by_the_first_role(tmp_path: Path) -> None:
    with running(tmp_path) as server, Stages(Access(url=server.url), retry_s=0) as anybody:
        anybody.commit("w", 1, [stage(anybody, "w", 1, "s", ours=1)], [topic("ours")])
        assert anybody.status("w")["owner"] == ""
    auth = issuer.settings(
        super_users=("root",), permissions={"public/default": {r: ["produce"] for r in "ab"}}
    )
    with running(tmp_path, auth=auth) as server, of("a", server) as a, of("b", server) as b:
        for call in (a.status, a.forget):
            assert refused(call, "w").kind is ErrorKind.FORBIDDEN, "before it is his"
        held = [stage(a, "w", 2, "s", ours=1)]
        assert refused(stage, b, "w", 2, "t", ours=1).kind is ErrorKind.FORBIDDEN
        assert not a.commit("w", 2, held, [topic("ours")])["repeated"]
    with running(tmp_path) as server, Stages(Access(url=server.url), retry_s=0) as anybody:
        assert anybody.status("w")["owner"] == "a"
        anybody.commit("w", 3, [], [topic("ours")])


def test_writers_are_listed_in_pages(secured: Address) -> None:
    def listed(role: str, **params: object) -> tuple[list[str], str | None]:
        found = httpx.get(f"{secured.url}/stages", headers=issuer.headers(role), params=params).json()  # type: ignore[arg-type]
        return [writer["writer"] for writer in found["writers"]], found["next"]

    names = [f"page-{number}" for number in range(5)]
    with of("mallory", secured) as mallory, of("bob", secured) as bob:
        bob.commit("of-bob", 1, [])
        for name in names:
            mallory.commit(name, 1, [])
        stage(mallory, "page-0", 2, "s", elsewhere=4)
    assert listed("mallory") == (names, None)
    assert listed("mallory", max_writers=2) == (names[:2], "page-1")
    assert listed("mallory", max_writers=3, after="page-1") == (names[2:], None)
    everybodys, _ = listed("root")
    assert {*names, "of-bob"} <= {*everybodys}
    assert not {*names} & {*listed("bob")[0]}
    answer = httpx.get(f"{secured.url}/stages", headers=issuer.headers("mallory")).json()["writers"][0]
    assert (answer["owner"], answer["staged_batches"], answer["targets"][0]["batch"]) == ("mallory", 1, 1)
    assert httpx.get(f"{secured.url}/stages").status_code == 401
    assert httpx.get(f"{secured.url}/stages?max_writers=0", headers=issuer.headers("bob")).status_code == 400


def test_a_writer_that_is_staging_is_not_forgotten(server: Address, client: Stages) -> None:
    client.commit("busy", 1, [stage(client, "busy", 1, "s", busy=1)], [topic("busy")])
    held = stage(client, "busy", 2, "s", busy=1)
    error = refused(client.forget, "busy")
    assert error.kind is ErrorKind.STAGE_CONFLICT
    assert "1 batches" in error.message
    client.forget("busy", [topic("busy")])
    assert refused(client.forget, "busy", [topic("busy")]).kind is ErrorKind.NOT_FOUND
    assert not client.commit("busy", 2, [held], [topic("busy")])["repeated"]
    stage(client, "busy", 3, "s", busy=1)
    answer = httpx.delete(f"{server.url}/stages/busy", params={"force": "true"})
    assert answer.json() == {"forgotten": "busy", "topics": None}
    assert client.status("busy") == {"writer": "busy", "owner": "", "at": 0, "targets": [], "staged": []}
    assert refused(client.forget, "busy").kind is ErrorKind.NOT_FOUND


def test_one_role_cannot_take_all_writers(tmp_path: Path) -> None:
    permissions = {"public/default": {"many": ["produce"], "honest": ["produce"]}}
    auth = issuer.settings(permissions=permissions)
    bounds = BrokerSettings(max_writers_per_role=3)
    with (
        running(tmp_path, auth=auth, broker=bounds) as server,
        of("many", server) as many,
        of("honest", server) as honest,
    ):
        for number in range(3):
            many.commit(f"many-{number}", 1, [])
        assert refused(many.commit, "many-3", 1, []).kind is ErrorKind.TOO_MANY_REQUESTS
        assert refused(stage, many, "many-3", 1, "s", t=1).kind is ErrorKind.TOO_MANY_REQUESTS
        assert refused(many.commit, "many-0", 1, [], [topic("t")]).kind is ErrorKind.TOO_MANY_REQUESTS
        many.commit("many-0", 2, [])
        honest.commit("first", 1, [stage(honest, "first", 1, "s", t=1)], [topic("t")])
        many.forget("many-1")
        many.commit("many-3", 1, [])
