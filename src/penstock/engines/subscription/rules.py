"""The rules of each type of subscription."""

from typing import Final

from penstock.model.policy import SubscriptionType

from .key_shared import KeyShared
from .selection import Exclusive, Failover, Selection, Shared

RULES: Final[dict[SubscriptionType, type[Selection]]] = {
    SubscriptionType.EXCLUSIVE: Exclusive,
    SubscriptionType.FAILOVER: Failover,
    SubscriptionType.SHARED: Shared,
    SubscriptionType.KEY_SHARED: KeyShared,
}
