"""Everything the client offers, by the names under which `penstock` shows it."""

from . import aio, errors, schema
from .authentication import (
    Authentication,
    AuthenticationBasic,
    AuthenticationTLS,
    AuthenticationToken,
)
from .blocking import Client, Consumer, Producer, Reader, TableView
from .draft import Draft, ReplyResult
from .enums import (
    BatchingType,
    CompressionType,
    ConsumerCryptoFailureAction,
    ConsumerType,
    InitialPosition,
    KeySharedMode,
    KeyValueEncodingType,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
    Result,
)
from .errors import *  # noqa: F403
from .interceptor import ProducerInterceptor
from .message import Message
from .message_id import MessageId
from .policies import ConsumerBatchReceivePolicy, ConsumerDeadLetterPolicy, ConsumerKeySharedPolicy
from .schema import *  # noqa: F403

__all__ = [
    "Authentication",
    "AuthenticationBasic",
    "AuthenticationTLS",
    "AuthenticationToken",
    "BatchingType",
    "Client",
    "CompressionType",
    "Consumer",
    "ConsumerBatchReceivePolicy",
    "ConsumerCryptoFailureAction",
    "ConsumerDeadLetterPolicy",
    "ConsumerKeySharedPolicy",
    "ConsumerType",
    "Draft",
    "InitialPosition",
    "KeySharedMode",
    "KeyValueEncodingType",
    "Message",
    "MessageId",
    "PartitionsRoutingMode",
    "Producer",
    "ProducerAccessMode",
    "ProducerInterceptor",
    "Reader",
    "RegexSubscriptionMode",
    "ReplyResult",
    "Result",
    "TableView",
    "aio",
    "schema",
]
__all__ += errors.__all__
__all__ += schema.__all__
