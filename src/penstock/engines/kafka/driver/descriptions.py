"""Descriptions of topics: topics that are asked for at the same time share a request."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import Any, Final

TOPICS_MAX: Final = 500  # of one request
GATHER_S: Final = (
    0.1  # how long a topic waits for the request before it: a cluster that is away answers much later
)

Ask = Callable[[Sequence[str]], Mapping[str, "Future[Any]"]]


class Descriptions:
    """A topic is in a request that is sent after it was asked for. `ask` sends one; it may raise."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._wanted: dict[str, asyncio.Future[Any]] = {}
        self._timer: asyncio.Handle | None = None
        self._unanswered: set[asyncio.Future[Any]] = set()

    def find(self, topic: str) -> "asyncio.Future[Any]":
        """The answer of the cluster for one topic. Callers share the future: they do not cancel it."""
        future = self._wanted.get(topic)
        if future is None:
            loop = asyncio.get_running_loop()
            future = self._wanted[topic] = loop.create_future()
            if self._timer is None:
                # Tasks of the same turn of the loop join.
                self._timer = loop.call_later(GATHER_S if self._unanswered else 0, self._send)
        return future

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._wanted:
            topics = list(islice(self._wanted, TOPICS_MAX))
            self._send_for({topic: self._wanted.pop(topic) for topic in topics})

    def _send_for(self, wanted: Mapping[str, asyncio.Future[Any]]) -> None:
        try:
            answers = self._ask(list(wanted))
        except Exception as error:  # each waiting caller gets it
            if len(wanted) == 1:
                for future in wanted.values():
                    future.set_exception(error)
                return
            for topic, future in wanted.items():
                self._send_for({topic: future})
            return
        for topic, future in wanted.items():
            answer = asyncio.wrap_future(answers[topic])
            self._unanswered.add(answer)
            answer.add_done_callback(partial(self._answered, future))

    def _answered(self, future: "asyncio.Future[Any]", answer: "asyncio.Future[Any]") -> None:
        self._unanswered.discard(answer)
        if answer.cancelled():
            future.cancel()
        elif (error := answer.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(answer.result())
        if not self._unanswered and self._wanted:
            self._send()
