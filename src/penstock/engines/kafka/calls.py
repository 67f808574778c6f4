"""Calls from one process to others before the same cluster: what only the process that has a partition can do.

A call is a document, which every process hears of; those that it names do what it says, and answer by documents. Who called
removes them all. Calls are few, so that they need no topic and no connections of their own.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Literal

import msgspec

from penstock.model.errors import ErrorKind, PenstockError

from .documents import Documents

log = logging.getLogger(__name__)

CALLS: Final = "calls"
ANSWERS: Final = "answers"
LOOK_S: Final = 1.0  # how often it is looked whether those who are called are there still
OPEN_S: Final = 30.0  # after it was heard of, a call counts no more whose process did not remove it
LEFT_MS: Final = 600_000  # documents so old are of processes that ended; clocks may differ by less

Action = Literal["move", "skip", "dissolve", "forget"]
Left = Callable[[], Awaitable[Collection[str]]]


class Call(msgspec.Struct, frozen=True):
    """What is to be done with a subscription of a topic; `to` are the client ids of the processes that are to do it."""

    to: tuple[str, ...]
    action: Action
    topic: str  # without a partition
    subscription: str
    places: tuple[int, ...]  # partitions, in Kafka's count
    offset: int = 0
    created_ms: int = 0


class _Dated(msgspec.Struct, frozen=True):
    created_ms: int


class Answer(msgspec.Struct, frozen=True):
    """What became of it; without an error it is done."""

    error: str = ""  # an `ErrorKind`'s name
    message: str = ""
    created_ms: int = 0


class Calls:
    """The calls of this process, and those to it. `perform` does what a call says; its PenstockErrors are answered."""

    def __init__(
        self,
        documents: Documents,
        client_id: str,
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
        perform: Callable[[Call], Awaitable[None]],
    ) -> None:
        self.client_id = client_id
        self._documents = documents
        self._spawn = spawn
        self._perform = perform
        self._open: dict[str, Call] = {}
        self._heard: dict[str, float] = {}  # when, by this process's clock
        self._answers: dict[str, dict[str, Answer]] = {}  # to calls of this process
        self._changed = asyncio.Event()

    async def load(self) -> None:
        """Hear of calls from now on; remove what processes left that are gone."""
        self._documents.listeners[CALLS].append(self._called)
        self._documents.listeners[ANSWERS].append(self._answered)
        old, left = _now_ms() - LEFT_MS, []

        def look(kind: str, key: str, document: bytes | None) -> None:
            if msgspec.json.decode(document or b"", type=_Dated).created_ms < old:
                left.append((kind, key))

        for kind in (CALLS, ANSWERS):
            documents = await self._documents.load_meta(kind)
            self._documents.reader.read_all(kind, documents, partial(look, kind))
        if left:
            self._spawn(self._remove(left), "remove calls of processes that are gone")

    # -- out

    @asynccontextmanager
    async def calling(self, call: Call, left: Left) -> AsyncIterator[None]:
        """Have a call be open, once all have done it; `left` says which processes there are still. Raises the first error."""
        key = secrets.token_hex(12)
        answers = self._answers[key] = {}
        try:
            made = msgspec.structs.replace(call, created_ms=_now_ms())
            await self._documents.save_meta([(CALLS, key, msgspec.json.encode(made))])
            await self._wait(set(call.to), answers, left)
            yield
        finally:
            del self._answers[key]
            gone = [(CALLS, key), *((ANSWERS, _answer_key(key, one)) for one in answers)]
            self._spawn(self._remove(gone), "remove a call")

    async def _wait(self, wanted: set[str], answers: dict[str, Answer], left: Left) -> None:
        while missing := wanted - answers.keys():
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._changes()
            except TimeoutError:
                if not missing & set(await left()):
                    break
        for answer in answers.values():
            if answer.error:
                raise PenstockError(ErrorKind[answer.error], answer.message)
        if missing:
            raise PenstockError(ErrorKind.UNAVAILABLE, "the process that was called is gone")

    async def over(self, topic: str, subscription: str) -> None:
        """Wait until nobody deletes a subscription."""
        while heard := [
            self._heard[key]
            for key, one in self._open.items()
            if one.action == "dissolve" and (one.topic, one.subscription) == (topic, subscription)
        ]:
            try:
                async with asyncio.timeout_at(max(heard) + OPEN_S):
                    await self._changes()
            except TimeoutError:
                self._drop_left()

    def _drop_left(self) -> None:
        """Forget calls whose process was ended before it removed them."""
        over = asyncio.get_running_loop().time() - OPEN_S
        for key in [key for key, heard in self._heard.items() if heard <= over]:
            del self._open[key], self._heard[key]

    async def _changes(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # -- in

    def _called(self, key: str, document: bytes | None) -> None:
        self._changed.set()
        if document is None:
            self._open.pop(key, None)
            self._heard.pop(key, None)
            return
        self._drop_left()
        self._heard[key] = asyncio.get_running_loop().time()
        call = self._open[key] = msgspec.json.decode(document, type=Call)
        if self.client_id in call.to:
            self._spawn(self._do(key, call), f"{call.action} for another process")

    def _answered(self, key: str, document: bytes | None) -> None:
        call, _, client_id = key.partition("\n")
        if document is not None and call in self._answers:
            self._answers[call][client_id] = msgspec.json.decode(document, type=Answer)
            self._changed.set()

    async def _do(self, key: str, call: Call) -> None:
        if key not in self._open:
            return  # given up before this process, which was away, read it
        answer = Answer(created_ms=_now_ms())
        try:
            await self._perform(call)
        except PenstockError as error:
            answer = Answer(error.kind.name, error.message, answer.created_ms)
        except Exception:  # who called must not wait until it gives up
            log.exception("what another process asked for failed")
            answer = Answer(ErrorKind.INTERNAL.name, f"{self.client_id} could not do it", answer.created_ms)
        if key in self._open:
            document = msgspec.json.encode(answer)
            try:
                await self._documents.save_meta([(ANSWERS, _answer_key(key, self.client_id), document)])
            except PenstockError as error:
                log.info("another process hears nothing of what it asked for: %s", error.message)

    async def _remove(self, keys: Collection[tuple[str, str]]) -> None:
        try:
            await self._documents.save_meta([(kind, key, None) for kind, key in keys])
        except PenstockError as error:
            log.debug("a call is still stored: %s", error.message)


def _answer_key(call: str, client_id: str) -> str:
    return f"{call}\n{client_id}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
