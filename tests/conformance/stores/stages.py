"""What is staged, and its commits."""

import asyncio
from itertools import pairwise

import pytest

from penstock.model.entry import AppendResult, Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.stage import FORGOTTEN, Commit, Span, StagedRun, StageKey, StageRun, Writer

from .bench import ALL, TOPIC, Bench, PortSuite, entry


class StageSuite(PortSuite):
    """Tests of `StageStore`, `CommitStore` and `WriterStore`."""

    async def test_what_is_staged_is_seen_by_nobody_before_its_commit(self, bench: Bench) -> None:
        ledger = await bench.log()
        await bench.store.append(ledger, [entry(b"before", 2, 10)])
        await bench.stage("s", 0, ledger, entry(b"one", 3, 20, deliver_at=7), entry(b"two", 1, 21))
        assert [e.data for e in await bench.read(ledger)] == [b"before"]
        assert (await bench.store.open(TOPIC)).next_offset == 2

        commit = await bench.store.commit_stages(Commit("w", 0, 99), ["s"])

        span = Span(TOPIC, ledger, entry_id=1, entries=2, offset=2, messages=4, size_bytes=6)
        assert commit == Commit("w", 0, 99, spans=(span,))
        expected = [
            Entry(ledger, 0, 0, 2, 10, 0, b"before"),
            Entry(ledger, 1, 2, 3, 99, 7, b"one"),
            Entry(ledger, 2, 5, 1, 99, 0, b"two"),
        ]
        assert await bench.read(ledger) == expected
        assert await bench.store.append(ledger, [entry(b"after")]) == AppendResult(3, 6)
        assert await bench.store.find_offset(ledger, 4) == expected[1]
        assert await bench.store.find_time(ledger, 50) == expected[1]
        await bench.reopen()
        state = await bench.store.open(TOPIC)
        assert (state.next_entry, state.next_offset, state.size_bytes) == (4, 7, 6 + 6 + 5)
        assert (await bench.read(ledger))[:3] == expected
        assert await bench.store.load_stages() == ([], [])
        assert await bench.store.find_commit("w", ()) == commit

    async def test_a_commit_takes_stages_and_parts_in_order_over_several_logs(self, bench: Bench) -> None:
        one, two = await bench.log("a"), await bench.log("b")
        key = StageKey("w", 5, "second")
        await bench.store.stage(
            key, 0, 1, 1, [StageRun(two, "b", [entry(b"b3")]), StageRun(one, "a", [entry(b"a3")])]
        )
        await bench.stage("first", 1, one, entry(b"a2"), topic="a", batch=5)
        await bench.stage("first", 0, one, entry(b"a1"), topic="a", batch=5)
        await bench.stage("lost", 0, one, entry(b"lost"), topic="a", batch=5)

        lost = [StageKey("w", 5, "lost"), StageKey("w", 5, "not there")]
        given = Commit("w", 5, 9, ("a", "b"), False, "digest")
        commit = await bench.store.commit_stages(given, ["first", "second"], lost)

        assert [e.data for e in await bench.read(one)] == [b"a1", b"a2", b"a3"]
        assert [e.data for e in await bench.read(two)] == [b"b3"]
        assert {span.topic: span.messages for span in commit.spans} == {"a": 3, "b": 1}
        assert await bench.store.load_stages() == ([], [])
        assert await bench.store.find_commit("w", ("a", "b")) == commit
        assert (commit.keep, commit.stages) == (False, "digest")

    async def test_sequence_ids_of_staged_entries_are_not_stored(self, bench: Bench) -> None:
        ledger = await bench.log()
        await bench.stage("s", 0, ledger, entry(b"one", producer="p", sequence_id=7))
        await bench.store.commit_stages(Commit("w", 0, 99), ["s"])
        assert (await bench.store.open(TOPIC)).producers == {}
        await bench.reopen()
        assert (await bench.store.open(TOPIC)).producers == {}

    async def test_a_batch_is_committed_once(self, bench: Bench) -> None:
        ledger = await bench.log()
        await bench.stage("s", 0, ledger, entry(b"x"), batch=3)
        commit = await bench.store.commit_stages(Commit("w", 3, 9), ["s"])
        for again in (3, 2, 0):
            await bench.stage("t", 0, ledger, entry(b"again"), batch=again)
            assert await bench.store.commit_stages(Commit("w", again, 10), ["t"]) == commit
            await bench.store.drop_stages([StageKey("w", again, "t")])
        await bench.reopen()
        await bench.log()
        assert await bench.store.commit_stages(Commit("w", 3, 11), ["s"]) == commit
        assert [e.data for e in await bench.read(ledger)] == [b"x"]
        empty = await bench.store.commit_stages(Commit("w", 4, 12), [])
        assert empty == Commit("w", 4, 12)
        await bench.stage("s", 0, ledger, entry(b"other"), writer="v")
        await bench.store.commit_stages(Commit("v", 0, 13), ["s"])
        assert [e.data for e in await bench.read(ledger)] == [b"x", b"other"]
        await bench.store.forget_writers(["w", "not there"])
        assert await bench.store.find_commit("w", ()) is None
        assert await bench.store.find_commit("v", ()) is not None

    async def test_batches_are_counted_for_each_set_of_topics(self, bench: Bench) -> None:
        ledger = await bench.log()
        await bench.store.save_writer(Writer("w", "", "", 1))
        made = {}
        for topics, batch in (((), 3), (("a",), 2), (("a", "b"), 1)):
            await bench.stage("s", 0, ledger, entry(b"x", batch), batch=batch)
            made[topics] = await bench.store.commit_stages(Commit("w", batch, batch, topics), ["s"])
            again = Commit("w", batch, 99, topics)
            assert await bench.store.commit_stages(again, []) == made[topics]
        await bench.reopen()
        for topics, commit in made.items():
            assert await bench.store.find_commit("w", topics) == commit
        assert await bench.store.find_commit("w", ("b",)) is None
        targets = [commit.target for commit in made.values()]
        assert sorted(await bench.store.list_targets("w"), key=lambda t: t.topics or ()) == targets
        assert await bench.store.forget_commit("w", ("a",))
        assert not await bench.store.forget_commit("w", ("a",))
        assert await bench.store.find_commit("w", ("a",)) is None
        assert await bench.store.find_commit("w", ("a", "b")) == made["a", "b"]

    async def test_a_commit_without_topics_stands_for_all_that_have_none(self, bench: Bench) -> None:
        """It was made before commits named their topics."""
        old = await bench.store.commit_stages(Commit("w", 5, 9, None), [])
        for topics in ((), ("a",)):
            assert await bench.store.find_commit("w", topics) == old
            assert await bench.store.commit_stages(Commit("w", 5, 10, topics), []) == old
        new = await bench.store.commit_stages(Commit("w", 6, 10, ("a",)), [])
        assert await bench.store.find_commit("w", ("a",)) == new
        assert await bench.store.find_commit("w", ("b",)) == old
        for topics in (("a",), ("b",)):
            assert await bench.store.forget_commit("w", topics)
            assert not await bench.store.forget_commit("w", topics)
        await bench.reopen()
        for topics in (("a",), ("b",)):
            found = await bench.store.find_commit("w", topics)
            assert found is not None
            assert found.batch == FORGOTTEN
        assert await bench.store.find_commit("w", ("c",)) == old
        assert await bench.store.list_targets("w") == [old.target]
        assert (await bench.store.commit_stages(Commit("w", 0, 11, ("b",)), [])).batch == 0

    async def test_a_repeat_drops_its_stages_and_is_known_by_them(self, bench: Bench) -> None:
        ledger = await bench.log()
        await bench.store.save_writer(Writer("w", "", "", 50))
        for topics in (("a",), None):
            await bench.stage("s", 0, ledger, entry(b"x"), batch=3)
            first = Commit("w", 3, 9, topics, True, "first")
            made = await bench.store.commit_stages(first, ["s"])
            await bench.stage("t", 0, ledger, entry(b"x"), batch=3)
            again = Commit("w", 3, 9, topics, True, "again", made.spans)
            await bench.store.repeat_commit(again, [StageKey("w", 3, "t")])
            await bench.reopen()
            await bench.log()
            assert await bench.store.find_commit("w", topics or ()) == again
            assert (await bench.store.load_stages())[0] == []
        assert len(await bench.read(ledger)) == 2
        assert await bench.store.find_writer("w") == Writer("w", "", "", 50, keep=True)

    async def test_writers_are_found_counted_and_forgotten(self, bench: Bench) -> None:
        ledger = await bench.log()
        writers = [Writer(name, "alice", "alice", at) for at, name in enumerate("abc")]
        for writer in (*writers, Writer("d", "", "address", 3)):
            assert await bench.store.save_writer(writer, 3)
        assert not await bench.store.save_writer(Writer("e", "alice", "alice", 4), 3)
        assert await bench.store.save_writer(Writer("a", "alice", "alice", 7), 3), "it is there"
        assert await bench.store.save_writer(Writer("e", "bob", "bob", 4), 3)
        await bench.reopen()
        await bench.log()
        assert await bench.store.find_writer("a") == Writer("a", "alice", "alice", 7)
        assert await bench.store.find_writer("f") is None
        assert [w.name for w in await bench.store.list_writers("", None, 10)] == list("abcde")
        assert [w.name for w in await bench.store.list_writers("a", "alice", 10)] == ["b", "c"]
        assert [w.name for w in await bench.store.list_writers("a", None, 2)] == ["b", "c"]

        await bench.stage("s", 0, ledger, entry(b"x"), writer="b")
        await bench.store.commit_stages(Commit("c", 1, 20), [])
        assert await bench.store.find_writer("c") == Writer("c", "alice", "alice", 20, keep=True)
        assert [w.name for w in await bench.store.idle_writers(False, 100, 10)] == ["d", "e", "a"]
        assert [w.name for w in await bench.store.idle_writers(False, 3, 10)] == ["d"]
        assert [w.name for w in await bench.store.idle_writers(True, 20, 10)] == ["c"]
        assert await bench.store.idle_writers(True, 19, 10) == []
        runs, staging = await bench.store.load_stages()
        assert ([r.key.writer for r in runs], [w.name for w in staging]) == (["b"], ["b"])
        await bench.store.forget_writers(["c"])
        assert await bench.store.find_writer("c") is None
        assert await bench.store.list_targets("c") == []

    async def test_commits_of_one_origin_have_a_bound(self, bench: Bench) -> None:
        for name, origin in (("v", "alice"), ("w", "alice"), ("x", "bob")):
            await bench.store.save_writer(Writer(name, "", origin, 1))
        await bench.store.commit_stages(Commit("v", 1, 1, ("a",)), [], [], 2)
        await bench.store.commit_stages(Commit("w", 1, 1, ("a",)), [], [], 2)
        with pytest.raises(PenstockError) as caught:
            await bench.store.commit_stages(Commit("w", 1, 1, ("b",)), [], [], 2)
        assert caught.value.kind is ErrorKind.TOO_MANY_REQUESTS
        assert "broker.max_writers_per_role" in caught.value.message
        await bench.store.commit_stages(Commit("w", 2, 1, ("a",)), [], [], 2)
        await bench.store.commit_stages(Commit("x", 1, 1, ("b",)), [], [], 2)

    async def test_a_commit_that_is_refused_changes_nothing(self, bench: Bench) -> None:
        one, two = await bench.log("a"), await bench.log("b")
        await bench.stage("s", 0, one, entry(b"x"), topic="a")
        await bench.stage("t", 0, two, entry(b"y"), topic="b")
        await bench.store.delete(two)
        for stages, kind in (
            (["s", "missing"], ErrorKind.STAGE_NOT_FOUND),
            (["s", "t"], ErrorKind.TOPIC_NOT_FOUND),
        ):
            with pytest.raises(PenstockError) as caught:
                await bench.store.commit_stages(Commit("w", 0, 9), stages)
            assert caught.value.kind is kind
        assert await bench.read(one) == []
        with pytest.raises(PenstockError) as caught:
            await bench.stage("u", 0, 999, entry(b"x"))
        assert caught.value.kind is ErrorKind.TOPIC_NOT_FOUND
        runs, _ = await bench.store.load_stages()
        assert {run.key.stage for run in runs} == {"s", "t"}
        assert await bench.store.find_commit("w", ()) is None
        await bench.store.commit_stages(Commit("w", 0, 9), ["s"])
        assert [e.data for e in await bench.read(one)] == [b"x"]

    async def test_stages_survive_a_restart_until_they_are_dropped(self, bench: Bench) -> None:
        ledger = await bench.log()
        key = StageKey("w", 0, "s")
        await bench.store.stage(key, 4, 77, 123, [StageRun(ledger, TOPIC, [entry(b"abc", 5), entry(b"de")])])
        await bench.stage("t", 0, ledger, entry(b"t"))
        await bench.reopen()
        runs, _ = await bench.store.load_stages()
        assert StagedRun(key, 4, 77, 123, ledger, TOPIC, 6, 5) in runs
        await bench.store.drop_stages([key, StageKey("w", 0, "not there")])
        await bench.log()
        with pytest.raises(PenstockError):
            await bench.store.commit_stages(Commit("w", 0, 9), ["s"])
        await bench.store.commit_stages(Commit("w", 0, 9), ["t"])
        assert [e.data for e in await bench.read(ledger)] == [b"t"]

    async def test_what_was_committed_is_trimmed_and_deleted_like_the_rest(self, bench: Bench) -> None:
        ledger = await bench.log()
        for batch in range(4):
            await bench.store.append(ledger, [entry(b"plain" * 10)])
            await bench.stage(
                "s", 0, ledger, *[entry(b"%d-%d" % (batch, n) * 50) for n in range(5)], batch=batch
            )
            await bench.store.commit_stages(Commit("w", batch, batch), ["s"])
        await bench.store.trim(ledger, 15)
        await bench.reopen()
        state = await bench.store.open(TOPIC)
        left = await bench.read(ledger)
        assert [e.entry_id for e in left] == list(range(15, 24))
        assert left[0].data == b"2-2" * 50
        assert state.size_bytes == sum(len(e.data) for e in left)
        await bench.store.delete(ledger)
        assert await bench.store.read(ledger, 0, 10, ALL) == []

    async def test_commits_and_appends_at_once_leave_no_gap(self, bench: Bench) -> None:
        ledger = await bench.log()

        async def commits(writer: str) -> None:
            for batch in range(10):
                await bench.stage("s", 0, ledger, *[entry(b"s", 3)] * 4, writer=writer, batch=batch)
                await bench.store.commit_stages(Commit(writer, batch, 1), ["s"])

        async def appends() -> None:
            for _ in range(30):
                await bench.store.append(ledger, [entry(b"a", 2)])

        await asyncio.gather(commits("v"), commits("w"), appends(), appends())
        found = await bench.read(ledger)
        assert len(found) == 2 * 40 + 2 * 30
        assert [e.entry_id for e in found] == list(range(len(found)))
        assert all(one.end == other.offset for one, other in pairwise(found))
