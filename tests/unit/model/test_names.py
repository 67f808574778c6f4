"""Names as Pulsar writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import (
    DEFAULT_NAMESPACE,
    NAME_BYTES_MAX,
    NamespaceName,
    TopicName,
    check_entity,
    check_local,
    check_subscription,
)


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("t", "persistent://public/default/t"),
        ("a/b/t", "persistent://a/b/t"),
        ("persistent://a/b/t", "persistent://a/b/t"),
        ("non-persistent://a/b/t", "non-persistent://a/b/t"),
        ("persistent://a/b/t/with/slashes", "persistent://a/b/t/with/slashes"),
        ("persistent://a-b=c:d.e_f/0/größe ☃", "persistent://a-b=c:d.e_f/0/größe ☃"),
    ],
)
def test_topics_are_read_and_written(text: str, full: str) -> None:
    topic = TopicName.parse(text)
    assert str(topic) == full
    assert TopicName.parse(full) == topic
    assert topic.persistent is full.startswith("persistent")
    assert topic.base is topic
    assert topic.partition == -1


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "a/b",
        "kafka://a/b/c",
        "persistent://a",
        "persistent://a/b",
        "persistent://a/b/",
        "persistent:///b/c",
        "persistent://a//c",
        "persistent://../b/c",
        "persistent://a/./c",
        "persistent://a/b c/d",
        "persistent://é/b/c",
        "a/b/tab\there",
        "a/b/line\n",
        "a/b/\ud800",
        "x" * (NAME_BYTES_MAX + 1),
        "é" * (NAME_BYTES_MAX // 2 + 1),
        "a" * (NAME_BYTES_MAX + 1) + "/b/c",
    ],
)
def test_texts_that_are_no_topic(text: str) -> None:
    with pytest.raises(PenstockError) as error:
        TopicName.parse(text)
    assert error.value.kind is ErrorKind.INVALID_NAME


@pytest.mark.parametrize(
    ("local", "partition"),
    [
        ("t-partition-0", 0),
        ("t-partition-12", 12),
        ("t-partition-999999999", 999999999),
        ("t-partition-007", -1),
        ("t-partition-1000000000", -1),
        ("t-partition--1", -1),
        ("t-partition-", -1),
        ("-partition-1", -1),
        ("t-partition-1x", -1),
        ("t-partition-1٢", -1),  # a digit, but not of ASCII
        ("t-partition-1-partition-2", 2),
    ],
)
def test_partitions_are_told_by_the_suffix(local: str, partition: int) -> None:
    assert TopicName.parse(f"a/b/{local}").partition == partition


def test_a_partition_knows_its_topic() -> None:
    topic = TopicName.parse("a/b/t")
    third = topic.of_partition(3)
    assert str(third) == "persistent://a/b/t-partition-3"
    assert third == TopicName.parse(str(third))
    assert third.base == topic


def test_the_base_of_a_partition_may_look_like_a_partition() -> None:
    inner = TopicName.parse("a/b/t-partition-1")
    assert inner.of_partition(2).base == inner


def test_siblings_share_domain_and_namespace() -> None:
    topic = TopicName.parse("non-persistent://a/b/t")
    assert str(topic.sibling("t-DLQ")) == "non-persistent://a/b/t-DLQ"
    assert topic.namespace_name == NamespaceName("a", "b")
    with pytest.raises(PenstockError):
        topic.sibling("")


def test_namespaces() -> None:
    assert NamespaceName.parse("public/default") == DEFAULT_NAMESPACE
    assert str(DEFAULT_NAMESPACE) == "public/default"
    for text in ("", "a", "a/", "/b", "a/b/c", "a/b?", "a/.."):
        with pytest.raises(PenstockError) as error:
            NamespaceName.parse(text)
        assert error.value.kind is ErrorKind.INVALID_NAME


def test_the_longest_names() -> None:
    assert check_entity("tenant", "x" * NAME_BYTES_MAX)
    assert check_local("subscription", "é" * (NAME_BYTES_MAX // 2))


@given(
    st.sampled_from((".", "..")),
    st.sampled_from(("{}", "x/{}", "{}/x", "x/{}/y", "{}-partition-0", "x/{}-partition-1-partition-2")),
)
def test_steps_of_a_path_are_no_names(step: str, where: str) -> None:
    local = where.format(step)
    assert TopicName.parse_known(f"a/b/{local}") is None
    for check in (check_subscription, lambda name: check_local("stage", name), TopicName.parse("t").sibling):
        with pytest.raises(PenstockError) as error:
            check(local)
        assert error.value.kind is ErrorKind.INVALID_NAME


@pytest.mark.parametrize("local", ["...", "..a", "a..", ".a", "a.", "a..b", "a/..b", "..-partition-x", "-.-"])
def test_dots_within_a_name(local: str) -> None:
    assert check_subscription(local) == local
    known = TopicName.parse_known(f"a/b/{local}")
    assert known is not None
    assert known.local == known.base.local == local


@given(st.text("./-partion0", max_size=30))
def test_no_part_of_a_topic_nor_of_what_it_is_a_partition_of_is_a_step(local: str) -> None:
    name = TopicName.parse_known(f"a/b/{local}")
    while name is not None:
        assert not {".", ".."} & set(name.local.split("/"))
        name = name.base if name.base != name else None


@given(st.text(max_size=30))
def test_any_text_is_a_topic_or_refused(text: str) -> None:
    try:
        topic = TopicName.parse(text)
    except PenstockError:
        return
    assert TopicName.parse(str(topic)) == topic
    assert topic.base.of_partition(topic.partition) == topic or topic.partition == -1
