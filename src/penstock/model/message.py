"""Messages as values: one to be published, and one as read from an entry."""

import msgspec

REQUEST_TIMEOUT_PROPERTY = "REQUEST_TIMEOUT_MILLIS"  # PIP-371: a message that carries it is a request


class OutMessage(msgspec.Struct, gc=False, kw_only=True):
    """A message to publish; its payload is encoded by its schema already.

    `key` is a text, or base64 of bytes when `key_is_base64`. Times are ms since the epoch, 0 for none.
    `schema_version` is None for a message without schema. `sequence_id` None lets the producer count.
    `partition` None lets the router choose.
    """

    payload: bytes
    key: str | None = None
    key_is_base64: bool = False
    ordering_key: bytes | None = None
    properties: dict[str, str] | None = None
    event_time: int = 0
    deliver_at: int = 0
    sequence_id: int | None = None
    schema_version: int | None = None
    partition: int | None = None
    replicate_to: list[str] | None = None
    null_value: bool = False


class Message(msgspec.Struct, gc=False, kw_only=True):
    """A message as decoded from its entry; `index` is its place in the batch, -1 when it was sent alone."""

    payload: bytes
    index: int = -1
    offset: int = 0
    key: str | None = None
    key_is_base64: bool = False
    ordering_key: bytes | None = None
    properties: dict[str, str]
    publish_time: int = 0
    event_time: int = 0
    deliver_at: int = 0
    producer_name: str = ""
    sequence_id: int = 0
    schema_version: int | None = None
    replicate_to: list[str] | None = None
    null_value: bool = False
    compacted_out: bool = False
