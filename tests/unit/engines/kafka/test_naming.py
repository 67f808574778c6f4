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


def test_a_prefix_is_as_configured() -> None:
    naming = Naming({"acme/dev": "dev-"})
    assert naming.kafka_name(_name("acme/dev/orders")) == "dev-orders"
    assert naming.topic_name("dev-") == _name("dev-")  # nothing is left for a name


def test_of_namespaces_that_share_topics_already_the_longest_prefix_counts() -> None:
    naming = Naming({})
    naming.know([NamespaceName("acme", "dev"), NamespaceName("acme", "dev.test")])
    assert naming.topic_name("acme.dev.test.orders") == _name("acme/dev.test/orders")
    assert _refused(naming, "acme/dev/test.orders") is ErrorKind.BAD_PARAMETER


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


@pytest.mark.parametrize(
    "prefixes", [{"a/b": "x.", "c/d": "x.y."}, {"a/b.c": "q.", "a.b/c": "q."}, {"a/b": "penstock."}]
)
def test_configured_prefixes_that_cannot_be_told_apart_are_refused(prefixes: dict[str, str]) -> None:
    with pytest.raises(PenstockError, match=r"engine\.namespaces"):
        Naming(prefixes)


def test_namespaces_whose_topics_could_be_each_others_are_found() -> None:
    naming = Naming({"x/y": "acme.dev.web-"})
    names = [NamespaceName.parse(one) for one in ("a/b.c", "a.b/c", "a/b", "a/bc", "b/c", "acme/dev", "x/y")]
    pairs = {
        frozenset(map(str, pair)) for pair in naming.conflicts([*names, NamespaceName("public", "default")])
    }
    assert pairs == {
        frozenset(pair)
        for pair in (("a/b.c", "a.b/c"), ("a/b", "a/b.c"), ("a/b", "a.b/c"), ("acme/dev", "x/y"))
    }
    naming.check_new(NamespaceName("a", "bc"), names)
    for new, there in (("a.b/c", "a/b.c"), ("a/b", "a/b.c"), ("a/b.c", "a/b")):
        with pytest.raises(PenstockError, match=f"would share topics with {there}"):
            naming.check_new(NamespaceName.parse(new), [NamespaceName.parse(there)])


def test_an_internal_topic_that_clients_could_name_is_refused() -> None:
    with pytest.raises(
        PenstockError, match=r"engine\.documents_topic: docs is a topic of namespace public/default"
    ):
        Naming({}, {"engine.documents_topic": "docs"})
    with pytest.raises(PenstockError, match="cannot be a topic"):
        Naming({}, {"engine.documents_topic": "a b"})


def test_an_internal_topic_without_a_namespace_stays_out_of_reach() -> None:
    naming = Naming({"public/default": "web."}, {"engine.documents_topic": "acme.dev.docs"})
    with pytest.raises(PenstockError, match="the server's own topic"):
        naming.check_new(ACME, ())
    naming.know([ACME])  # one that was there before
    assert naming.topic_name("acme.dev.docs") is None
    assert _refused(naming, "acme/dev/docs") is ErrorKind.BAD_PARAMETER
