"""Calls from one process to others: documents, and what becomes of them where a process is gone, slow or late."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import msgspec
import pytest

from penstock.engines.kafka import calls as module
from penstock.engines.kafka.calls import ANSWERS, CALLS, Answer, Call, Calls
from penstock.engines.shared.documents import DocumentReader
from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.tasks import Tasks

MOVE: Final = Call(("owner",), "move", "orders", "s", (3,), 7)
DISSOLVE: Final = Call(("owner",), "dissolve", "orders", "s", (0,))


class Documents:
    """`kafka.documents.Documents`; processes that are cut off hear of nothing until `catch_up`."""

    def __init__(self) -> None:
        self.reader = DocumentReader()
        self.listeners: defaultdict[str, list[Callable[[str, bytes | None], None]]] = defaultdict(list)
        self.stored: dict[tuple[str, str], bytes] = {}

    async def load_meta(self, kind: str) -> dict[str, bytes]:
        return {key: value for (of, key), value in self.stored.items() if of == kind}

    async def save_meta(self, documents: Sequence[tuple[str, str, bytes | None]]) -> None:
        for kind, key, value in documents:
            if value is None:
                self.stored.pop((kind, key), None)
            else:
                self.stored[kind, key] = value
            for listener in list(self.listeners[kind]):
                listener(key, value)


class Bench:
    """A process that calls, and one that is called, whose answers wait for `answering`."""

    def __init__(self) -> None:
        self.documents, self.tasks = Documents(), Tasks()
        self.asked = Calls(self.documents, "asking", self.tasks.spawn, self.perform)  # type: ignore[arg-type]
        self.owner = Calls(self.documents, "owner", self.tasks.spawn, self.perform)  # type: ignore[arg-type]
        self.done: list[Call] = []
        self.members = ["owner"]
        self.error: Exception | None = None
        self.answering = asyncio.Event()
        self.answering.set()

    async def perform(self, call: Call) -> None:
        self.done.append(call)
        await self.answering.wait()
        if self.error is not None:
            raise self.error

    async def there(self) -> list[str]:
        return self.members

    async def call(self, call: Call = MOVE) -> None:
        async with self.asked.calling(call, self.there):
            pass


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    made = Bench()
    await made.asked.load()
    await made.owner.load()
    yield made
    await made.tasks.close()


async def removed(bench: Bench) -> None:
    async with asyncio.timeout(30):
        while bench.documents.stored:
            await asyncio.sleep(0)


async def test_what_is_called_is_done_once_and_leaves_nothing(bench: Bench) -> None:
    await bench.call()
    assert [(one.action, one.offset, one.places) for one in bench.done] == [("move", 7, (3,))]
    await removed(bench)


async def test_an_error_is_that_of_the_process_that_was_called(bench: Bench) -> None:
    bench.error = PenstockError(ErrorKind.TOPIC_NOT_FOUND, "no such topic")
    with pytest.raises(PenstockError) as refused:
        await bench.call()
    assert (refused.value.kind, refused.value.message) == (ErrorKind.TOPIC_NOT_FOUND, "no such topic")
    await removed(bench)


async def test_who_calls_hears_of_a_failure_too(bench: Bench) -> None:
    bench.error = RuntimeError("a defect")
    with pytest.raises(PenstockError) as refused:
        await bench.call()
    assert refused.value.kind is ErrorKind.INTERNAL


async def test_a_process_that_is_slow_is_waited_for_and_one_that_is_gone_is_not(bench: Bench) -> None:
    bench.answering.clear()
    looks = 0

    async def there() -> list[str]:
        nonlocal looks
        looks += 1
        return ["owner"] if looks < 3 else []

    with pytest.raises(PenstockError) as gone:
        async with bench.asked.calling(MOVE, there):
            raise AssertionError("nobody has done it")
    assert gone.value.kind is ErrorKind.UNAVAILABLE
    assert (looks, len(bench.done)) == (3, 1)


async def test_a_call_that_was_given_up_before_it_was_read_is_not_done(bench: Bench) -> None:
    document = msgspec.json.encode(MOVE)
    await bench.documents.save_meta([(CALLS, "k", document), (CALLS, "k", None)])
    await bench.call()
    assert len(bench.done) == 1


async def test_who_comes_waits_until_a_subscription_is_deleted(bench: Bench) -> None:
    order: list[str] = []

    async def come() -> None:
        await bench.owner.over("orders", "s")
        order.append("came")

    async with asyncio.TaskGroup() as tasks, bench.asked.calling(DISSOLVE, bench.there):
        tasks.create_task(come())
        await bench.owner.over("orders", "another")
        for _ in range(10):
            await asyncio.sleep(0)
        order.append("deleted")
    assert order == ["deleted", "came"]


async def test_a_deletion_whose_process_was_killed_is_waited_for_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.documents.save_meta([(CALLS, "k", msgspec.json.encode(DISSOLVE))])
    monkeypatch.setattr(module, "OPEN_S", 0.01)
    await bench.asked.over("orders", "s")
    monkeypatch.setattr(module, "OPEN_S", 3600.0)
    async with asyncio.timeout(30):
        await bench.asked.over("orders", "s")


async def test_what_a_process_left_that_ended_is_removed(bench: Bench) -> None:
    await bench.documents.save_meta([(ANSWERS, "k\nowner", msgspec.json.encode(Answer()))])
    late = Calls(bench.documents, "late", bench.tasks.spawn, bench.perform)  # type: ignore[arg-type]
    await late.load()
    await removed(bench)
    assert not bench.done
