"""Every error of the project in one table: its face on each endpoint, and whether a retry can help."""

from enum import Enum
from typing import Any, Final, NamedTuple, Self


class ErrorCodes(NamedTuple):
    """How one kind of error shows on each endpoint.

    `status`, `code`: HTTP status and PIP-64 error code. `ws_status`: status of a refused WebSocket upgrade
    (Pulsar's WebSocket API). `ws_result`: number in `send-error:N` and, plus 4000, the close code.
    `server_error`: number of Pulsar's binary `ServerError`. `retriable`: PIP-64's error_code 2 rather than 1.
    """

    status: int
    code: int
    ws_status: int
    ws_result: int
    server_error: int
    retriable: bool = False


class ErrorKind(Enum):
    """The kinds of error, by name. Two may have the same face and are still two."""

    codes: ErrorCodes

    def __new__(cls, *face: Any) -> Self:
        member = object.__new__(cls)
        member._value_ = len(cls.__members__)
        member.codes = ErrorCodes(*face)
        return member

    BAD_PARAMETER = ErrorCodes(400, 40001, 400, 8, 22)
    INVALID_NAME = ErrorCodes(412, 41201, 400, 8, 17)
    BAD_JSON = ErrorCodes(422, 42205, 400, 3, 22)
    BAD_ENCODING = ErrorCodes(422, 42205, 400, 7, 22)
    UNAUTHENTICATED = ErrorCodes(401, 40101, 401, 5, 3)
    FORBIDDEN = ErrorCodes(403, 40301, 403, 6, 4)
    TOPIC_NOT_FOUND = ErrorCodes(404, 40401, 404, 8, 11)
    PARTITION_NOT_FOUND = ErrorCodes(404, 40402, 404, 8, 11)
    CONSUMER_NOT_FOUND = ErrorCodes(404, 40403, 404, 8, 13)
    SUBSCRIPTION_NOT_FOUND = ErrorCodes(404, 40404, 404, 8, 12)
    NAMESPACE_NOT_FOUND = ErrorCodes(404, 40405, 404, 8, 1)
    SCHEMA_NOT_FOUND = ErrorCodes(404, 40406, 404, 8, 11)
    MESSAGE_NOT_FOUND = ErrorCodes(404, 40407, 404, 8, 1)
    STAGE_NOT_FOUND = ErrorCodes(404, 40408, 404, 8, 1)
    NOT_FOUND = ErrorCodes(404, 40400, 404, 8, 1)
    METHOD_NOT_ALLOWED = ErrorCodes(405, 40501, 405, 8, 22)
    NOT_ACCEPTABLE = ErrorCodes(406, 40601, 406, 8, 22)
    CONSUMER_BUSY = ErrorCodes(409, 40901, 409, 2, 5)
    SUBSCRIPTION_BUSY = ErrorCodes(409, 40902, 409, 2, 5)
    SUBSCRIPTION_SHARED = ErrorCodes(409, 40902, 409, 2, 1)  # Pulsar's number for it on the wire is another
    INCOMPATIBLE_SCHEMA = ErrorCodes(409, 40903, 409, 8, 18)
    PRODUCER_BUSY = ErrorCodes(409, 40904, 409, 1, 16)
    PRODUCER_FENCED = ErrorCodes(409, 40905, 409, 1, 25)
    # For producers that would share the topic; on the wire Pulsar says ProducerBusy then, which its clients retry.
    EXCLUSIVE_PRODUCER = ErrorCodes(409, 40905, 409, 1, 16)
    ALREADY_EXISTS = ErrorCodes(409, 40906, 409, 8, 22)
    KEY_RANGE_TAKEN = ErrorCodes(409, 40907, 409, 2, 19)
    NAMESPACE_IN_USE = ErrorCodes(409, 40908, 409, 8, 22)
    STAGE_CONFLICT = ErrorCodes(409, 40910, 409, 8, 22)
    BATCH_CONFLICT = ErrorCodes(409, 40911, 409, 8, 22)  # of a staged commit, with the writer's last
    PARTITIONING_CONFLICT = ErrorCodes(409, 40912, 409, 8, 22)  # the call is for the other kind of topic
    NOT_GRANTED = ErrorCodes(412, 41203, 409, 8, 22)
    TOPIC_IN_USE = ErrorCodes(412, 41202, 409, 8, 22)
    TOO_MANY_TOPICS = ErrorCodes(412, 41203, 412, 8, 22)
    TOO_MANY_SUBSCRIPTIONS = ErrorCodes(412, 41204, 412, 2, 22)
    TOO_LARGE = ErrorCodes(413, 41301, 413, 8, 22)
    BAD_MEDIA_TYPE = ErrorCodes(415, 41501, 415, 8, 22)
    RANGE_NOT_SATISFIABLE = ErrorCodes(416, 41601, 416, 8, 22)
    NEEDS_KEY_VALUE_SCHEMA = ErrorCodes(422, 42201, 400, 7, 18)
    NEEDS_VALUE_SCHEMA = ErrorCodes(422, 42202, 400, 7, 18)
    BAD_KEY_SCHEMA = ErrorCodes(422, 42203, 400, 7, 18)
    BAD_VALUE_SCHEMA = ErrorCodes(422, 42204, 400, 7, 18)
    BAD_MESSAGE = ErrorCodes(422, 42205, 400, 7, 22)
    FEWER_PARTITIONS = ErrorCodes(422, 42206, 400, 8, 22)
    MISDIRECTED = ErrorCodes(421, 42101, 503, 8, 6, True)  # another process of the service has to answer it
    SLOW_REQUEST = ErrorCodes(408, 40801, 408, 8, 22)
    HEAD_TOO_LARGE = ErrorCodes(431, 43101, 431, 8, 22)
    TOO_MANY_REQUESTS = ErrorCodes(429, 42901, 429, 8, 14, True)
    CHECKSUM = ErrorCodes(400, 40002, 400, 8, 9)
    INTERNAL = ErrorCodes(500, 50001, 500, 8, 0)
    NOT_SUPPORTED = ErrorCodes(501, 50101, 501, 8, 22)  # by the engine behind the server
    STORAGE_FULL = ErrorCodes(503, 50302, 503, 8, 2, True)
    UNAVAILABLE = ErrorCodes(503, 50301, 503, 8, 6, True)
    TOPIC_TERMINATED = ErrorCodes(503, 50303, 503, 8, 15)
    BACKLOG_QUOTA_HOLD = ErrorCodes(503, 50304, 503, 8, 7, True)
    BACKLOG_QUOTA_EXCEPTION = ErrorCodes(503, 50305, 503, 8, 8, True)
    STORAGE_FAILED = ErrorCodes(
        503, 50306, 503, 8, 2, True
    )  # on the wire as STORAGE_FULL: Pulsar has one number for both
    NEWER_FORMAT = ErrorCodes(503, 50307, 503, 8, 6, True)  # stored in a cluster by a newer Penstock
    REQUEST_TIMEOUT = ErrorCodes(504, 50401, 504, 8, 1)


WS_CLOSE_BASE: Final = 4000  # close codes below 1000 are illegal on the wire (RFC 6455 7.4.1)

WS_RESULT_TEXT: Final = {
    1: "Failed to create producer",
    2: "Failed to subscribe",
    3: "Failed to de-serialize from JSON",
    4: "Failed to serialize to JSON",
    5: "Failed to authenticate client",
    6: "Client is not authorized",
    7: "Invalid payload encoding",
    8: "Unknown error",
}


class PenstockError(Exception):
    """Any error that is answered to a user; `kind` names its place in the table."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after_s = 1  # if a retry can help: its delay

    @property
    def retriable(self) -> bool:
        return self.kind.codes.retriable

    def __repr__(self) -> str:
        return f"PenstockError({self.kind.name}, {self.message!r})"

    def __reduce__(self) -> tuple[type["PenstockError"], tuple[ErrorKind, str]]:
        return type(self), (self.kind, self.message)
