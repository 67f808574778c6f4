"""The names of the fields of a message in JSON, which REST shows and takes, and the command line reads."""

from typing import Final

JSON_NAMES: Final = {
    "message_id": "messageId",
    "publish_time": "publishTime",
    "event_time": "eventTime",
    "deliver_at": "deliverAt",
    "deliver_after_ms": "deliverAfterMs",
    "sequence_id": "sequenceId",
    "producer_name": "producerName",
    "key_is_base64": "keyIsBase64",
    "replication_clusters": "replicationClusters",
    "disable_replication": "disableReplication",
    "redelivery_count": "redeliveryCount",
    "request_timeout_ms": "requestTimeoutMillis",
    "request_deadline": "requestDeadline",
    "value_size": "valueSize",
}
"""By their names in Python; all others have the same name."""
