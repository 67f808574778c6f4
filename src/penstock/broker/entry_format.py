"""How messages become bytes."""

from collections.abc import Sequence
from typing import Protocol

from penstock.model.entry import Entry, NewEntry, NewRun
from penstock.model.message import Message, OutMessage, Payloads, PlainMessages


class EntryEncoder(Protocol):
    """How messages become entries."""

    def encode(
        self,
        messages: Sequence[OutMessage],
        *,
        producer: str,
        sequence_id: int,
        publish_time: int,
        schema_version: int | None,
    ) -> NewEntry:
        """One entry of all `messages`: alone when there is one of them, else a batch.

        Message i gets its own sequence id, or `sequence_id + i`. Delayed messages must come alone.
        """

    def encode_each(
        self, messages: Sequence[OutMessage], *, producer: str, publish_time: int
    ) -> list[NewEntry]:
        """An entry of each message, with its own sequence id, which it has, and schema version."""

    def encode_plain(
        self,
        payloads: Payloads,
        *,
        producer: str,
        sequence_id: int,
        publish_time: int,
        schema_version: int | None,
    ) -> NewEntry:
        """`encode` of messages that are nothing but payloads, faster."""

    def encode_plain_each(
        self,
        payloads: Payloads,
        *,
        producer: str,
        sequence_id: int,
        publish_time: int,
        schema_version: int | None,
    ) -> NewRun:
        """An entry of each of such messages, which count from `sequence_id` on; nothing of their sequence ids is kept."""


class EntryFormat(EntryEncoder, Protocol):
    """How messages become an entry's bytes and come back (implemented by `wire`)."""

    def decode(self, entry: Entry) -> list[Message]:
        """Every message of an entry. Raises CHECKSUM or BAD_ENCODING when it cannot be understood; an
        encrypted or chunk entry is one message with its payload as it is."""

    def plain(self, entry: Entry) -> PlainMessages | None:
        """The same without an object for each, where all of them are nothing but payloads; None for all other
        entries, also those that cannot be understood."""

    def keys(self, entry: Entry) -> list[bytes]:
        """For each message what Key_Shared hashes: its ordering key, else its key (decoded where base64), else
        `{producer}-{sequence id}`; of an entry that cannot be opened, the entry's own for all."""

    def changes(self, entry: Entry) -> list[tuple[bytes | None, bool]] | None:
        """For each message its key, None without one, and whether it deletes the key (compaction); None for an
        entry that only stays or goes as a whole."""
