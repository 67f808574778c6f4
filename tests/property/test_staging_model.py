"""Staged batches against a model of writers, sets of topics, batches and counts, over both stores."""

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Coroutine
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.broker.staging import Caller, Expected
from penstock.engines.core.broker import Broker
from penstock.engines.core.ports import Store
from penstock.engines.memory import MemoryStore
from penstock.engines.sqlite import SqliteStore
from penstock.model.errors import PenstockError
from penstock.model.message import OutMessage
from penstock.model.names import TopicName
from penstock.model.stage import StageKey
from penstock.testing.clock import ManualClock
from penstock.wire import entry as wire

T = TypeVar("T")

WRITERS = st.sampled_from(["v", "w"])
TOPICS = st.sampled_from(["a", "b"])
SETS = st.sampled_from([(), ("a",), ("b",), ("a", "b")])
BATCHES = st.integers(0, 3)
COUNTS = st.dictionaries(TOPICS, st.integers(1, 2), min_size=1)
ROLES = st.sampled_from(["alice", "alice", "alice", "bob", ""])

Counts = dict[str, int]
Identity = tuple[str, tuple[str, ...]]


class Held:
    """A stage in the model: what it holds for each topic, and how a commit is to name it."""

    def __init__(self, expected: Expected, counts: Counts) -> None:
        self.expected = expected
        self.counts = counts
        self.gone = False  # a topic that it is staged for was deleted


class Last:
    """A commit in the model."""

    def __init__(self, batch: int, counts: Counts, request: list[Expected]) -> None:
        self.batch = batch
        self.counts = counts
        self.request = request
        self.gone = False  # a topic that it appended to was deleted


def total(held: list[Held]) -> Counts:
    counts: Counter[str] = Counter()
    for each in held:
        counts.update(each.counts)
    return dict(counts)


class StagingMachine(RuleBasedStateMachine):
    """Whatever writers do, every message is in its topic exactly as often as a commit said that it is new."""

    durable = False

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp())
        self.clock = ManualClock()
        self.memory = MemoryStore()
        self.names = (f"s{number}" for number in count())
        self.staged: dict[tuple[str, int], dict[str, Held]] = {}
        self.lasts: dict[Identity, Last] = {}
        self.owners: dict[str, str] = {}
        self.stored: Counter[str] = Counter()
        self.wait(self.begin())

    async def begin(self) -> None:
        store: Store = SqliteStore(self.folder) if self.durable else self.memory
        self.broker = Broker(store, MemoryStore(1 << 20), wire, self.clock)
        await self.broker.start()

    def teardown(self) -> None:
        self.wait(self.broker.close())
        self.runner.close()
        shutil.rmtree(self.folder)

    def wait(self, call: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(call)

    def outcome(self, call: Coroutine[Any, Any, Any]) -> Any:
        """What a call returns, or the name of its error."""
        try:
            return self.wait(call)
        except PenstockError as error:
            return error.kind.name

    def allowed(self, writer: str, role: str) -> bool:
        """Whether a writer is a role's, who takes it where it has no owner; without a role anything goes."""
        return not role or self.owners.get(writer, "") in ("", role)

    def take(self, writer: str, role: str) -> None:
        if not self.owners.setdefault(writer, role):
            self.owners[writer] = role

    @rule(writer=WRITERS, batch=BATCHES, counts=COUNTS, role=ROLES)
    def stage(self, writer: str, batch: int, counts: Counts, role: str) -> None:
        name = next(self.names)

        async def call() -> int:
            entries = []
            for topic, number in counts.items():
                messages = [OutMessage(payload=b"x")] * number
                log = await self.broker.topics.get(TopicName.parse(topic))
                entry = wire.encode(
                    messages, producer="p", sequence_id=0, publish_time=1, schema_version=None
                )
                entries.append((log, [entry]))
            key = StageKey(writer, batch, name)
            await self.broker.staging.stage(key, 0, 1, entries, Caller(role=role))
            return sum(len(run[0].data) for _, run in entries)

        size = self.outcome(call())
        if not self.allowed(writer, role):
            assert size == "FORBIDDEN"
            return
        self.take(writer, role)
        held = Held(Expected(name, 1, sum(counts.values()), size), counts)
        self.staged.setdefault((writer, batch), {})[name] = held

    def commit(
        self, writer: str, batch: int, topics: tuple[str, ...], request: list[Expected], role: str
    ) -> Any:
        names = [TopicName.parse(topic) for topic in topics]
        caller = Caller(role=role)
        return self.outcome(self.broker.staging.commit(writer, batch, request, caller, topics=names))

    @rule(writer=WRITERS, batch=BATCHES, topics=SETS, take=st.sets(st.integers(0, 4)), role=ROLES)
    def commit_some(
        self, writer: str, batch: int, topics: tuple[str, ...], take: set[int], role: str
    ) -> None:
        there = list(self.staged.get((writer, batch), {}).values())
        self.try_commit(writer, batch, topics, [h for number, h in enumerate(there) if number in take], role)

    @rule(writer=WRITERS, topics=SETS, step=st.integers(-1, 1), counts=COUNTS | st.none())
    def write(self, writer: str, topics: tuple[str, ...], step: int, counts: Counts | None) -> None:
        """Stage and commit one batch, the last one or one beside it; the same counts again without `counts`."""
        role, last = self.owners.get(writer, ""), self.lasts.get((writer, topics))
        batch = 1 if last is None else max(0, last.batch + step)
        counts = counts or (last.counts if last is not None else {"a": 1})
        if counts:
            self.stage(writer, batch, counts, role)
        there = list(self.staged.get((writer, batch), {}).values())
        self.try_commit(writer, batch, topics, there[-1:] if counts else [], role)

    def try_commit(
        self, writer: str, batch: int, topics: tuple[str, ...], named: list[Held], role: str
    ) -> None:
        request = [held.expected for held in named]
        last = self.lasts.get((writer, topics))
        found = self.commit(writer, batch, topics, request, role)
        if not self.allowed(writer, role):
            assert found == "FORBIDDEN"
        elif last is not None and batch == last.batch and total(named) == last.counts and not last.gone:
            self.check(found, writer, topics, last, new=False)
            last.request = request  # whose answer may be lost as well
            self.drop(writer, batch, {held.expected.stage for held in named})
        elif last is not None and batch <= last.batch:
            assert found == "BATCH_CONFLICT"
        elif any(held.gone for held in named):
            assert found == "TOPIC_NOT_FOUND"
        else:
            made = self.lasts[writer, topics] = Last(batch, total(named), request)
            self.take(writer, role)
            self.check(found, writer, topics, made, new=True)
            self.stored.update(made.counts)
            self.drop(writer, batch, {held.expected.stage for held in named})
            self.lose(writer, batch, set(topics) or set(made.counts))

    @precondition(lambda self: self.lasts)
    @rule(data=st.data())
    def commit_again(self, data: st.DataObject) -> None:
        """The same request: the answer to the first was lost."""
        writer, topics = data.draw(st.sampled_from(sorted(self.lasts)))
        last = self.lasts[writer, topics]
        found = self.commit(writer, last.batch, topics, last.request, self.owners[writer])
        if last.gone:
            assert found == "BATCH_CONFLICT"
        else:
            self.check(found, writer, topics, last, new=False)

    @rule(topic=TOPICS)
    def delete(self, topic: str) -> None:
        """Delete a topic: its messages are gone. The invariants create it again."""
        self.wait(self.broker.topics.delete(TopicName.parse(topic), force=True))
        self.stored[topic] = 0
        for each in (*self.lasts.values(), *(h for by in self.staged.values() for h in by.values())):
            each.gone = each.gone or topic in each.counts

    def check(self, found: Any, writer: str, topics: tuple[str, ...], last: Last, *, new: bool) -> None:
        commit, made = found
        assert (commit.writer, commit.batch, made) == (writer, last.batch, new)
        assert commit.topics == tuple(f"persistent://public/default/{topic}" for topic in topics)
        assert {span.topic.rsplit("/")[-1]: span.messages for span in commit.spans} == last.counts

    def drop(self, writer: str, batch: int, names: set[str]) -> None:
        held = self.staged.get((writer, batch), {})
        for name in names:
            del held[name]
        if not held:
            self.staged.pop((writer, batch), None)

    def lose(self, writer: str, batch: int, topics: set[str]) -> None:
        for (name, number), held in list(self.staged.items()):
            if name == writer and number <= batch:
                self.drop(name, number, {stage for stage, h in held.items() if topics & set(h.counts)})

    @rule(writer=WRITERS, batch=BATCHES, role=ROLES)
    def abort(self, writer: str, batch: int, role: str) -> None:
        found = self.outcome(self.broker.staging.abort(writer, batch, Caller(role=role)))
        held = self.staged.get((writer, batch), {})
        if not self.allowed(writer, role):
            assert found == "FORBIDDEN"
        elif held:
            assert found == len(held)
            del self.staged[writer, batch]
        else:
            done = any(name == writer and last.batch >= batch for (name, _), last in self.lasts.items())
            assert found == ("STAGE_CONFLICT" if done else 0)

    @precondition(lambda self: self.lasts)
    @rule(data=st.data(), role=ROLES)
    def forget(self, data: st.DataObject, role: str) -> None:
        writer, topics = data.draw(st.sampled_from(sorted(self.lasts)))
        names = [TopicName.parse(topic) for topic in topics]
        found = self.outcome(self.broker.staging.forget(writer, Caller(role=role), names))
        if role and self.owners[writer] != role:
            assert found == "FORBIDDEN"
        else:
            assert found is None
            del self.lasts[writer, topics]

    @rule()
    def restart(self) -> None:
        self.wait(self.broker.close())
        self.wait(self.begin())

    @invariant()
    def every_message_is_there_as_often_as_it_was_new(self) -> None:
        async def ends() -> Counts:
            found = {}
            for name in ("a", "b"):
                topic = await self.broker.topics.get(TopicName.parse(name))
                found[name] = topic.next_offset
            return found

        assert self.wait(ends()) == {name: self.stored[name] for name in ("a", "b")}

    @invariant()
    def what_is_staged_is_what_was_staged(self) -> None:
        found = {
            (writer, number): {name: batch.expected(name) for name in batch.stages}
            for writer in ("v", "w")
            for number, batch in self.broker.staging._parts.known(writer).items()
        }
        wanted = {key: {name: h.expected for name, h in held.items()} for key, held in self.staged.items()}
        assert found == wanted
        size = sum(held.expected.size_bytes for by in self.staged.values() for held in by.values())
        assert self.broker.staging._parts.size_bytes == size


class DurableStagingMachine(StagingMachine):
    durable = True


TestStaging = StagingMachine.TestCase
TestStaging.settings = settings(settings(), stateful_step_count=40, max_examples=60)
TestDurableStaging = DurableStagingMachine.TestCase
TestDurableStaging.settings = settings(settings(), stateful_step_count=30, max_examples=15)
