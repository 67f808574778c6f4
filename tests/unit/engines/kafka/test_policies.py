"""What Kafka is told of policies, and which are refused."""

from typing import Any

import pytest

from penstock.engines.kafka.policies import check_kept, configs_of, decided, retention_of
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.policy import NamespacePolicies, Quota, Retention, TopicPolicies, TopicRate


@pytest.mark.parametrize(
    ("policies", "told"),
    [
        (TopicPolicies(), (None, None, None)),
        (TopicPolicies(retention=Retention()), ("-1", "-1", None)),
        (TopicPolicies(retention=Retention(2, 3)), ("120000", str(3 << 20), None)),
        (TopicPolicies(compaction_threshold=0), (None, None, "delete")),
        (TopicPolicies(compaction_threshold=9), (None, None, "compact")),
        (TopicPolicies(compaction_threshold=9, retention=Retention(1)), ("60000", "-1", "compact,delete")),
        (TopicPolicies(compaction_threshold=9, retention=Retention()), ("-1", "-1", "compact")),
    ],
)
def test_retention_and_compaction_are_kafkas(policies: TopicPolicies, told: tuple[str | None, ...]) -> None:
    found = configs_of(policies)
    assert (found["retention.ms"], found["retention.bytes"], found["cleanup.policy"]) == told


def test_a_topics_own_counts_before_its_namespaces() -> None:
    found = decided(
        TopicPolicies(retention=Retention(1)),
        NamespacePolicies(retention=Retention(2), compaction_threshold=0, max_topics=3),
    )
    assert found == TopicPolicies(retention=Retention(1), compaction_threshold=0)


@pytest.mark.parametrize(
    "refused",
    [
        {"message_ttl_s": 1},
        {"size_quota": Quota(1)},
        {"age_quota": Quota(1)},
        {"deduplication": True},
    ],
)
def test_what_nobody_keeps_is_refused(refused: dict[str, Any]) -> None:
    with pytest.raises(PenstockError) as caught:
        check_kept(TopicPolicies(**refused))
    assert caught.value.kind is ErrorKind.NOT_SUPPORTED


def test_what_bounds_nothing_is_kept() -> None:
    check_kept(
        TopicPolicies(message_ttl_s=0, size_quota=Quota(), deduplication=False, publish_rate=TopicRate(1))
    )


@pytest.mark.parametrize(
    ("configs", "meant"),
    [
        ({"retention.ms": "604800000", "retention.bytes": "-1"}, Retention(10080, -1)),
        ({"retention.ms": "-1", "retention.bytes": "1048577"}, Retention(-1, 2)),
        ({"retention.ms": "1", "retention.bytes": "0"}, Retention(1, 0)),
        ({}, Retention(-1, -1)),
    ],
)
def test_what_kafka_keeps_by_default_is_shown(configs: dict[str, str], meant: Retention) -> None:
    assert retention_of(configs) == meant
