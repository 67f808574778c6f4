"""Compaction: start it, and ask how it went."""

from typing import Any

from penstock.protocols.http.answers import NO_CONTENT, Answer

from .call import Call
from .table import Table
from .topics import TOPIC

table = Table()

_ORDER = ("ERROR", "RUNNING", "NOT_RUN", "SUCCESS")  # which of several partitions' speaks for the topic


@table.on("PUT", f"{TOPIC}/compaction")
async def start(call: Call) -> Answer:
    """Begin to compact a topic: who reads it compacted sees each key's last value only."""
    for log in await call.broker.topics.all_of(call.topic, create=False):
        call.broker.compactions.start(log)
    return NO_CONTENT


@table.on("GET", f"{TOPIC}/compaction", answer=dict[str, Any])
async def status(call: Call) -> Answer:
    """How the last compaction went: NOT_RUN, RUNNING, SUCCESS or ERROR."""
    logs = await call.broker.topics.all_of(call.seen_topic, create=False)
    found = min((log.compaction for log in logs), key=lambda one: _ORDER.index(one.status))
    return Answer(body={"status": found.status, "lastError": found.last_error})
