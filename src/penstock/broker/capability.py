"""What an engine can do beyond publishing and consuming, which not every log behind it offers."""

from enum import Enum
from typing import Final, TypeVar

from penstock.model.errors import ErrorKind, PenstockError

T = TypeVar("T")


class Capability(Enum):
    """A feature that an endpoint asks for before it uses it. The value is what the error calls it."""

    BYTE_POSITIONS = "byte positions"  # the Kafka REST proposal's positions
    STAGED_PUBLISH = "staged publishing"  # the exactly-once sink of Spark
    ENTRIES = "publishing of whole entries"  # in bulk, as clients made them
    COMPACTION = "compaction on demand"
    TERMINATION = "termination of topics"
    EXCLUSIVE_PRODUCERS = "producers that have a topic alone"
    # Numbers of messages that rise; dense ones unless the log is Kafka's. Without them positions are opaque inside the process, and never shown.
    OFFSETS = "offsets"


_NUMBERS: Final = (
    "the cluster does not number its entries, or does not show the numbers: its brokers need"
    " brokerEntryMetadataInterceptors=org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor and"
    " exposingBrokerEntryMetadataToClientEnabled=true"
)
_NEEDS: Final = {Capability.OFFSETS: _NUMBERS, Capability.BYTE_POSITIONS: _NUMBERS}


def require(capabilities: frozenset[Capability], capability: Capability) -> None:
    """Raise NOT_SUPPORTED if the engine cannot do what a request needs."""
    if capability not in capabilities:
        needs = _NEEDS.get(capability)
        raise not_supported(capability.value + (f": {needs}" if needs else ""))


def offered(part: T | None, what: str) -> T:
    """A part that not every engine has, called `what`; raises NOT_SUPPORTED if this engine does not have it."""
    if part is None:
        raise not_supported(what)
    return part


def not_supported(what: str) -> PenstockError:
    """The error for a request that needs something that the engine does not have."""
    return PenstockError(ErrorKind.NOT_SUPPORTED, f"the engine behind this server has no {what}")
