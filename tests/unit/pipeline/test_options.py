"""One table of options serves Spark, which hands over texts, and the files of pipelines."""

from collections.abc import Sequence

import msgspec
import pytest

from penstock.client.access import Access
from penstock.pipeline import options
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.options import Option, read_options, written_options
from penstock.pipeline.spec.spec import Lookup, Sink, Source
from penstock.wire.bulk import COMPRESSIONS

TABLES = {
    Access: options.SERVER,
    Source: (*options.SOURCE, *options.DECODE),
    Sink: (*options.SINK, *options.TABLE_SINK),
    Lookup: options.TABLE_SOURCE,
}


@pytest.mark.parametrize("struct", TABLES)
def test_the_keys_are_those_of_files(struct: type) -> None:
    for one in TABLES[struct]:
        assert not one.key or hasattr(struct, one.key), one
    assert len({one.name.lower() for one in TABLES[struct]}) + (struct is Sink) * 2 == len(TABLES[struct])


def test_the_compressions_are_those_of_entries() -> None:
    (one,) = (one for one in options.SINK if one.name == "compression")
    assert one.kind == tuple(COMPRESSIONS)


class Values(msgspec.Struct, kw_only=True):
    text: str = ""
    many: tuple[str, ...] = ()
    on: bool = False
    off: bool = True
    number: int = 0
    choice: str = "a"


TABLE: Sequence[Option] = (
    Option("aText", "text"),
    Option("theMany", "many"),
    Option("isOn", "on", bool, False),
    Option("isOff", "off", bool, True),
    Option("aNumber", "number", 2, only="stream"),
    Option("aChoice", "choice", ("a", "b"), "a"),
    Option("unnamed", kind=bool, default=False),
)


def test_what_a_file_says_is_what_spark_reads() -> None:
    assert written_options(Values(), TABLE) == {}
    said = Values(text="t", many=("x", "y"), on=True, off=False, number=7, choice="b")
    written = written_options(said, TABLE)
    assert written == {
        "aText": "t",
        "theMany": "x,y",
        "isOn": "true",
        "isOff": "false",
        "aNumber": "7",
        "aChoice": "b",
    }
    read = read_options({name.lower(): text for name, text in written.items()}, TABLE, stream=True)
    assert read == {
        "aText": "t",
        "theMany": "x,y",
        "isOn": True,
        "isOff": False,
        "aNumber": 7,
        "aChoice": "b",
        "unnamed": False,
    }
    assert read_options({"queryname": "q"}, TABLE, ("queryname",))["aText"] is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"anumber": "1"}, "option aNumber: '1' is no whole number from 2 on"),
        ({"aNumber": "²"}, "option aNumber: '²' is no whole number"),
        ({"aNumber": str(1 << 63)}, "option aNumber: '9223372036854775808' is no whole number"),
        ({"aChoice": "c"}, "option aChoice: 'c' is none of a, b"),
        ({"isOn": "yes"}, "option isOn: 'yes' is neither true nor false"),
        ({"other": "x"}, "unknown option other"),
    ],
)
def test_what_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        read_options(given, TABLE)


def test_an_option_of_a_stream_is_none_of_a_batch() -> None:
    assert read_options({"aNumber": "2"}, TABLE)["aNumber"] == 2
    with pytest.raises(PipelineError, match="option aNumber is for a stream only"):
        read_options({"aNumber": "2"}, TABLE, stream=False)
