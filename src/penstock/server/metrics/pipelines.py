"""The last progress event of each pipeline, read from the system topic when a scraper or the console asks."""

import asyncio
from typing import Annotated, Final

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.topic import Topic
from penstock.model.errors import PenstockError
from penstock.model.names import TopicName
from penstock.wire import entry as wire

from .samples import Families

TOPIC: Final = TopicName.parse("persistent://penstock/system/pipelines")

ENTRIES_PER_READ: Final = 500
BEHIND_MAX: Final = (
    2000  # entries looked back at the first time; a pipeline that is silent for longer is over
)

RULES_MAX: Final = 1000  # of a pipeline

_STATES: Final = ("starting", "running", "idle", "restarting", "stopped", "failed")


class Rule(msgspec.Struct):
    """How many rows a rule of a pipeline let pass, and to how many it applied its action, since the run began."""

    view: str
    rule: str
    kind: str
    action: str
    passed: int
    failed: int


class Event(msgspec.Struct):
    """What a pipeline says of itself; anything else in it is not shown here."""

    pipeline: str
    state: str = ""
    batch: int | None = None
    rows: int | None = None
    rows_per_second: float | None = None
    lag: int | None = None
    batch_ms: float | None = None
    rejected: int | None = None
    at: int = 0
    run_id: str = ""
    watermark: str | int | None = None
    error: str | None = None
    error_class: str | None = None
    dead_letter_topic: str | None = None
    ui: str | None = None
    rules: Annotated[list[Rule], msgspec.Meta(max_length=RULES_MAX)] | None = None


_GAUGES: Final = {
    "batch": ("penstock_pipeline_batch", "Number of the last batch"),
    "rows": ("penstock_pipeline_rows", "Rows of the last batch"),
    "rows_per_second": ("penstock_pipeline_rows_per_second", "Rows a second of the last batch"),
    "lag": ("penstock_pipeline_lag", "Messages of its topics that the last batch left"),
    "batch_ms": ("penstock_pipeline_batch_ms", "Duration of the last batch, ms"),
    "rejected": ("penstock_pipeline_rejected", "Rows that were rejected since the run began"),
}


class Pipelines:
    """Follows the system topic from one look to the next, for the metrics and the console."""

    def __init__(self, broker: Broker, shown_max: int = 1000) -> None:
        self._broker = broker
        self._shown_max = shown_max
        self._next_entry = -1
        self._reading = asyncio.Lock()
        self.last: dict[str, Event] = {}

    async def refresh(self) -> None:
        """Read new events; nothing without pipelines."""
        broker = self._broker
        if not broker.topics.exists(TOPIC):
            return
        try:
            for topic in await broker.topics.all_of(TOPIC, create=False):
                async with self._reading:
                    await self._read(topic)
                break  # the system topic has one log
        except PenstockError:
            return  # it was deleted

    async def _read(self, topic: Topic) -> None:
        bounds = topic.bounds
        if self._next_entry < 0 or self._next_entry > bounds.next_entry:
            self._next_entry = max(bounds.first_entry, bounds.next_entry - BEHIND_MAX)
        while entries := await topic.read(self._next_entry, ENTRIES_PER_READ):
            for entry in entries:
                try:
                    messages = wire.decode(entry)
                except PenstockError:
                    continue
                for message in messages:
                    self._take(message.payload)
            self._next_entry = entries[-1].entry_id + 1

    def _take(self, payload: bytes) -> None:
        try:
            event = msgspec.json.decode(payload, type=Event)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return  # every role with `produce` can publish there
        self.last.pop(event.pipeline, None)
        self.last[event.pipeline] = event
        if len(self.last) > self._shown_max:
            self.last.pop(next(iter(self.last)))

    def write(self, families: Families) -> None:
        """The figures of every pipeline that was heard of."""
        for name, event in sorted(self.last.items()):
            for state in _STATES:
                families.gauge(
                    "penstock_pipeline_state",
                    "1 for the state it is in",
                    float(event.state == state),
                    pipeline=name,
                    state=state,
                )
            families.gauge(
                "penstock_pipeline_seen_seconds", "When it was last heard of", event.at / 1000, pipeline=name
            )
            for field, (metric, meaning) in _GAUGES.items():
                value = getattr(event, field)
                if value is not None:
                    families.gauge(metric, meaning, value, pipeline=name)
            for rule in event.rules or ():
                for outcome, count in (("pass", rule.passed), (rule.action, rule.failed)):
                    families.counter(
                        "penstock_pipeline_rule_rows",
                        "Rows since the run began that passed a rule, or to which its action was applied",
                        count,
                        pipeline=name,
                        view=rule.view,
                        kind=rule.kind,
                        rule=rule.rule,
                        outcome=outcome,
                    )
