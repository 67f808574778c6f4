"""What the log of a writer holds, and what follows from it."""

from typing import Final

import msgspec

from penstock.client.entries.transactions import TransactionId
from penstock.engines.staging.writers import Claimed, KnownWriter
from penstock.model.entry import Entry
from penstock.model.formats import VERSION, WRITERS
from penstock.model.message import OutMessage
from penstock.model.stage import Commit, Targets
from penstock.wire import entry as wire


class Opened(msgspec.Struct, frozen=True, tag=True):
    """A process has the writer now: no other one appends behind this."""


class Began(msgspec.Struct, frozen=True, tag=True):
    """A commit is under way in a transaction."""

    transaction: TransactionId


class Committed(msgspec.Struct, frozen=True, tag=True):
    """The last batch committed to a set of topics. It is stored in the transaction of the batch's messages, so that it is there
    with them or not at all."""

    commit: Commit


class Forgot(msgspec.Struct, frozen=True, tag=True):
    """The last batch committed to a set of topics counts no more."""

    topics: Targets


Record = Opened | Claimed | Began | Committed | Forgot

_decoder: Final[msgspec.json.Decoder[Record]] = msgspec.json.Decoder(Record)


def packed(record: Record, *, producer: str, sequence_id: int, at: int) -> bytes:
    """The entry of a record."""
    message = OutMessage(payload=msgspec.json.encode(record), properties=WRITERS.properties())
    entry = wire.encode(
        [message], producer=producer, sequence_id=sequence_id, publish_time=at, schema_version=None
    )
    return entry.data


def record_of(entry: Entry, writer: str) -> Record:
    """The record in an entry of a writer's log. Raises NEWER_FORMAT."""
    message = wire.decode(entry)[0]
    WRITERS.check(message.properties.get(VERSION), writer)
    return _decoder.decode(message.payload)


class WriterState(KnownWriter):
    """A writer as its log has it. `open` is a transaction whose outcome the log does not show."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.open: TransactionId | None = None
        self.records = 0

    def apply(self, record: Record) -> None:
        """A record follows."""
        self.records += 1
        if isinstance(record, Claimed):
            self.claimed = record
        elif isinstance(record, Began):
            self.open = record.transaction
        elif isinstance(record, Committed):
            self.open = None
            topics = record.commit.topics or ()
            known = self.commits.get(topics)
            # Of a process that was fenced off, a record without a transaction may come late.
            if known is None or known.batch <= record.commit.batch:
                self.commits[topics] = record.commit
        elif isinstance(record, Forgot):
            self.commits.pop(record.topics, None)

    @property
    def live(self) -> list[Record]:
        """The records that all follows from."""
        records: list[Record] = [] if self.claimed is None else [self.claimed]
        return records + [Committed(commit) for commit in self.commits.values()]
