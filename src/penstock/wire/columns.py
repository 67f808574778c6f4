"""Entries whose messages are nothing but payloads, read into columns: without an object for each message."""

from penstock.model.entry import Entry
from penstock.model.errors import PenstockError
from penstock.model.message import PlainMessages

from .batch import split_plain
from .contents import METADATA_AT, open_body
from .plain import read_plain


def plain_messages(entry: Entry) -> PlainMessages | None:
    """The messages of an entry; None if one has more than a payload, or the entry cannot be read so."""
    try:
        body, at = open_body(entry.data)
    except PenstockError:
        return None  # `decode` reports the error
    metadata = read_plain(body, METADATA_AT, at)
    if metadata is None:
        return None
    producer, sequence_id, publish_time, batch_size, version, properties = metadata
    if properties:
        return None
    if batch_size:
        payloads = split_plain(body[at:], batch_size)
        if payloads is None or batch_size != entry.count:
            return None
    elif entry.count == 1:
        payloads = [body[at:]]
    else:
        return None
    return PlainMessages(payloads, batch_size > 0, producer, sequence_id, publish_time, version)
