"""Where events go: `status.json`, the system topic, and the listener of this process; and the last ones of the topic.

A thread of its own writes to the system topic, at most once: a pipeline never waits for it, nor fails with it.
"""

import json
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.spec.spec import Spec

from .folder import Folder

SYSTEM_TOPIC: Final = TopicName.parse("persistent://penstock/system/pipelines")
READ_MAX: Final = 5000  # the newest messages of the topic that are looked at
WAITING_MAX: Final = 100  # older events make room
PAUSE_S: Final = 5.0  # between attempts while the server is away
EVENT_TIMEOUT_S: Final = 5.0

# What the system topic is told; status.json and listeners get the rest too.
_PUBLIC: Final = (
    *("pipeline", "run_id", "query", "state", "batch", "rows", "rows_per_second", "lag", "batch_ms"),
    *("watermark", "rejected", "error", "error_class", "at"),
)

Event = dict[str, Any]


class Reporter:
    """Completes events and hands them on. `rejected` and `rows_total` are sums since the run began."""

    def __init__(
        self, spec: Spec, folder: Folder, run_id: str, listener: Callable[[Event], None] | None = None
    ) -> None:
        self.last: Event = {"pipeline": spec.name, "run_id": run_id}
        self._folder = folder
        self._listener = listener
        self._lock = threading.Lock()
        self._topic = _Topic(spec)

    def __call__(self, event: Event) -> None:
        """Hand on an event; what it does not say is as it was."""
        with self._lock:
            event = dict(event)
            if "rejected" in event:
                for count in ("rejected", "dead_letters", "late_unseen"):
                    event[count] = event.get(count, 0) + self.last.get(count, 0)
                event["rows_total"] = event["rows"] + self.last.get("rows_total", 0)
                event["warnings"] = _added(self.last.get("warnings", {}), event.get("warnings", {}))
            self.last = {**self.last, **event, "at": round(time.time() * 1000)}
            told = dict(self.last)
            try:
                self._folder.say(told)
            except OSError:
                pass  # a full disk ends the query by itself, with a better reason
        self._topic.put({name: told.get(name) for name in _PUBLIC})
        if self._listener is not None:
            self._listener(told)

    def close(self, timeout_s: float = EVENT_TIMEOUT_S) -> None:
        """Give what waits a moment to be sent."""
        self._topic.close(timeout_s)


class _Topic:
    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._waiting: queue.Queue[Event | None] = queue.Queue(WAITING_MAX)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="pipeline-events", daemon=True)
        self._thread.start()

    def put(self, event: Event | None) -> None:
        while True:
            try:
                self._waiting.put_nowait(event)
                return
            except queue.Full:
                try:
                    self._waiting.get_nowait()
                except queue.Empty:
                    pass

    def close(self, timeout_s: float) -> None:
        self._closed.set()
        self.put(None)
        self._thread.join(timeout_s)

    def _work(self) -> None:
        with HttpClient(self._spec.server, timeout_s=EVENT_TIMEOUT_S) as client:
            while (event := self._waiting.get()) is not None:
                message = {"key": self._spec.name, "value": msgspec.json.encode(event).decode()}
                try:
                    client.produce(SYSTEM_TOPIC, [message])
                except PenstockError as error:
                    if error.retriable:
                        self._closed.wait(PAUSE_S)


def last_events(server: Access | str) -> list[dict[str, Any]]:
    """The last event of each pipeline, by name. Raises what HttpClient raises."""
    found: dict[str, dict[str, Any]] = {}
    with HttpClient(server) as client:
        try:
            log = client.offsets(SYSTEM_TOPIC, 0)
        except PenstockError as error:
            if error.kind in (ErrorKind.TOPIC_NOT_FOUND, ErrorKind.NAMESPACE_NOT_FOUND):
                return []
            raise
        at = max(log.earliest, log.latest - READ_MAX)
        while at < log.latest:
            messages = client.read(SYSTEM_TOPIC, offset=at, max_messages=1000)["messages"]
            if not messages:
                break
            for message in messages:
                event = json.loads(message["value"])
                found[event["pipeline"]] = event
            at = messages[-1]["offset"] + 1
    return [found[name] for name in sorted(found)]


def _added(before: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    return {name: before.get(name, 0) + more.get(name, 0) for name in {**before, **more}}
