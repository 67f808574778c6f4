"""How messages become entries and come back; the format of the bytes is not the broker's."""

from collections.abc import Sequence
from typing import Protocol

from penstock.model.entry import Entry, NewEntry, NewRun
from penstock.model.message import Message, OutMessage, Payloads


class Batches(Protocol):
    """Encodes messages as entries and decodes entries (implemented by `penstock.wire.entry`)."""

    def encode(
        self,
        messages: Sequence[OutMessage],
        *,
        producer: str,
        sequence_id: int,
        publish_time: int,
        schema_version: int | None,
    ) -> NewEntry:
        """One entry of all `messages`: alone if there is only one, else a batch.

        Message i gets its own sequence id, or `sequence_id + i`. Delayed and encrypted messages must come alone. Raises
        BAD_ENCODING for a value that has no bytes (lone surrogates, numbers beyond 64 bits), and TOO_LARGE.
        """
        ...

    def encode_each(
        self, messages: Sequence[OutMessage], *, producer: str, publish_time: int
    ) -> list[NewEntry]:
        """One entry for each message, by the message's own sequence id and schema version."""
        ...

    def encode_plain(
        self,
        payloads: Payloads,
        *,
        producer: str,
        sequence_id: int,
        publish_time: int,
        schema_version: int | None,
    ) -> NewEntry:
        """`encode` for messages that have only payloads, faster."""
        ...

    def encode_plain_each(
        self,
        payloads: Payloads,
        *,
        producer: str,
        sequence_id: int,
        publish_time: int,
        schema_version: int | None,
    ) -> NewRun:
        """One entry for each of such messages, numbered from `sequence_id`. The run does not keep the sequence ids."""
        ...

    def decode(self, entry: Entry) -> list[Message]:
        """Every message of an entry; the caller must not change the list. An encrypted or chunk entry is one message
        with its payload unchanged. Raises CHECKSUM or BAD_ENCODING."""
        ...

    def keys(self, entry: Entry) -> list[bytes]:
        """For each message the bytes that Key_Shared hashes: its ordering key, else its key (decoded if it is base64),
        else `{producer}-{sequence id}`. If the entry cannot be opened: the entry's own key for all messages."""
        ...

    def changes(self, entry: Entry) -> list[tuple[bytes | None, bool]] | None:
        """For each message its key (None without one) and whether it deletes the key, for compaction; None for an
        entry that is kept or removed as a whole."""
        ...
