"""The proxy's codes, and those of errors that the broker raises."""

from collections.abc import Mapping
from typing import Final

from penstock.model.confluent import ConfluentCode
from penstock.model.errors import ErrorKind

UNAUTHENTICATED: Final = ConfluentCode(401, 40101)
FORBIDDEN: Final = ConfluentCode(403, 40301)
TOPIC_NOT_FOUND: Final = ConfluentCode(404, 40401)
PARTITION_NOT_FOUND: Final = ConfluentCode(404, 40402)
INSTANCE_NOT_FOUND: Final = ConfluentCode(404, 40403)
INSTANCE_EXISTS: Final = ConfluentCode(409, 40902)
ILLEGAL_STATE: Final = ConfluentCode(409, 40903)
BAD_CONSUMER: Final = ConfluentCode(422, 42204)
TOO_LARGE: Final = ConfluentCode(413, 413)
KAFKA_ERROR: Final = ConfluentCode(500, 50002)
RETRIABLE: Final = ConfluentCode(500, 50003)

BY_KIND: Final[Mapping[ErrorKind, ConfluentCode]] = {
    ErrorKind.UNAUTHENTICATED: ConfluentCode(401, 401),
    ErrorKind.FORBIDDEN: FORBIDDEN,
    ErrorKind.TOPIC_NOT_FOUND: TOPIC_NOT_FOUND,
    ErrorKind.NAMESPACE_NOT_FOUND: TOPIC_NOT_FOUND,
    ErrorKind.PARTITION_NOT_FOUND: PARTITION_NOT_FOUND,
    ErrorKind.CONSUMER_NOT_FOUND: INSTANCE_NOT_FOUND,
    ErrorKind.INVALID_NAME: ConfluentCode(422, 422),
    ErrorKind.SUBSCRIPTION_BUSY: ILLEGAL_STATE,
    ErrorKind.CONSUMER_BUSY: ILLEGAL_STATE,
    ErrorKind.BAD_PARAMETER: BAD_CONSUMER,
    ErrorKind.TOO_MANY_REQUESTS: ConfluentCode(429, 42901),
    ErrorKind.TOO_LARGE: TOO_LARGE,
    ErrorKind.NOT_SUPPORTED: ConfluentCode(501, 50101),
}
