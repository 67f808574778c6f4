"""The policies that namespaces and topics share: their JSON as Pulsar has it, and what may be said."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from penstock.core.policies import InForce
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.policy import Quota, QuotaAction, Retention, TopicPolicies

from .answers import Answer
from .call import Call

SIZE, AGE = "destination_storage", "message_age"
QUOTA_FIELDS: Final = {SIZE: "size_quota", AGE: "age_quota"}

Policied = TopicPolicies | InForce


class RetentionBody(msgspec.Struct):
    """Pulsar's RetentionPolicies; -1 bounds nothing."""

    retentionTimeInMinutes: int  # noqa: N815 - Pulsar's JSON
    retentionSizeInMB: int  # noqa: N815


class QuotaBody(msgspec.Struct):
    """Pulsar's BacklogQuota: `limitSize` in bytes, `limitTime` in seconds; -1 bounds nothing."""

    policy: QuotaAction
    limitSize: int | None = None  # noqa: N815
    limitTime: int = -1  # noqa: N815
    limit: int = -1  # what `limitSize` was called


class Setting(NamedTuple):
    """One policy: where it is kept, under which paths, and its JSON."""

    field: str
    namespace: str  # the last segment of its path below a namespace; "": not there
    topic: str  # and below a topic
    body: Any
    says: str  # of what it decides, for the documentation
    read: Callable[[Any], Any]  # a body's value as it is kept; raises BAD_PARAMETER
    shown: Callable[[Any], Any] = lambda value: value
    parameter: str = ""  # a topic's may come in the query, as Pulsar's tools send it


def _retention(body: RetentionBody) -> Retention:
    minutes, mb = body.retentionTimeInMinutes, body.retentionSizeInMB
    if not (-1 <= minutes < 1 << 31 and -1 <= mb < 1 << 31):  # Pulsar's are of 32 bits
        raise PenstockError(
            ErrorKind.BAD_PARAMETER, "retention's bounds are -1, for none, or more, up to 2147483647"
        )
    if (minutes == 0) != (mb == 0):
        raise PenstockError(
            ErrorKind.BAD_PARAMETER,
            "one bound of retention is 0 and the other is not: 0 keeps nothing, whatever the other says; "
            "-1 bounds nothing",
        )
    return Retention(minutes, mb)


def shown_retention(kept: Retention) -> dict[str, int]:
    """Retention as Pulsar's JSON has it."""
    return {"retentionTimeInMinutes": kept.minutes, "retentionSizeInMB": kept.mb}


def _natural(number: int) -> int:
    if not 0 <= number < 1 << 31:
        raise PenstockError(
            ErrorKind.BAD_PARAMETER, f"the value must be 0, for no bound, or more, not {number}"
        )
    return number


SETTINGS: Final = (
    Setting(
        "retention",
        "retention",
        "retention",
        RetentionBody,
        "how long, and up to which size, acknowledged messages are kept",
        _retention,
        shown_retention,
    ),
    Setting(
        "message_ttl_s",
        "messageTTL",
        "messageTTL",
        int,
        "after how many seconds messages count as acknowledged",
        _natural,
        parameter="messageTTL",
    ),
    Setting("deduplication", "", "deduplicationEnabled", bool, "whether repeats are dropped", bool),
    Setting(
        "max_producers",
        "maxProducersPerTopic",
        "maxProducers",
        int,
        "the most producers of a topic",
        _natural,
    ),
    Setting(
        "max_consumers",
        "maxConsumersPerTopic",
        "maxConsumers",
        int,
        "the most consumers of a topic",
        _natural,
    ),
    Setting(
        "max_consumers_per_subscription",
        "maxConsumersPerSubscription",
        "maxConsumersPerSubscription",
        int,
        "the most consumers of a subscription",
        _natural,
    ),
    Setting(
        "max_subscriptions",
        "maxSubscriptionsPerTopic",
        "maxSubscriptionsPerTopic",
        int,
        "the most subscriptions of a topic",
        _natural,
    ),
    Setting(
        "max_topics",
        "maxTopicsPerNamespace",
        "",
        int,
        "the most topics of a namespace, partitions counted each",
        _natural,
    ),
)


def answer(value: Any) -> Answer:
    """A policy as JSON; `null` where nothing is decided."""
    return Answer(raw=msgspec.json.encode(value), headers={"content-type": "application/json"})


def show(setting: Setting, policies: Any) -> Any:
    """A policy's JSON, None where nothing is decided."""
    value = getattr(policies, setting.field)
    return None if value is None else setting.shown(value)


def wanted(setting: Setting, call: Call) -> Any:
    """What a call wants a policy to be; raises BAD_PARAMETER."""
    text = call.query.get(setting.parameter) if setting.parameter else None
    if text is None:
        return setting.read(call.body(setting.body))
    if not (text.lstrip("-").isdecimal() and text.isascii() and len(text) <= 18):
        raise PenstockError(
            ErrorKind.BAD_PARAMETER, f"{setting.parameter} must be a number, not {text[:80]!r}"
        )
    return setting.read(int(text))


# -- backlog quotas


def quota_field(call: Call) -> str:
    """Which of the two quotas a call is about; raises BAD_PARAMETER."""
    kind = call.query.get("backlogQuotaType", SIZE)
    if kind not in QUOTA_FIELDS:
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"backlogQuotaType must be {SIZE} or {AGE}")
    return QUOTA_FIELDS[kind]


def wanted_quota(call: Call) -> Quota:
    """The quota that a call wants; raises BAD_PARAMETER."""
    return read_quota(quota_field(call), call.body(QuotaBody))


def read_quota(field: str, body: QuotaBody) -> Quota:
    """A quota from its JSON."""
    size = body.limit if body.limitSize is None else body.limitSize
    limit = size if field == "size_quota" else body.limitTime
    if not -1 <= limit < 1 << 53:
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"a quota's limit is -1, for none, or more, not {limit}")
    return Quota(limit, body.policy)


def shown_quotas(policies: Policied) -> dict[str, Any]:
    """The quotas that are decided, as Pulsar's JSON has them."""
    shown: dict[str, Any] = {}
    if policies.size_quota is not None:
        shown[SIZE] = _shown_quota(policies.size_quota.limit, -1, policies.size_quota)
    if policies.age_quota is not None:
        shown[AGE] = _shown_quota(-1, policies.age_quota.limit, policies.age_quota)
    return shown


def _shown_quota(size: int, seconds: int, quota: Quota) -> dict[str, Any]:
    return {"limit": size, "limitSize": size, "limitTime": seconds, "policy": quota.action.value}
