"""What the declarations of REST's operations share: paths, parameters, errors."""

from typing import Final

from penstock.model.errors import ErrorKind
from penstock.protocols.http import operations
from penstock.protocols.http.params import Parameter

TOPIC: Final = "/topics/{tenant}/{namespace}/{topic}"
SHIPPED: Final = "/topics/{domain}/{tenant}/{namespace}/{topic}"  # in the dialect that Pulsar shipped

COUNT: Final = {"type": "integer", "minimum": 1}
NUMBER: Final = {"type": "integer", "minimum": 0}
FLAG: Final = {"type": "boolean"}

ALWAYS: Final = (*operations.ALWAYS, ErrorKind.INVALID_NAME)
PRODUCING: Final = (
    *ALWAYS,
    ErrorKind.TOPIC_NOT_FOUND,
    ErrorKind.PARTITION_NOT_FOUND,
    ErrorKind.INCOMPATIBLE_SCHEMA,
    ErrorKind.PRODUCER_FENCED,
    ErrorKind.EXCLUSIVE_PRODUCER,
    ErrorKind.TOO_LARGE,
    ErrorKind.BAD_MEDIA_TYPE,
    ErrorKind.NEEDS_KEY_VALUE_SCHEMA,
    ErrorKind.NEEDS_VALUE_SCHEMA,
    ErrorKind.BAD_KEY_SCHEMA,
    ErrorKind.BAD_VALUE_SCHEMA,
    ErrorKind.BAD_MESSAGE,
    ErrorKind.STORAGE_FULL,
    ErrorKind.STORAGE_FAILED,
    ErrorKind.TOPIC_TERMINATED,
)
READING: Final = (
    *ALWAYS,
    ErrorKind.TOPIC_NOT_FOUND,
    ErrorKind.PARTITION_NOT_FOUND,
    ErrorKind.NOT_ACCEPTABLE,
)
CONSUMING: Final = (*ALWAYS, ErrorKind.TOPIC_NOT_FOUND, ErrorKind.SUBSCRIPTION_NOT_FOUND)

TIMEOUT: Final = Parameter("timeout", "How long to wait for the first message, in ms.", NUMBER)
BOUNDS: Final = (
    Parameter("max_messages", "At most so many messages.", COUNT),
    Parameter("max_bytes", "At most so many bytes of keys and values, but at least one message.", COUNT),
    Parameter(
        "encoding",
        "How values are shown: by their schemas, or their payloads as base64 or text.",
        {"type": "string", "enum": ["json", "base64", "text"]},
    ),
)
