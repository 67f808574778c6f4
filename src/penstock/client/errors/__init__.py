"""Everything the client may raise, by the official client's names, and the broker's errors as these.

PenstockError
└── PulsarException
    ├── Timeout (also builtins.TimeoutError; TimeoutError is another name for it)
    ├── ConnectError, NotConnected, AlreadyClosed, ServiceUnitNotReady, TooManyLookupRequestException …
    ├── ProducerBusy, ProducerFenced, ProducerQueueIsFull, MessageTooBig, TopicTerminated …
    └── ConsumerBusy, TopicNotFound, SubscriptionNotFound, IncompatibleSchema, InvalidMessage …
"""

from . import broker, own
from .broker import *  # noqa: F403
from .broker import server_error as server_error
from .own import *  # noqa: F403

__all__ = []
__all__ += broker.__all__
__all__ += own.__all__
