"""What is said of an option that is not known: which one is meant, as far as its name, or other connectors', tells.

Spark hands names over in lower case, so that they are compared in it.
"""

import difflib
from collections.abc import Mapping, Sequence
from typing import Final

# What options of Spark's Kafka connector, of Pulsar's and of Delta's are called here.
_ELSEWHERE: Final = {
    "kafka.bootstrap.servers": "the server is named by option url, like http://127.0.0.1:8080",
    "service.url": "the server is named by option url, like http://127.0.0.1:8080",
    "admin.url": "the server is named by option url, like http://127.0.0.1:8080",
    "kafka.group.id": "a durable subscription that follows a stream is named by option subscription",
    "groupidprefix": "a durable subscription that follows a stream is named by option subscription",
    "includeheaders": "a message's headers are its properties: say include=properties",
    "startingoffsetsbytimestamp": "say startingTimestamp, in ms since the epoch",
    "endingoffsetsbytimestamp": "say endingTimestamp, in ms since the epoch",
    "maxrecordspertrigger": "say maxOffsetsPerTrigger",
    "maxfilespertrigger": "say maxOffsetsPerTrigger",
    "versionasof": "say version",
    "timestampasof": "say version",
    "txnappid": "who writes is named by option writer",
    "txnversion": "the number of the batch is option batch",
    "mergeschema": "leave it out: a table's columns grow by themselves",
    "overwriteschema": "leave it out: a table's columns grow by themselves",
}
_KAFKA: Final = ("kafka.", "kafkaconsumer.", "fetchoffset.")
_KAFKAS: Final = "an option of Kafka's connector, which this is not; leave it out"
_LIKE: Final = 0.7  # of 1: one letter too many, or two exchanged, but not another word


def unknown(given: str, names: Sequence[str], hints: Mapping[str, str] = {}) -> str:
    """The sentence about option `given` where there are `names`. `hints`: by lower-case name, what to do instead."""
    key = given.lower()
    known = {name.lower(): name for name in names}
    hint = hints.get(key)
    # What is said of another connector's option counts where the place has what it speaks of.
    if hint is None and (elsewhere := _ELSEWHERE.get(key)):
        hint = elsewhere if _speaks_of(elsewhere, names) else None
    if hint is None and key.startswith(_KAFKA):
        hint = _KAFKAS
    if hint is None and (part := next((name for name in names if name.lower().endswith(f".{key}")), None)):
        hint = f"did you mean {part}?"
    if hint is None and (like := difflib.get_close_matches(key, known, 1, _LIKE)):
        hint = f"did you mean {known[like[0]]}?"
    return (
        f"unknown option {given}: {hint}" if hint else f"unknown option {given}; there are {', '.join(names)}"
    )


def _speaks_of(hint: str, names: Sequence[str]) -> bool:
    words = hint.replace(":", " ").replace(",", " ").replace("=", " ").split()
    return "leave" in words or any(name in words for name in names)
