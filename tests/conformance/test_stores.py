"""The suite of `tests.conformance.stores` over the stores of the project, and SQLite beside a plain model."""

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

pytest.register_assert_rewrite("tests.conformance.stores")

from tests.conformance.stores import StoreSuite  # noqa: E402

from penstock.engines.core.ports import CursorChange, Store  # noqa: E402
from penstock.engines.memory import MemoryStore  # noqa: E402
from penstock.engines.sqlite import SqliteStore  # noqa: E402
from penstock.model.entry import NewEntry  # noqa: E402
from penstock.model.errors import PenstockError  # noqa: E402
from penstock.model.stage import Commit, StageKey, StageRun, Targets, Writer  # noqa: E402

T = TypeVar("T")


class TestMemoryStore(StoreSuite):
    durable = False

    def make(self, folder: Path) -> Store:
        return MemoryStore()


class TestSqliteStore(StoreSuite):
    def make(self, folder: Path) -> Store:
        return SqliteStore(folder)


TOPICS = st.sampled_from(["a", "b", "c"])
SUBSCRIPTIONS = st.sampled_from(["s", "t"])
ENTRIES = st.lists(
    st.builds(
        NewEntry,
        data=st.binary(max_size=40),
        count=st.integers(1, 5),
        publish_time=st.integers(0, 100),
        deliver_at=st.sampled_from([0, 1 << 40]),
        producer=st.sampled_from(["", "p", "q"]),
        sequence_id=st.integers(-1, 20),
    ),
    max_size=5,
)
TARGETS = st.sampled_from([(), ("a",), ("a", "b")])
CHUNKS = st.dictionaries(st.integers(0, 4), st.none() | st.binary(min_size=1, max_size=8), max_size=3)


class SqliteBesideMemory(RuleBasedStateMachine):
    """Whatever is done to both, the two stores say the same; the one over SQLite is restarted meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp())
        self.model = MemoryStore()
        self.start()
        self.ledgers: dict[str, int] = {}
        self.staged: set[tuple[StageKey, int]] = set()

    def start(self) -> None:
        self.store = SqliteStore(self.folder)
        self.wait(self.store.start())

    def teardown(self) -> None:
        self.wait(self.store.close())
        self.runner.close()
        shutil.rmtree(self.folder)

    def wait(self, call: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(call)

    def both(self, method: str, *args: object) -> Any:
        """Call `method` on both stores; the same must come back."""

        async def called() -> tuple[Any, Any]:
            return await getattr(self.store, method)(*args), await getattr(self.model, method)(*args)

        found, expected = self.wait(called())
        if method == "load_cursors":
            found, expected = (
                sorted(found, key=lambda cursor: cursor.subscription),
                sorted(expected, key=lambda cursor: cursor.subscription),
            )
        if method == "load_stages":
            found, expected = (tuple(sorted(part, key=repr) for part in both) for both in (found, expected))
        assert found == expected, method
        return found

    def log(self, topic: str) -> int:
        if topic not in self.ledgers:
            self.ledgers[topic] = self.both("open", topic).ledger
        return self.ledgers[topic]

    @rule(topic=TOPICS, entries=ENTRIES)
    def append(self, topic: str, entries: list[NewEntry]) -> None:
        self.both("append", self.log(topic), entries)

    @rule(topic=TOPICS, calls=st.lists(ENTRIES, max_size=4))
    def append_at_once(self, topic: str, calls: list[list[NewEntry]]) -> None:
        ledger = self.log(topic)

        async def appended(store: Store) -> object:
            return await asyncio.gather(*(store.append(ledger, entries) for entries in calls))

        assert self.wait(appended(self.store)) == self.wait(appended(self.model))

    @rule(
        topic=TOPICS, start=st.integers(-1, 60), entries_max=st.integers(1, 10), bytes_max=st.integers(0, 200)
    )
    def read(self, topic: str, start: int, entries_max: int, bytes_max: int) -> None:
        self.both("read", self.log(topic), start, entries_max, bytes_max)

    @rule(topic=TOPICS, offset=st.integers(-1, 100))
    def find_offset(self, topic: str, offset: int) -> None:
        self.both("find_offset", self.log(topic), offset)

    @rule(topic=TOPICS, before=st.integers(-1, 60))
    def trim(self, topic: str, before: int) -> None:
        self.both("trim", self.log(topic), before)

    @rule(topic=TOPICS, size=st.integers(0, 200), entry_id=st.integers(0, 60))
    def sizes(self, topic: str, size: int, entry_id: int) -> None:
        self.both("find_size", self.log(topic), size)
        self.both("size_since", self.log(topic), entry_id)

    @rule(topic=TOPICS, names=st.lists(SUBSCRIPTIONS, max_size=3))
    def forget_producers(self, topic: str, names: list[str]) -> None:
        self.both("forget_producers", self.log(topic), names)

    @rule(topic=TOPICS)
    def delete(self, topic: str) -> None:
        self.both("delete", self.log(topic))
        del self.ledgers[topic]

    @rule(
        topic=TOPICS,
        name=SUBSCRIPTIONS,
        mark=st.integers(-1, 99),
        chunks=CHUNKS,
        props=st.none() | st.binary(),
    )
    def save_cursor(
        self, topic: str, name: str, mark: int, chunks: dict[int, bytes | None], props: bytes | None
    ) -> None:
        self.both("save_cursors", [CursorChange(self.log(topic), name, mark, chunks, props)])

    @rule(topic=TOPICS, name=SUBSCRIPTIONS)
    def delete_cursor(self, topic: str, name: str) -> None:
        self.both("delete_cursor", self.log(topic), name)

    @rule(documents=st.lists(st.tuples(TOPICS, SUBSCRIPTIONS, st.none() | st.binary()), max_size=4))
    def save_meta(self, documents: list[tuple[str, str, bytes | None]]) -> None:
        self.both("save_meta", documents)

    @rule(
        key=st.builds(StageKey, st.sampled_from("vw"), st.integers(0, 3), st.sampled_from("st")),
        part=st.integers(0, 9),
        runs=st.lists(st.tuples(TOPICS, ENTRIES.filter(bool)), min_size=1, max_size=3),
    )
    def stage(self, key: StageKey, part: int, runs: list[tuple[str, list[NewEntry]]]) -> None:
        if (key, part) not in self.staged:  # a part comes once
            self.staged.add((key, part))
            self.both("stage", key, part, 5, 6, [StageRun(self.log(t), t, entries) for t, entries in runs])

    @rule(
        writer=st.sampled_from("vw"),
        batch=st.integers(0, 3),
        stages=st.lists(st.sampled_from("st"), unique=True),
        topics=TARGETS | st.none(),
        keep=st.booleans(),
    )
    def commit(self, writer: str, batch: int, stages: list[str], topics: Targets | None, keep: bool) -> None:
        commit = Commit(writer, batch, 50, topics, keep)
        found, expected = (self.outcome(store, commit, stages) for store in (self.store, self.model))
        assert found == expected

    def outcome(self, store: Store, commit: Commit, stages: list[str]) -> object:
        """What a commit returns, or the kind of error that it raises."""

        async def called() -> object:
            try:
                return await store.commit_stages(commit, stages)
            except PenstockError as error:
                return error.kind

        return self.wait(called())

    @rule(key=st.builds(StageKey, st.sampled_from("vw"), st.integers(0, 3), st.sampled_from("st")))
    def drop_stage(self, key: StageKey) -> None:
        self.both("drop_stages", [key])

    @rule(
        name=st.sampled_from("vw"),
        origin=st.sampled_from("op"),
        at=st.integers(0, 99),
        keep=st.booleans(),
        most=st.integers(0, 2),
    )
    def save_writer(self, name: str, origin: str, at: int, keep: bool, most: int) -> None:
        self.both("save_writer", Writer(name, origin, origin, at, keep), most)

    @rule(writer=st.sampled_from("vw"))
    def forget_writer(self, writer: str) -> None:
        self.both("forget_writers", [writer])

    @rule(writer=st.sampled_from("vw"), topics=TARGETS)
    def forget_commit(self, writer: str, topics: Targets) -> None:
        self.both("forget_commit", writer, topics)

    @rule()
    def restart(self) -> None:
        self.wait(self.store.close())
        self.start()
        for topic in self.ledgers:
            self.both("open", topic)

    @invariant()
    def the_same_is_stored(self) -> None:
        for topic, ledger in self.ledgers.items():
            self.both("open", topic)
            self.both("read", ledger, 0, 1000, 1 << 30)
            self.both("load_cursors", ledger)
        for kind in ("a", "b", "c"):
            self.both("load_meta", kind)
        self.both("load_stages")
        self.both("list_writers", "", None, 10)
        for keep in (False, True):
            self.both("idle_writers", keep, 50, 10)
        for writer in "vw":
            self.both("list_targets", writer)
            for topics in ((), ("a",), ("a", "b")):
                self.both("find_commit", writer, topics)


TestSqliteBesideMemory = SqliteBesideMemory.TestCase
TestSqliteBesideMemory.settings = settings(settings(), stateful_step_count=30, max_examples=20)
