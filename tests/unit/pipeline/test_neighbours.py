"""A refused option names the one that is meant, in whatever case Spark hands it over."""

import pytest

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.lake.options import read_options, write_options
from penstock.pipeline.sink.options import parse_options as sink_options
from penstock.pipeline.source.options import parse_options as source_options

URL = {"url": "http://h:1"}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("includeheaders", "a message's headers are its properties: say include=properties"),
        ("startingoffset", "did you mean startingOffsets?"),
        ("STARTINGOFFSET", "did you mean startingOffsets?"),
        ("decode", "did you mean value.decode?"),
        ("path", "load() takes no name; topics are named by option subscribe"),
        ("topic", "topics are named by option subscribe"),
        ("kafkaconsumer.polltimeoutms", "an option of Kafka's connector, which this is not; leave it out"),
        ("fetchoffset.numretries", "an option of Kafka's connector, which this is not; leave it out"),
    ],
)
def test_of_the_source(name: str, sentence: str) -> None:
    with pytest.raises(PipelineError) as caught:
        source_options({**URL, "subscribe": "t", name: "x"})
    assert caught.value.message == f"unknown option {name}: {sentence}"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("path", "save() and start() take no name; the topic is named by option topic"),
        ("subscribe", "the topic is named by option topic"),
        ("kafka.bootstrap.servers", "the server is named by option url"),
        ("includeheaders", "leave it out: a column headers"),
        ("encode", "did you mean value.encode?"),
        ("colour", "; there are url, tokenFile"),
    ],
)
def test_of_the_sink(name: str, words: str) -> None:
    with pytest.raises(PipelineError) as caught:
        sink_options({**URL, "topic": "t", name: "x"}, streaming=True)
    assert caught.value.message.startswith(f"unknown option {name}")
    assert words in caught.value.message


def test_of_tables() -> None:
    for name, words in (("versionasof", "say version"), ("topic", "format penstock")):
        with pytest.raises(PipelineError, match=words):
            read_options({"path": "/t", name: "1"})
    with pytest.raises(PipelineError, match="who writes is named by option writer"):
        write_options({"path": "/t", "txnappid": "1"})
    with pytest.raises(PipelineError, match=r"txnappid; there are path"):
        read_options({"path": "/t", "txnappid": "1"})  # there is no such option to read with
