"""The cursors of a storage: of logs that there are, and within their bounds."""

import sqlite3
from collections.abc import Iterator, Mapping

from penstock.engines.embedded.log.offsets import CHUNK

from .check_entries import Found, LogRow


def check_cursors(connection: sqlite3.Connection, logs: Mapping[int, LogRow]) -> Iterator[Found]:
    """Look at every cursor, the chunks beyond its mark, and the producers' sequence ids."""
    marks: dict[tuple[int, str], int] = {}
    for ledger, name, mark in connection.execute("SELECT ledger, subscription, mark FROM cursors"):
        marks[ledger, name] = mark
        log = logs.get(ledger)
        if log is None:
            yield f"subscription {name!r}", f"it is of ledger {ledger}, which there is not"
        elif not 0 <= mark <= log.end.offset:
            yield (
                f"{log.topic}, subscription {name!r}",
                f"its mark is {mark}, and the log ends at {log.end.offset}",
            )
    chunks = "SELECT ledger, subscription, chunk, bits FROM cursor_chunks"
    for ledger, name, chunk, bits in connection.execute(chunks):
        log, found = logs.get(ledger), marks.get((ledger, name))
        place = f"{log.topic if log else f'ledger {ledger}'}, subscription {name!r}, chunk {chunk}"
        if found is None:
            yield place, "there is no cursor that it belongs to"
        elif len(bits) > CHUNK // 8 or not any(bits):
            yield place, f"it has {len(bits)} bytes" + ("" if any(bits) else ", none of them set")
        elif (chunk + 1) * CHUNK <= found:
            yield place, f"it lies below the mark, {found}"
        else:
            last = chunk * CHUNK + int.from_bytes(bits, "little").bit_length() - 1
            if log is not None and last >= log.end.offset:
                yield place, f"offset {last} is acknowledged, and the log ends at {log.end.offset}"
    for ledger, name, sequence_id in connection.execute("SELECT ledger, name, sequence_id FROM producers"):
        if ledger not in logs:
            yield f"producer {name!r}", f"it is of ledger {ledger}, which there is not"
        elif sequence_id < 0:
            yield f"{logs[ledger].topic}, producer {name!r}", f"its sequence id is {sequence_id}"
