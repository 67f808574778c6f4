"""The topics that the server keeps for itself."""

import pytest

from penstock.broker.settings import ClusterSettings
from penstock.engines.kafka.internal import internal_topics
from penstock.engines.kafka.naming import HIDDEN
from penstock.model.errors import PenstockError


def test_each_internal_topic_is_hidden_by_default() -> None:
    found = internal_topics(ClusterSettings())
    assert len(found) == 8
    assert all(topic.startswith(HIDDEN) for topic in found.values())


def test_two_internal_topics_of_one_name_are_refused() -> None:
    with pytest.raises(PenstockError, match=r"engine\.documents_topic and engine\.replies_topic"):
        internal_topics(ClusterSettings(replies_topic="__penstock"))
