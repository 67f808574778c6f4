"""Pulsar's JSON of policies, and how it is read and shown. Each reader raises BAD_PARAMETER."""

from typing import Any, Final, Literal

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.policy import (
    AutoTopics,
    InForce,
    Quota,
    QuotaAction,
    Retention,
    SubscriptionType,
    TopicPolicies,
    TopicRate,
)


def _bad(text: str) -> PenstockError:
    return PenstockError(ErrorKind.BAD_PARAMETER, text)


class RetentionBody(msgspec.Struct):
    """Pulsar's RetentionPolicies; -1 bounds nothing."""

    retentionTimeInMinutes: int  # noqa: N815 - Pulsar's JSON
    retentionSizeInMB: int  # noqa: N815


def read_retention(body: RetentionBody) -> Retention:
    """Retention of both bounds or none."""
    minutes, mb = body.retentionTimeInMinutes, body.retentionSizeInMB
    if not (-1 <= minutes < 1 << 31 and -1 <= mb < 1 << 31):  # Pulsar's are of 32 bits
        raise _bad("retention's bounds are -1, for none, or more, up to 2147483647")
    if (minutes == 0) != (mb == 0):
        raise _bad(
            "one bound of retention is 0 and the other is not: 0 keeps nothing, whatever the other says; "
            "-1 bounds nothing",
        )
    return Retention(minutes, mb)


def shown_retention(kept: Retention) -> dict[str, int]:
    """Retention as Pulsar's JSON has it."""
    return {"retentionTimeInMinutes": kept.minutes, "retentionSizeInMB": kept.mb}


class PublishRateBody(msgspec.Struct):
    """Pulsar's PublishRate; 0 or less bounds nothing."""

    publishThrottlingRateInMsg: int = -1  # noqa: N815 - Pulsar's JSON
    publishThrottlingRateInByte: int = -1  # noqa: N815


class DispatchRateBody(msgspec.Struct):
    """Pulsar's DispatchRate; 0 or less bounds nothing."""

    dispatchThrottlingRateInMsg: int = -1  # noqa: N815 - Pulsar's JSON
    dispatchThrottlingRateInByte: int = -1  # noqa: N815
    relativeToPublishRate: bool = False  # noqa: N815
    ratePeriodInSecond: int = 1  # noqa: N815 - one second if left out; 0 is refused


class AutoSubscriptionBody(msgspec.Struct):
    """Pulsar's AutoSubscriptionCreationOverride."""

    allowAutoSubscriptionCreation: bool  # noqa: N815 - Pulsar's JSON


class AutoTopicBody(msgspec.Struct):
    """Pulsar's AutoTopicCreationOverride."""

    allowAutoTopicCreation: bool  # noqa: N815 - Pulsar's JSON
    topicType: Literal["partitioned", "non-partitioned"] | None = None  # noqa: N815
    defaultNumPartitions: int | None = None  # noqa: N815


def read_publish_rate(body: PublishRateBody) -> TopicRate:
    """How fast messages may be published."""
    return _rate(body.publishThrottlingRateInMsg, body.publishThrottlingRateInByte, 1)


def read_dispatch_rate(body: DispatchRateBody) -> TopicRate:
    """How fast messages may be delivered."""
    if body.relativeToPublishRate:
        raise _bad("relativeToPublishRate is not supported: give the rate itself")
    return _rate(body.dispatchThrottlingRateInMsg, body.dispatchThrottlingRateInByte, body.ratePeriodInSecond)


def _rate(messages: int, size: int, seconds: int) -> TopicRate:
    if max(messages, size) >= 1 << 53 or not 0 < seconds <= 86_400:
        raise _bad("a rate is below 2^53, and its period within 1 and 86400 seconds")
    return TopicRate(max(-1, messages) or -1, max(-1, size) or -1, seconds)


def shown_publish_rate(rate: TopicRate) -> dict[str, Any]:
    """A rate as Pulsar's JSON has it."""
    return {"publishThrottlingRateInMsg": rate.messages, "publishThrottlingRateInByte": rate.bytes}


def shown_dispatch_rate(rate: TopicRate) -> dict[str, Any]:
    """A rate as Pulsar's JSON has it."""
    return {
        "dispatchThrottlingRateInMsg": rate.messages,
        "dispatchThrottlingRateInByte": rate.bytes,
        "relativeToPublishRate": False,
        "ratePeriodInSecond": rate.period_s,
    }


def read_auto_topics(body: AutoTopicBody) -> AutoTopics:
    """Whether topics are created, and with how many partitions."""
    partitions = body.defaultNumPartitions
    if body.topicType == "non-partitioned":
        if partitions not in (None, 0):
            raise _bad("defaultNumPartitions is not for topics of the type non-partitioned")
        partitions = 0
    elif body.allowAutoTopicCreation and body.topicType is None:
        raise _bad("topicType must be partitioned or non-partitioned")
    elif body.topicType == "partitioned" and (partitions is None or partitions < 1):
        raise _bad("defaultNumPartitions must be 1 or more")
    return AutoTopics(body.allowAutoTopicCreation, partitions or 0)


def shown_auto_topics(auto: AutoTopics) -> dict[str, Any]:
    """The same as Pulsar's JSON has it."""
    if not auto.partitions:
        return {"allowAutoTopicCreation": auto.allowed, "topicType": "non-partitioned"}
    return {
        "allowAutoTopicCreation": auto.allowed,
        "topicType": "partitioned",
        "defaultNumPartitions": auto.partitions,
    }


def read_subscription_types(names: list[str]) -> tuple[SubscriptionType, ...]:
    """The types of names, each once."""
    found = []
    for name in names:
        kind = SubscriptionType.named(name)
        if kind is None:
            known = ", ".join(one.value for one in SubscriptionType)
            raise _bad(f"unknown subscription type {name[:80]!r}; there are {known}")
        found.append(kind)
    return tuple(dict.fromkeys(found))


def natural(number: int) -> int:
    """A bound, 0 for none."""
    if not 0 <= number < 1 << 31:
        raise _bad(f"the value must be 0, for no bound, or more, not {number}")
    return number


def size_in_bytes(number: int) -> int:
    """A size, 0 for none."""
    if not 0 <= number < 1 << 53:
        raise _bad(f"the value must be 0 or more bytes, not {number}")
    return number


# -- backlog quotas

QUOTA_FIELDS: Final = {"destination_storage": "size_quota", "message_age": "age_quota"}


class QuotaBody(msgspec.Struct):
    """Pulsar's BacklogQuota: `limitSize` in bytes, `limitTime` in seconds; -1 bounds nothing."""

    policy: QuotaAction
    limitSize: int | None = None  # noqa: N815
    limitTime: int = -1  # noqa: N815
    limit: int = -1  # what `limitSize` was called


def read_quota(field: str, body: QuotaBody) -> Quota:
    """The quota of one of QUOTA_FIELDS."""
    size = body.limit if body.limitSize is None else body.limitSize
    limit = size if field == "size_quota" else body.limitTime
    if not -1 <= limit < 1 << 53:
        raise _bad(f"a quota's limit is -1, for none, or more, not {limit}")
    return Quota(limit, body.policy)


def shown_quotas(policies: TopicPolicies | InForce) -> dict[str, Any]:
    """The quotas that are decided, as Pulsar's JSON has them."""
    shown: dict[str, Any] = {}
    for kind, field in QUOTA_FIELDS.items():
        quota: Quota | None = getattr(policies, field)
        if quota is not None:
            size, seconds = (quota.limit, -1) if field == "size_quota" else (-1, quota.limit)
            policy = quota.action.value
            shown[kind] = {"limit": size, "limitSize": size, "limitTime": seconds, "policy": policy}
    return shown
