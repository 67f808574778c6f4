import re
from base64 import b64encode
from urllib.parse import quote

import pytest

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import EncryptionKey
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.model.names import NamespaceName, TopicName
from penstock.model.partitioning import Partitioner
from penstock.model.policy import ConsumerOptions, DeadLetter, ProducerOptions, Routing, SubscriptionType
from penstock.protocols.websocket.asyncapi import CONSUMER_QUERY, PRODUCER_QUERY, READER_QUERY
from penstock.protocols.websocket.parameters import (
    ConsumerParameters,
    ProducerParameters,
    TopicsPattern,
    consumer_parameters,
    producer_parameters,
    reader_parameters,
)
from penstock.protocols.websocket.upgrade import Query


def consumer(query: str, *, multi: bool = False) -> ConsumerParameters:
    return consumer_parameters(Query(query.encode()), multi=multi)


def producer(query: str) -> ProducerParameters:
    return producer_parameters(Query(query.encode()))


def test_a_producers_defaults() -> None:
    made = producer("")
    assert made == ProducerParameters(ProducerOptions(routing=Routing.SINGLE), 30_000, False, 1000, 0)


def test_a_producers_parameters() -> None:
    made = producer(
        "producerName=p&initialSequenceId=%2B5&hashingScheme=Murmur3_32Hash&sendTimeoutMillis=0"
        "&messageRoutingMode=RoundRobinPartition&batchingEnabled=TRUE&batchingMaxMessages=7"
        "&maxPendingMessages=9&batchingMaxPublishDelay=10&compressionType=LZ4&unknown=x"
    )
    options = ProducerOptions(
        name="p",
        shared_name=True,
        initial_sequence_id=5,
        routing=Routing.ROUND_ROBIN,
        partitioner=Partitioner.MURMUR3,
    )
    assert made == ProducerParameters(options, 0, True, 7, 9)


def test_batching_parameters_count_only_with_batching() -> None:
    assert producer("batchingMaxMessages=x&maxPendingMessages=-1&batchingMaxPublishDelay=0").pending_max == 0


def test_the_first_of_a_repeated_key_counts() -> None:
    assert producer("producerName=a&producerName=b").options.name == "a"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("messageRoutingMode=X", "Invalid messageRoutingMode X"),
        ("compressionType=lz4", "Invalid compressionType lz4"),
        ("hashingScheme=X", "Invalid hashingScheme X"),
        ("sendTimeoutMillis=-1", "sendTimeoutMillis needs to be >= 0"),
        ("sendTimeoutMillis=1e3", 'For input string: "1e3" (sendTimeoutMillis)'),
        ("sendTimeoutMillis=2147483648", 'For input string: "2147483648" (sendTimeoutMillis)'),
        (
            "initialSequenceId=9223372036854775808",
            'For input string: "9223372036854775808" (initialSequenceId)',
        ),
        ("producerName=+", "producerName cannot be blank"),
        ("batchingEnabled=true&batchingMaxPublishDelay=0", "batchingMaxPublishDelay"),
        ("batchingEnabled=true&maxPendingMessages=-1", "maxPendingMessages"),
    ],
)
def test_what_a_producer_may_not_say(query: str, text: str) -> None:
    with pytest.raises(PenstockError, match=re.escape(text)) as caught:
        producer(query)
    assert caught.value.kind is ErrorKind.BAD_PARAMETER


def test_encryption_by_the_server_is_refused_as_documented() -> None:
    with pytest.raises(PenstockError, match="without configuring cryptoKeyReaderFactoryClassName") as caught:
        producer("encryptionKeys=a,b")
    assert caught.value.kind.codes.ws_status == 500


def test_keys_of_payloads_that_come_encrypted() -> None:
    document = b'{"a":{"keyValue":"eD8+","metadata":{"v":"1"}},"b":{"keyValue":"","metadata":null}}'
    keys = quote(b64encode(document).decode())
    made = producer(f"encryptionKeys={keys}&batchingEnabled=true")
    assert made.keys == (EncryptionKey("a", b"x?>", {"v": "1"}), EncryptionKey("b", b"", {}))
    assert not made.batching


@pytest.mark.parametrize("document", ["{}", '{"a":{}}', '{"a":{"keyValue":"?"}}', '{"a":1}'])
def test_keys_that_cannot_be(document: str) -> None:
    with pytest.raises(PenstockError, match="encryptionKeys") as caught:
        producer(f"encryptionKeys={quote(b64encode(document.encode()).decode())}")
    assert caught.value.kind is ErrorKind.BAD_PARAMETER


def test_a_consumers_defaults() -> None:
    assert consumer("").options == ConsumerOptions(type=SubscriptionType.EXCLUSIVE, start=LATEST, window=1000)


def test_a_consumers_parameters() -> None:
    made = consumer(
        "subscriptionType=Key_Shared&subscriptionMode=NonDurable&subscriptionInitialPosition=Earliest"
        "&ackTimeoutMillis=1000&receiverQueueSize=5&consumerName=c&priorityLevel=2"
        "&negativeAckRedeliveryDelay=0&maxRedeliverCount=3&deadLetterTopic=dead&cryptoFailureAction=DISCARD"
    )
    assert made.options == ConsumerOptions(
        name="c",
        type=SubscriptionType.KEY_SHARED,
        durable=False,
        start=EARLIEST,
        priority=2,
        window=5,
        ack_timeout_ms=1000,
        nack_delay_ms=0,
        dead_letter=DeadLetter(3, "persistent://public/default/dead"),
    )


@pytest.mark.parametrize(("size", "window"), [("0", 1), ("1", 1), ("1000", 1000), ("5000", 1000)])
def test_the_push_window(size: str, window: int) -> None:
    assert consumer(f"receiverQueueSize={size}").options.window == window


def test_pull_mode_is_bounded_by_permits_alone() -> None:
    options = consumer("pullMode=true&receiverQueueSize=5").options
    assert options.window is None
    assert options.flow


def test_a_dead_letter_topic_alone_turns_dead_letters_on() -> None:
    assert consumer("deadLetterTopic=d").options.dead_letter == DeadLetter(
        16, "persistent://public/default/d"
    )
    assert consumer("maxRedeliverCount=2").options.dead_letter == DeadLetter(2, "")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("subscriptionType=shared", "Invalid subscriptionType shared"),
        ("subscriptionMode=x", "Invalid subscriptionMode x"),
        ("subscriptionInitialPosition=x", "Invalid subscriptionInitialPosition x"),
        ("ackTimeoutMillis=999", "Ack timeout should be greater than 1000 ms"),
        ("ackTimeoutMillis=-1", "Ack timeout"),
        ("receiverQueueSize=-1", "receiverQueueSize needs to be >= 0"),
        ("priorityLevel=-1", "priorityLevel needs to be >= 0"),
        ("negativeAckRedeliveryDelay=-1", "needs to be >= 0"),
        ("maxRedeliverCount=0", "MaxRedeliverCount must be > 0."),
        ("deadLetterTopic=a/b", "invalid topic name"),
        ("consumerName=", "consumerName cannot be blank"),
    ],
)
def test_what_a_consumer_may_not_say(query: str, text: str) -> None:
    with pytest.raises(PenstockError, match=text) as caught:
        consumer(query)
    assert caught.value.kind.codes.ws_status == 400


def test_topics_of_a_v3_consumer() -> None:
    made = consumer("topics=public/default/a,persistent://t/n/b,public/default/a,", multi=True)
    assert made.topics == (
        TopicName.of("persistent", "public", "default", "a"),
        TopicName.of("persistent", "t", "n", "b"),
    )


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("t/n/a.*", TopicsPattern("t/n/(?:a.*)", NamespaceName("t", "n"), "persistent")),
        ("persistent://t.x/n/a.*", TopicsPattern(r"t\.x/n/(?:a.*)", NamespaceName("t.x", "n"), "persistent")),
        (
            "non-persistent://t/n/a|b",
            TopicsPattern("t/n/(?:a|b)", NamespaceName("t", "n"), "non-persistent"),
        ),
        ("a.*", TopicsPattern("public/default/(?:a.*)", NamespaceName("public", "default"), "persistent")),
    ],
)
def test_a_pattern(pattern: str, expected: TopicsPattern) -> None:
    assert consumer(f"topicsPattern={pattern}", multi=True).pattern == expected


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("", "Should set topics or topicsPattern"),
        ("topics=", "Should set topics or topicsPattern"),
        ("topics=,", "topics must name"),
        ("topics=a&topicsPattern=b", "Topics must be null when use topicsPattern"),
        ("topicsPattern=a/b", "topicsPattern"),
        ("topicsPattern=x://t/n/a", "domain"),
        (f"topicsPattern={'a' * 1001}", "longer"),
        ("topics=a//b", "invalid"),
    ],
)
def test_what_a_v3_consumer_may_not_say(query: str, text: str) -> None:
    with pytest.raises(PenstockError, match=text) as caught:
        consumer(query, multi=True)
    assert caught.value.kind.codes.ws_status == 400


def test_a_readers_parameters() -> None:
    assert reader_parameters(Query(b"")).start == LATEST
    assert reader_parameters(Query(b"messageId=earliest&readerName=r&receiverQueueSize=0")).window == 1
    message_id = MessageId(0, 248)
    assert "+" in str(message_id)
    assert reader_parameters(Query(f"messageId={message_id}".encode())).start == message_id


def test_every_parameter_is_in_the_asyncapi_document_with_its_default() -> None:
    made = producer("")
    assert PRODUCER_QUERY["sendTimeoutMillis"]["default"] == made.send_timeout_ms
    assert PRODUCER_QUERY["messageRoutingMode"]["default"] == made.options.routing.value
    assert CONSUMER_QUERY["receiverQueueSize"]["default"] == consumer("").options.window
    assert CONSUMER_QUERY["negativeAckRedeliveryDelay"]["default"] == consumer("").options.nack_delay_ms
    assert READER_QUERY["messageId"]["default"] == "latest"
