"""A message as the admin API gives it: the payload is the body, the rest is in headers."""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

_HEADERS: Final = {
    "messageId": "X-Pulsar-Message-ID",
    "publishTime": "X-Pulsar-publish-time",
    "eventTime": "X-Pulsar-event-time",
    "deliverAtTime": "X-Pulsar-deliver-at-time",
    "key": "X-Pulsar-partition-key",
    "producerName": "X-Pulsar-producer-name",
    "sequenceId": "X-Pulsar-sequence-id",
    "batchMessages": "X-Pulsar-num-batch-message",
}


def shown(payload: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    """The message as a record: `payload` as text, or `payloadBase64` if it is not text."""
    import json

    found: dict[str, Any] = {name: headers.get(header) for name, header in _HEADERS.items()}
    found = {name: value for name, value in found.items() if value is not None}
    found["properties"] = json.loads(headers.get("X-Pulsar-PROPERTY") or "{}")
    try:
        found["payload"] = payload.decode()
    except UnicodeDecodeError:
        found["payloadBase64"] = b64encode(payload).decode()
    return found
