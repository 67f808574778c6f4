"""A stored log and the positions of its cursors, under Pulsar's names. A log is always one ledger."""

from itertools import islice
from typing import Any, Final

from penstock.broker.subscription import Subscription
from penstock.broker.topic import Topic

from .call import Call
from .operations import TOPIC, Table
from .stats import iso_time, partitions_of, shown_subscriptions
from .subscriptions import read_position

table = Table()

RUNS_MAX: Final = 1000  # runs of acknowledged messages shown; a cursor may have millions
POSITIONS_MAX: Final = 100  # of these each is looked up in the log
_NO_LEDGER: Final = {"ledgerId": -1, "entries": -1, "size": -1, "offloaded": False, "underReplicated": False}


@table.on("GET", f"{TOPIC}/internalStats", query=("metadata",))
async def internals(call: Call) -> dict[str, Any]:
    """The log and its cursors."""
    name, broker = call.seen_topic, call.broker
    if broker.topics.partitions(name):
        return await internals_by_partition(call)
    return await _stats(await broker.topics.get(name, create=False))


@table.on("GET", f"{TOPIC}/partitioned-internalStats")
async def internals_by_partition(call: Call) -> dict[str, Any]:
    """The logs of all partitions, and their cursors."""
    logs = await partitions_of(call)
    return {
        "metadata": {"partitions": len(logs)},
        "partitions": {str(log.name): await _stats(log) for log in logs},
    }


@table.on("GET", f"{TOPIC}/internal-info")
async def info(call: Call) -> dict[str, Any]:
    """The ledger of the topic, and the positions of its durable cursors; of each partition if there are some."""
    name, broker = call.seen_topic, call.broker
    logs = await broker.topics.all_of(name, create=False)
    if not broker.topics.partitions(name):
        document = broker.topics.document(name)
        return await _info(logs[0], {} if document is None else document.properties)
    return {"partitions": {str(log.name): await _info(log, {}) for log in logs}}


@table.on("PUT", f"{TOPIC}/backlogSize", body=dict[str, Any] | str)
async def backlog_size(call: Call) -> int:
    """How many bytes were published from a message on: `{"ledgerId", "entryId"}`, `"earliest"` or `"latest"`."""
    position = read_position(call.content)
    size = 0
    logs = await call.broker.topics.all_of(call.topic, create=False)
    for log in logs:
        if position.special or position.target.ledger == log.ledger:
            offset = await log.offset_after(position.target, inclusive=True)
            size += await log.size_since(await log.entry_at(offset))
        elif position.target.ledger < log.ledger and len(logs) == 1:
            # The position is of an older log of this name, which this one follows.
            size += log.bounds.size_bytes
    return size


async def _stats(topic: Topic) -> dict[str, Any]:
    """One stored log, and the positions of its cursors."""
    bounds = topic.bounds
    entries = bounds.next_entry - bounds.first_entry
    ledger = {"ledgerId": topic.ledger, "entries": entries, "size": bounds.size_bytes}
    return {
        "entriesAddedCounter": bounds.next_entry,
        "numberOfEntries": entries,
        "totalSize": bounds.size_bytes,
        "currentLedgerEntries": entries,
        "currentLedgerSize": bounds.size_bytes,
        "waitingCursorsCount": sum(1 for s in topic.counted if s.consumers and s.figures().drained),
        "pendingAddEntriesCount": 0,
        "lastConfirmedEntry": f"{topic.ledger}:{bounds.next_entry - 1}",
        "state": "Terminated" if bounds.terminated else "LedgerOpened",
        "ledgers": [{**ledger, "offloaded": False, "underReplicated": False}],
        "firstOffset": bounds.first_offset,
        "nextOffset": bounds.next_offset,
        "cursors": {name: await _cursor(s) for name, s in shown_subscriptions(topic).items()},
        "schemaLedgers": [],
        "compactedLedger": _NO_LEDGER,
    }


async def _cursor(subscription: Subscription) -> dict[str, Any]:
    topic, figures = subscription.topic, subscription.figures()
    bounds = topic.bounds
    next_entry = await topic.entry_at(figures.mark)
    read = figures.next_entry
    return {
        "markDeletePosition": f"{topic.ledger}:{next_entry - 1}",
        "readPosition": f"{topic.ledger}:{next_entry if read is None else read}",
        "waitingReadOp": bool(subscription.consumers) and figures.drained,
        "pendingReadOps": 0,
        "messagesConsumedCounter": max(0, figures.mark - bounds.first_offset) + figures.beyond,
        "cursorLedger": -1,  # cursors are not ledgers here
        "cursorLedgerLastEntry": -1,
        "individuallyDeletedMessages": await _positions(subscription),
        "state": "Open",
        "active": bool(subscription.consumers),
        "numberOfEntriesSinceFirstNotAckedMessage": bounds.next_entry - next_entry,
        "totalNonContiguousDeletedMessagesRange": sum(1 for _ in subscription.acknowledged_ranges()),
        "properties": {},  # Pulsar's are numbers; the subscription's own are `subscriptionProperties`
        "subscriptionProperties": figures.properties,
        "markDeleteOffset": figures.mark,
        "individuallyDeletedOffsets": [
            list(run) for run in islice(subscription.acknowledged_ranges(), RUNS_MAX)
        ],
    }


async def _positions(subscription: Subscription) -> str:
    """Acknowledgements beyond the mark, as Pulsar writes ranges of positions: open below, closed above."""
    topic, found = subscription.topic, []
    for first, last in islice(subscription.acknowledged_ranges(), POSITIONS_MAX):
        before, end = await topic.entry_at(first) - 1, await topic.entry_at(last)
        found.append(f"({topic.ledger}:{before}..{topic.ledger}:{end}]")
    return "[" + ",".join(found) + "]"


async def _info(topic: Topic, properties: dict[str, str]) -> dict[str, Any]:
    """The ledger of a log and the positions of its durable cursors; when each was made is not kept."""
    cursors = {}
    for name, subscription in shown_subscriptions(topic).items():
        figures = subscription.figures()
        if figures.durable:
            entry = await topic.entry_at(figures.mark) - 1
            cursors[name] = {
                "version": 0,
                "cursorsLedgerId": -1,
                "markDelete": {"ledgerId": topic.ledger, "entryId": entry},
            }
    bounds = topic.bounds
    entries = bounds.next_entry - bounds.first_entry
    ledger = {"ledgerId": topic.ledger, "entries": entries, "size": bounds.size_bytes, "isOffloaded": False}
    info: dict[str, Any] = {"version": 0, "ledgers": [ledger], "cursors": cursors}
    if published_ms := topic.figures().last_publish_ms:
        info["modificationDate"] = iso_time(published_ms)
    if bounds.terminated:
        info["terminatedPosition"] = {"ledgerId": topic.ledger, "entryId": bounds.next_entry - 1}
    return info | ({"properties": properties} if properties else {})
