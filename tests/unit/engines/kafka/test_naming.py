"""What Kafka's topics are called here, and ours there."""

import pytest

from penstock.engines.kafka.naming import Naming, ledger_of
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName

ACME = NamespaceName("acme", "dev")


def _name(text: str) -> TopicName:
    return TopicName.parse(text)


def _refused(naming: Naming, text: str) -> ErrorKind:
    with pytest.raises(PenstockError) as caught:
        naming.kafka_name(_name(text))
    return caught.value.kind


def test_topics_of_the_default_namespace_have_kafkas_own_names() -> None:
    naming = Naming({})
    assert naming.kafka_name(_name("orders")) == "orders"
    assert naming.topic_name("orders") == _name("orders")


def test_a_namespace_is_a_prefix_once_it_is_there() -> None:
    naming = Naming({})
    assert naming.topic_name("acme.dev.orders") == _name("acme.dev.orders")
    naming.know([ACME])
    assert naming.kafka_name(_name("acme/dev/orders")) == "acme.dev.orders"
    assert naming.topic_name("acme.dev.orders") == _name("acme/dev/orders")


def test_a_prefix_is_as_configured_and_the_longest_counts() -> None:
    naming = Naming({"acme/dev": "dev-", "acme/devtest": "dev-test-"})
    assert naming.kafka_name(_name("acme/dev/orders")) == "dev-orders"
    assert naming.topic_name("dev-test-orders") == _name("acme/devtest/orders")
    assert naming.topic_name("dev-") == _name("dev-")  # nothing is left for a name


def test_each_topic_of_kafka_has_one_name() -> None:
    naming = Naming({"acme/dev": "dev-"})
    assert _refused(naming, "dev-orders") is ErrorKind.BAD_PARAMETER


def test_with_a_prefix_for_the_default_namespace_other_topics_are_nobodys() -> None:
    naming = Naming({"public/default": "web."})
    assert naming.topic_name("web.orders") == _name("orders")
    assert naming.topic_name("orders") is None


def test_two_namespaces_do_not_share_a_prefix() -> None:
    with pytest.raises(PenstockError, match="one prefix"):
        Naming({"acme/dev": "x.", "acme/test": "x."})


@pytest.mark.parametrize("local", ["a b", "ä", "a/b", "a" * 250, "__consumer_offsets"])
def test_what_kafka_does_not_allow_is_refused(local: str) -> None:
    assert _refused(Naming({}), f"persistent://public/default/{local}") is ErrorKind.BAD_PARAMETER


def test_topics_that_are_not_persistent_are_not_supported() -> None:
    assert _refused(Naming({}), "non-persistent://public/default/orders") is ErrorKind.NOT_SUPPORTED


@pytest.mark.parametrize("kafka", ["__consumer_offsets", "__penstock"])
def test_kafkas_own_topics_are_hidden(kafka: str) -> None:
    assert Naming({}).topic_name(kafka) is None


def test_a_ledger_names_a_partition_of_one_topic_and_fits_into_json() -> None:
    ledgers = {ledger_of(topic, partition) for topic in ("a", "b") for partition in (0, 1, 65_535)}
    assert len(ledgers) == 6
    assert all(0 <= ledger < 2**53 for ledger in ledgers)
    assert ledger_of("I+ZxWRoETBK5I1neCu5twQ", 3) == ledger_of("I+ZxWRoETBK5I1neCu5twQ", 3)
