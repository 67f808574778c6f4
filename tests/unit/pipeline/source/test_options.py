import pytest

from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.rows.columns import spark_schema
from penstock.pipeline.source.offsets import End, Listed, ListedTimes, Time
from penstock.pipeline.source.options import parse_options
from penstock.pipeline.source.query import carried, carry, given_options

URL = {"url": "http://127.0.0.1:8080/"}
T = TopicName.parse("t")


def test_defaults() -> None:
    options = parse_options(URL | {"subscribe": "t"})
    assert options.server.url == "http://127.0.0.1:8080"
    assert options.topics == {T: None}
    assert (options.start, options.end) == (End.EARLIEST, End.LATEST)
    assert (options.include, options.records_max, options.fail_on_data_loss) == ((), 500_000, True)


def test_names_in_any_case() -> None:
    options = parse_options(
        URL
        | {
            "SUBSCRIBE": "t",
            "startingoffsets": '{"t": {"0": 4}}',
            "endingtimestamp": "5",
            "failondataloss": "FALSE",
        }
    )
    assert options.start == Listed({str(T): {0: 4}})
    assert options.end == Time(5)
    assert options.fail_on_data_loss is False


def test_times_by_partition() -> None:
    by_time = {"startingOffsetsByTimestamp": '{"t": {"0": 4}}'}
    assert parse_options(URL | {"subscribe": "t"} | by_time).start == ListedTimes({str(T): {0: 4}})
    with pytest.raises(PipelineError, match="startingOffsets and startingOffsetsByTimestamp exclude"):
        parse_options(URL | {"subscribe": "t", "startingOffsets": "latest"} | by_time)
    with pytest.raises(PipelineError, match="startingOffsetsByTimestamp: expected JSON like"):
        parse_options(URL | {"subscribe": "t", "startingOffsetsByTimestamp": "earliest"})


def test_topics() -> None:
    def topics(**given: str) -> object:
        return parse_options(URL | given).topics

    assert topics(subscribe="t, a/b/c ,") == {T: None, TopicName.parse("a/b/c"): None}
    assert topics(subscribe="t-partition-2,t-partition-0") == {T: (0, 2)}
    assert topics(subscribe="t,t-partition-2") == {T: None}
    assert topics(assign='{"t": [1, 0, 1]}') == {T: (0, 1)}


@pytest.mark.parametrize(
    ("text", "name", "matches"),
    [
        ("t.*", "t1", True),
        ("t.*", "at1", False),
        ("t.*", "a/b/t1", False),
        ("a/b/t.*", "a/b/t1", True),
        ("persistent://a/b/x/.*", "a/b/x/y", True),
    ],
)
def test_patterns(text: str, name: str, matches: bool) -> None:
    pattern = parse_options(URL | {"subscribePattern": text}).pattern
    assert pattern is not None
    topic = TopicName.parse(name)
    assert (pattern.matches(topic) and topic.namespace_name == pattern.namespace) is matches


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"url": ""}, "option url is missing"),
        ({"url": "127.0.0.1:8080"}, "option url: "),
        ({"url": "ftp://x"}, "option url: "),
        (
            {"subscribe": "t", "startingOffset": "latest"},
            "unknown option startingOffset: did you mean startingOffsets?",
        ),
        ({}, "which topics"),
        ({"subscribe": "t", "assign": "{}"}, "options subscribe and assign exclude one another"),
        ({"subscribe": " , "}, "option subscribe: no topic"),
        ({"subscribe": "a/b"}, "option subscribe: invalid topic name"),
        ({"subscribe": "non-persistent://a/b/c"}, "option subscribe: .* keeps no history"),
        ({"assign": "t"}, "option assign: expected JSON"),
        ({"assign": "{}"}, "option assign: no topic"),
        ({"assign": '{"t": []}'}, "option assign: t needs partitions"),
        ({"assign": '{"t": [-1]}'}, "option assign: t needs partitions"),
        ({"subscribePattern": "("}, "option subscribePattern: "),
        ({"subscribePattern": "a/b/"}, "option subscribePattern: "),
        ({"subscribe": "t", "startingTimestamp": "1", "startingOffsets": "latest"}, "exclude one another"),
        ({"subscribe": "t", "startingTimestamp": "yesterday"}, "option startingTimestamp: 'yesterday'"),
        ({"subscribe": "t", "endingOffsets": "earliest"}, "option endingOffsets: earliest"),
        ({"subscribe": "t", "include": "redelivery"}, "option include: no column 'redelivery'"),
        ({"subscribe": "t", "include": "message_id,message_id"}, "option include: .* twice"),
        ({"subscribe": "t", "minPartitions": "0"}, "option minPartitions: '0'"),
        ({"subscribe": "t", "failOnDataLoss": "no"}, "option failOnDataLoss: 'no'"),
    ],
)
def test_bad_options(given: dict[str, str], said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        parse_options(URL | given)


def test_declared_tables_carry_their_options() -> None:
    properties = {"option.url": "u", "url": "u", "provider": "penstock", "owner": "me"}
    options, declared = given_options(properties)
    assert (options, declared) == ({"url": "u"}, True)
    schema = carry(spark_schema(), options)
    assert schema.simpleString() == spark_schema().simpleString()
    assert carried(schema, {}) == {"url": "u"}
    assert carried(spark_schema(), {"url": "v"}) == {"url": "v"}
    assert given_options({"url": "u"}) == ({"url": "u"}, False)


def test_options_of_streams() -> None:
    given = {"subscribe": "t", "maxoffsetspertrigger": "5", "maxBytesPerTrigger": "6", "subscription": " s "}
    options = parse_options(URL | given, stream=True)
    assert (options.batch_rows_max, options.batch_bytes_max, options.subscription) == (5, 6, "s")
    assert (options.start, options.poll_ms) == (End.LATEST, 100)
    assert parse_options(URL | {"subscribe": "t"}, stream=True).batch_rows_max is None
    with pytest.raises(PipelineError, match="option pollInterval: 20001 ms is more than 20000"):
        parse_options(URL | {"subscribe": "t", "pollInterval": "20001"})
    with pytest.raises(PipelineError, match="option maxOffsetsPerTrigger is for a stream only"):
        parse_options(URL | given, stream=False)


def test_a_minimum_for_batches_of_streams() -> None:
    given = URL | {"subscribe": "t", "minOffsetsPerTrigger": "5"}
    options = parse_options(given, stream=True)
    assert (options.batch_rows_min, options.trigger_delay_ms) == (5, 900_000)
    for text, ms in (("90s", 90_000), ("2 min", 120_000), ("1h", 3_600_000), ("250", 250)):
        assert parse_options(given | {"maxTriggerDelay": text}, stream=True).trigger_delay_ms == ms
    for more, message in (
        ({"maxTriggerDelay": "soon"}, "option maxTriggerDelay: 'soon' is no time like 15m"),
        (
            {"maxOffsetsPerTrigger": "4"},
            "option minOffsetsPerTrigger: 5 is more than maxOffsetsPerTrigger, 4",
        ),
    ):
        with pytest.raises(PipelineError, match=message):
            parse_options(given | more, stream=True)
    with pytest.raises(PipelineError, match="option minOffsetsPerTrigger is for a stream only"):
        parse_options(given, stream=False)
    with pytest.raises(PipelineError, match="option maxTriggerDelay is for use with minOffsetsPerTrigger"):
        parse_options(URL | {"subscribe": "t", "maxTriggerDelay": "5m"}, stream=True)


def test_brokers_are_named_for_direct_reading() -> None:
    topic = URL | {"subscribe": "t"}
    brokers = {"KAFKA.bootstrap.servers": "h:9092", "kafka.sasl.password": "not-to-be-shown"}
    options = parse_options(topic | {"fetch": "Direct"} | brokers)
    assert options.kafka == {"bootstrap.servers": "h:9092", "sasl.password": "not-to-be-shown"}
    assert "not-to-be-shown" not in repr(options)
    assert parse_options(topic | {"fetch": "gateway"}).kafka == {}
    for given, said in (
        (brokers, "option kafka.bootstrap.servers: the server is named by option url"),
        ({"fetch": "direct"}, "needs kafka.bootstrap.servers"),
        ({"fetch": "other"} | brokers, "'other' is neither gateway nor direct"),
        (
            {"fetch": "direct", "kafka.isolation.level": "x"} | brokers,
            "isolation.level is decided by the source",
        ),
        ({"fetch": "direct", "kafka.sasl.jaas.config": "x"} | brokers, "say kafka.sasl.username"),
    ):
        with pytest.raises(PipelineError, match=said):
            parse_options(topic | given)
