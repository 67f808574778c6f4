"""What a pipeline reports of itself: an event, as JSON, for each batch and each change of its state.

The fields are those of the system topic's messages; see docs/pipelines.md. Events go to `status.json`, to the system
topic, to OpenLineage (`lineage`) and to the listener of this process. Separate threads write to the first two, at most once: a
pipeline never waits for them, nor fails with them.
"""

import json
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any, Final

import msgspec

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.source.marks import Marks, between, read_marks
from penstock.pipeline.spec.spec import Spec

from .folder import Folder
from .lineage import lineage_sender, lineage_url

STARTING: Final = "starting"
RUNNING: Final = "running"
IDLE: Final = "idle"
RESTARTING: Final = "restarting"
STOPPED: Final = "stopped"
FAILED: Final = "failed"

# The names of a query's counts in Spark's progress.
METRICS: Final = "penstock"  # rows written, dead letters
RULES: Final = "rules "  # and a view's name: how many rows broke each of its rules, by `checks.Rule` as text
RULES_ROWS: Final = "rows"  # all that came

SYSTEM_TOPIC: Final = TopicName.parse("persistent://penstock/system/pipelines")
READ_MAX: Final = 5000  # the newest messages of the topic that are looked at
WAITING_MAX: Final = 100  # older events make room
PAUSE_S: Final = 5.0  # between attempts while the server is away
EVENT_TIMEOUT_S: Final = 5.0

# What goes to the system topic; status.json and listeners get the rest too.
_PUBLIC: Final = (
    *("pipeline", "run_id", "query", "state", "batch", "rows", "rows_per_second", "lag", "batch_ms"),
    *("watermark", "rejected", "rules", "ui", "error", "error_class", "dead_letter_topic", "at"),
)

Event = dict[str, Any]


def batch_event(progress: Mapping[str, Any]) -> dict[str, Any]:
    """The event of a batch, from Spark's progress of it.

    `rows` are messages, counted by their offsets: Spark counts a row again for each branch that reads it by itself.
    """
    sources = progress.get("sources") or []
    rows = sum(map(_rows, sources))
    batch_ms = int((progress.get("durationMs") or {}).get("triggerExecution", 0))
    metrics = progress.get("observedMetrics") or {}
    counts = metrics.get(METRICS) or {}
    dead = int(counts.get("dead_letters", 0))
    rules = [
        rule
        for name, found in metrics.items()
        if name.startswith(RULES)
        for rule in rule_counts(name.removeprefix(RULES), found)
    ]
    return {
        "query": progress.get("id"),
        "state": RUNNING,
        "batch": progress.get("batchId"),
        "rows": rows,
        "written": int(counts.get("written", 0)),
        "rows_per_second": round(rows * 1000 / batch_ms, 1) if batch_ms else 0.0,
        "lag": _lag(sources),
        "batch_ms": batch_ms,
        "watermark": watermark_ms(progress),
        "rejected": dead + sum(rule["failed"] for rule in rules if rule["action"] == "drop"),
        "dead_letters": dead,
        "rules": rules,
        "late_unseen": sum(
            int(operator.get("numRowsDroppedByWatermark", 0))
            for operator in progress.get("stateOperators") or []
        ),
        "error": None,
        "error_class": None,
    }


def state_event(state: str, **more: Any) -> dict[str, Any]:
    """The event of a change of state."""
    return {"state": state, "error": None, "error_class": None, **more}


def watermark_ms(progress: Mapping[str, Any]) -> int | None:
    """The watermark of a batch in ms since the epoch; None if there is none, or none yet."""
    text = (progress.get("eventTime") or {}).get("watermark")
    if not text:
        return None
    found = round(datetime.fromisoformat(text).timestamp() * 1000)
    return found if found > 0 else None


def _rows(source: Mapping[str, Any]) -> int:
    if source.get("startOffset") is not None and source["startOffset"] == source.get("endOffset"):
        return 0
    end = _marks(source.get("endOffset"))
    start = Marks({}) if source.get("startOffset") is None else _marks(source["startOffset"])
    if end is not None and source.get("startOffset") is None and not end.starts:
        start = None  # Spark before 4.2: the start of the first batch is unknown
    if start is None or end is None:
        return int(source.get("numInputRows") or 0)
    return sum(piece.size for piece in between(start, end))


def _lag(sources: Iterable[Mapping[str, Any]]) -> int | None:
    """How many messages were there, when last looked, that the batch did not take."""
    lag: int | None = None
    for source in sources:
        end, head = _marks(source.get("endOffset")), _marks(source.get("latestOffset"))
        if end is None or head is None:
            continue
        missing = (
            spot.offset - end.spots[key].offset if key in end.spots else spot.offset
            for key, spot in head.spots.items()
        )
        lag = (lag or 0) + sum(max(0, count) for count in missing)
    return lag


def _marks(written: Any) -> Marks | None:
    try:
        return read_marks(written) if isinstance(written, dict) else None
    except PipelineError:
        return None  # not a source of ours


def rule_counts(view: str, counts: Mapping[str, int]) -> list[dict[str, Any]]:
    """What became of a view's rows under each of its rules, from the counts of `checks.counted`.

    A row is judged by one rule after the other, until one rejects it. The rules that reject nothing, `warn` and `fail`, judge
    the rows that no other rule rejects.
    """
    broken = {name: int(count) for name, count in counts.items() if name != RULES_ROWS}
    rejecting = [name for name in broken if name.split(" ")[1] in ("drop", "dead_letter")]
    left = int(counts[RULES_ROWS])
    accepted = left - sum(broken[name] for name in rejecting)
    rules = []
    for text, failed in broken.items():
        kind, action, name = text.split(" ", 2)
        if text in rejecting:
            left -= failed
        passed = left if text in rejecting else accepted - failed
        rules.append(
            {"view": view, "rule": name, "kind": kind, "action": action, "passed": passed, "failed": failed}
        )
    return rules


def _added(rules: Iterable[Event], more: Iterable[Event]) -> list[Event]:
    """The sums of the counts of two lists of `rule_counts`."""
    sums: dict[tuple[str, ...], Event] = {}
    for rule in (*rules, *more):
        sum_ = sums.setdefault((rule["view"], rule["kind"], rule["rule"]), {**rule, "passed": 0, "failed": 0})
        sum_["passed"] += rule["passed"]
        sum_["failed"] += rule["failed"]
    return list(sums.values())


class Reporter:
    """Completes events and hands them on. `rejected`, `rules` and `rows_total` are sums since the run began."""

    def __init__(
        self, spec: Spec, folder: Folder, run_id: str, listener: Callable[[Event], None] | None = None
    ) -> None:
        self.last: Event = {"pipeline": spec.name, "run_id": run_id}
        if spec.dead_letters:
            self.last["dead_letter_topic"] = str(TopicName.parse(spec.dead_letters))
        self._folder = folder
        self._listener = listener
        self._lock = threading.Lock()
        self._senders = [_Sender(_topic_sender(spec))]
        if lineage_url(spec):
            self._senders.append(_Sender(lineage_sender(spec)))

    def __call__(self, event: Event) -> None:
        """Hand on an event; what it does not say is as it was."""
        with self._lock:
            event = dict(event)
            if "rejected" in event:
                for count in ("rejected", "dead_letters", "late_unseen"):
                    event[count] = event.get(count, 0) + self.last.get(count, 0)
                event["rows_total"] = event["rows"] + self.last.get("rows_total", 0)
                event["rules"] = _added(self.last.get("rules", ()), event.get("rules", ()))
            if event.get("state") in (STOPPED, FAILED):
                event["ui"] = None
            self.last = {**self.last, **event, "at": round(time.time() * 1000)}
            event = dict(self.last)
            try:
                self._folder.write_status(event)
            except (OSError, PenstockError):
                pass  # a full disk ends the query by itself, with a better reason
        for sender in self._senders:
            sender.put(event)
        if self._listener is not None:
            self._listener(event)

    def close(self, timeout_s: float = EVENT_TIMEOUT_S) -> None:
        """Give what waits a moment to be sent."""
        for sender in self._senders:
            sender.close(timeout_s)


class _Sender:
    """Sends events in its own thread; a full queue loses the oldest."""

    def __init__(self, opened: AbstractContextManager[Callable[[Event], None]]) -> None:
        self._opened = opened
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
        with self._opened as send:
            while (event := self._waiting.get()) is not None:
                try:
                    send(event)
                except PenstockError as error:
                    if error.retriable:
                        self._closed.wait(PAUSE_S)


@contextmanager
def _topic_sender(spec: Spec) -> Iterator[Callable[[Event], None]]:
    """What publishes an event to the system topic."""
    with HttpClient(spec.server, timeout_s=EVENT_TIMEOUT_S) as client:

        def send(event: Event) -> None:
            public = {name: event.get(name) for name in _PUBLIC}
            message = {"key": spec.name, "value": msgspec.json.encode(public).decode()}
            client.produce(SYSTEM_TOPIC, [message])

        yield send


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
