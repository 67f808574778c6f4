"""A pipeline's file: what it becomes, and how each mistake in it is named."""

import tomllib
from pathlib import Path

import pytest

from penstock.client.access import Access
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.options import server_options
from penstock.pipeline.spec.options import lookup_options, source_options, table_options, topic_options
from penstock.pipeline.spec.parse import load_spec, parse_spec
from penstock.pipeline.spec.spec import Spec, goes_on, source_topics

FOLDER = Path("/pipelines")

LEAST = """
name = "p"
[sources.s]
topics = ["t"]
[sinks.k]
input = "s"
topic = "u"
"""


def parse(text: str) -> Spec:
    return parse_spec(tomllib.loads(text), "p.toml", FOLDER)


def refusal(text: str) -> str:
    with pytest.raises(PipelineError) as refused:
        parse(text)
    assert "\n" not in refused.value.message
    return refused.value.message


def test_a_pipeline_with_a_table_has_fewer_batches_unless_its_file_says_how_many() -> None:
    table = LEAST + '[sinks.lake]\ninput = "s"\npath = "lake"\n'
    assert parse(LEAST).trigger == "1 second"
    assert parse(table).trigger == "10 seconds"
    assert parse('trigger = "2 seconds"\n' + table).trigger == "2 seconds"
    assert parse('trigger = "available_now"\n' + table).once


def test_what_a_table_is_told_of_deletes_and_archives() -> None:
    sink = '[sinks.lake]\ninput = "s"\npath = "lake"\n'
    spec = parse(LEAST + sink + 'keys = ["id"]\ndelete_when = "op = 1"\n')
    assert table_options(spec, spec.sinks["lake"])["deleteColumn"] == "_deleted"
    spec = parse(LEAST + sink + "archive = true\n")
    options = table_options(spec, spec.sinks["lake"])
    assert (options["archive"], options["url"]) == ("true", spec.server.url)


@pytest.mark.parametrize(
    ("source", "sink", "sentence"),
    [
        ("", 'path = "x"\ndelete_when = "a"', "delete_when needs keys"),
        ("", 'topic = "x"\ndelete_when = "a"', "delete_when belongs to tables"),
        ("", 'topic = "x"\narchive = true', "archive belongs to tables"),
        ("", 'path = "x"\narchive = true\nkeys = ["id"]', "archive: the input is a source, without keys"),
        (
            'expect = [{ name = "e", predicate = "true", action = "drop" }]',
            'path = "x"\narchive = true',
            "archive: [sources.s] rejects rows, and an archive keeps each",
        ),
        (
            'watermark = { column = "timestamp", delay = "1 minute" }',
            'path = "x"\narchive = true',
            "archive: [sources.s] rejects rows",
        ),
        (
            'decode = "flat"\non_bad_value = "drop"',
            'path = "x"\narchive = true',
            "archive: [sources.s] rejects rows",
        ),
    ],
)
def test_deletes_and_archives_that_cannot_be(source: str, sink: str, sentence: str) -> None:
    text = LEAST.replace('["t"]', f'["t"]\n{source}') + f'[sinks.lake]\ninput = "s"\n{sink}\n'
    assert refusal(text).startswith(f"p.toml: [sinks.lake] {sentence}")


def test_the_least_that_is_a_pipeline() -> None:
    spec = parse(LEAST)
    assert spec.name == "p"
    assert spec.server.url == "http://127.0.0.1:8080"
    assert spec.home == FOLDER / "penstock-pipelines" / "p"
    assert not spec.once
    options = source_options(spec, "s", spec.sources["s"])
    assert options == {
        "url": "http://127.0.0.1:8080",
        "subscribe": "t",
        "startingOffsets": "earliest",
        "subscription": "p",
        "maxOffsetsPerTrigger": "5000000",
        "maxBytesPerTrigger": "1073741824",
    }
    assert topic_options(spec, spec.sinks["k"]) == {
        "url": "http://127.0.0.1:8080",
        "topic": "u",
    }


def test_everything_there_is() -> None:
    spec = parse(
        """
name = "all"
dead_letters = "dead"
output = "append"
trigger = "available_now"
state = "/var/state"
master = "local[2]"

[server]
url = "https://example.org"
token_file = "token"
ca_file = "/etc/ca.pem"

[spark]
"spark.sql.shuffle.partitions" = 4
spark.driver.memory = "2g"

[sources.s]
pattern = "public/default/t-.*"
start = 2026-01-31T08:00:00Z
decode = "flat"
on_bad_value = "dead_letter"
max_rows_per_batch = 10
subscription = ""
fail_on_data_loss = false
watermark = { column = "at", delay = "10 minutes", late = "dead_letter" }
expect = [{ name = "positive", predicate = "n > 0", action = "drop" }]

[tables.names]
path = "names"

[[steps]]
name = "once"
inputs = ["s"]
deduplicate = ["id"]

[[steps]]
name = "called"
inputs = ["once", "names"]
python = "steps:join"

[[steps]]
name = "kept"
inputs = ["called"]
stateful = "steps:Counter"
keys = ["id"]
columns = "id STRING, n BIGINT"
time_mode = "event_time"

[sinks.lake]
input = "kept"
path = "lake"
partition_by = ["id"]
compact = false
"""
    )
    assert spec.once
    assert spec.server.token_file == "/pipelines/token"
    assert spec.spark == {"spark.sql.shuffle.partitions": "4", "spark.driver.memory": "2g"}
    assert spec.tables["names"].path == "/pipelines/names"
    options = source_options(spec, "s", spec.sources["s"])
    assert options == {
        "url": "https://example.org",
        "tokenFile": "/pipelines/token",
        "tlsCaFile": "/etc/ca.pem",
        "subscribePattern": "public/default/t-.*",
        "startingTimestamp": "1769846400000",
        "include": "properties,schema_version",
        "value.decode": "flat",
        "mode": "dead_letter",
        "keepBytes": "true",
        "maxOffsetsPerTrigger": "10",
        "maxBytesPerTrigger": "1073741824",
        "failOnDataLoss": "false",
    }
    assert server_options(spec.server).items() <= options.items()
    assert table_options(spec, spec.sinks["lake"]) == {
        "path": "/pipelines/lake",
        "timeZone": "UTC",
        "partitionBy": "id",
    }


def test_tables_in_an_object_store() -> None:
    spec = parse(
        LEAST
        + """
[storage]
aws_allow_http = true
aws_secret_access_key = "env:SECRET"
[tables.names]
path = "s3://bucket/names"
[tables.local]
path = "file:///names"
[sinks.lake]
input = "s"
path = "abfss://c@account.example/lake"
"""
    )
    store = {"storage.aws_allow_http": "true", "storage.aws_secret_access_key": "env:SECRET"}
    assert lookup_options(spec, spec.tables["names"]) == {"path": "s3://bucket/names"} | store
    assert lookup_options(spec, spec.tables["local"])["path"] == "file:///names"
    made = table_options(spec, spec.sinks["lake"])
    plain = {"path": "abfss://c@account.example/lake", "timeZone": "UTC"}
    assert made == plain | store


def test_days_are_those_of_the_files_zone() -> None:
    zone = '[spark]\n"spark.sql.session.timeZone" = "{}"\n[sinks.lake]\ninput = "s"\npath = "lake"\n'
    spec = parse(LEAST + zone.format("Europe/Berlin"))
    assert table_options(spec, spec.sinks["lake"])["timeZone"] == "Europe/Berlin"
    assert "timeZone: 'GMT+1' is no time zone like UTC" in refusal(LEAST + zone.format("GMT+1"))


def test_a_start_by_partition() -> None:
    def start(text: str) -> dict[str, str]:
        spec = parse(LEAST.replace('"t"]', f'"t"]\nstart = {text}'))
        options = source_options(spec, "s", spec.sources["s"])
        return {name: value for name, value in options.items() if name.startswith("starting")}

    assert start("{ t = { 0 = 123 } }") == {"startingOffsets": '{"t": {"0": 123}}'}
    times = {"startingOffsetsByTimestamp": '{"t": {"0": 1769846400000}}'}
    assert (
        start('{ t = { 0 = "2026-01-31T08:00:00Z" } }')
        == start("{ t = { 0 = 2026-01-31T08:00:00Z } }")
        == times
    )
    with pytest.raises(PipelineError, match="start: expected offsets or times by partition"):
        start('{ t = { 0 = "2026-01-31", 1 = 5 } }')


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("name = ", "nmae = "), "p.toml: nmae: unknown key; did you mean name?"),
        (("[sources.s]", "[source.s]"), "p.toml: source: unknown key; did you mean sources?"),
        (("topics", "topic"), "p.toml: [sources.s] topic: unknown key; did you mean topics?"),
        (('["t"]', "3"), "p.toml: [sources.s] topics: expected `array`, got `int`"),
        (('["t"]', "[]"), "p.toml: [sources.s] one of topics, pattern and format is needed, and only one"),
        (('["t"]', '["a/b"]'), "p.toml: [sources.s] topics: "),
        (('topics = ["t"]', 'pattern = "("'), "p.toml: [sources.s] pattern: '(' is no regular expression"),
        (('"t"]', '"t"]\nstart = "soon"'), "p.toml: [sources.s] start: 'soon' is no time like"),
        (('"t"]', '"t"]\ndecode = "all"'), "p.toml: [sources.s] decode: invalid enum value 'all'"),
        (
            ('"t"]', '"t"]\nmax_rows_per_batch = -1'),
            "p.toml: [sources.s] max_rows_per_batch: a number from 0 on",
        ),
        (('"t"]', '"t"]\nstart = { t = 3 }'), None),
        (('input = "s"', 'input = "x"'), "p.toml: [sinks.k] input: there is no source or step 'x'"),
        (('input = "s"', ""), "p.toml: [sinks.k] input is missing"),
        (
            ('topic = "u"', ""),
            "p.toml: [sinks.k] exactly one of topic (or topic_column), path, format and python is needed",
        ),
        (
            ('topic = "u"', 'topic = "u"\npath = "p"'),
            "p.toml: [sinks.k] exactly one of topic",
        ),
        (('topic = "u"', 'path = "p"\nkey = "k"'), "p.toml: [sinks.k] key belongs to topics"),
        (
            ('topic = "u"', 'path = "p"\nformat = "parquet"'),
            "p.toml: [sinks.k] format: tables are Delta only",
        ),
        (('name = "p"', 'name = "a/b"'), "p.toml: name: 'a/b' is no name"),
        (('name = "p"', 'name = "p"\ntrigger = "often"'), "p.toml: trigger: 'often' is no duration"),
        (
            ('name = "p"', 'name = "p"\n[server]\nurl = "ftp://x"'),
            "p.toml: [server] url: 'ftp://x' is no address",
        ),
        (
            ('name = "p"', 'name = "p"\n[server]\nport = 3'),
            "p.toml: [server] port: unknown key; there are url",
        ),
        (
            ('name = "p"', 'name = "p"\n[spark]\nmemory = "1g"'),
            "p.toml: [spark] memory: Spark's settings begin",
        ),
    ],
)
def test_a_mistake_is_named_in_one_sentence(change: tuple[str, str], sentence: str | None) -> None:
    text = LEAST.replace(*change)
    assert text != LEAST
    if sentence is None:
        parse(text)
    else:
        assert refusal(text).startswith(sentence)


STEP = """
[[steps]]
name = "v"
"""


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        ("", "p.toml: [[steps]] v exactly one of sql, python, deduplicate, stateful is needed"),
        ('sql = "SELECT 1"\npython = "a:b"', "p.toml: [[steps]] v exactly one of"),
        ('python = "a"\ninputs = ["s"]', "p.toml: [[steps]] v python: 'a' is not module:name"),
        ('python = "a:b"', "p.toml: [[steps]] v inputs is missing"),
        (
            'python = "a:b"\ninputs = ["z"]',
            "p.toml: [[steps]] v inputs: there is no source, table or earlier step 'z'",
        ),
        ('stateful = "a:B"\ninputs = ["s"]', "p.toml: [[steps]] v keys is missing"),
        ('deduplicate = ["id"]', "p.toml: [[steps]] v inputs: deduplicate takes exactly one"),
        (
            'sql = "SELECT 1"\nkeys = ["k"]',
            "p.toml: [[steps]] v keys, columns and time_mode belong to stateful",
        ),
        (
            'sql = "SELECT 1"\nwatermark = { column = "t", delay = "x" }',
            "p.toml: [[steps]] v watermark delay: 'x' is no duration",
        ),
        (
            'sql = "SELECT 1"\nexpect = [{ name = "e", predicate = "x", action = "dead_letter" }]',
            "p.toml: [[steps]] v expect 'e' action: dead_letter needs dead_letters",
        ),
        (
            'sql = "SELECT 1"\nexpect = [{ name = "e" }]',
            "p.toml: [[steps]] v expect, number 1 predicate is missing",
        ),
    ],
)
def test_a_mistake_in_a_step(step: str, sentence: str) -> None:
    assert refusal(LEAST + STEP + step).startswith(sentence)


def test_two_sources_of_a_topic_need_two_subscriptions() -> None:
    twice = LEAST + '[sources.again]\ntopics = ["persistent://public/default/t"]\n'
    assert refusal(twice).startswith(
        "p.toml: [sources.again] subscription: persistent://public/default/t is read by"
    )
    parse(twice + 'subscription = "other"')
    parse(twice + 'subscription = ""')


def test_names_are_taken_once() -> None:
    sentence = refusal(LEAST + '[[steps]]\nname = "S"\nsql = "SELECT 1"')
    assert sentence == "p.toml: [[steps]] S the name is taken by [sources.s]"


def test_a_file_that_is_not_there_or_no_toml(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"nope\.toml cannot be read: No such file"):
        load_spec(tmp_path / "nope.toml")
    (tmp_path / "x.toml").write_text("a = = b")
    with pytest.raises(PipelineError, match=r"x\.toml is no TOML: .*line 1"):
        load_spec(tmp_path / "x.toml")


def test_what_is_given_beside_the_file_wins(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(LEAST)
    spec = load_spec(file, url="http://other:1", state=tmp_path / "here", master="local[1]")
    assert spec.server.url == "http://other:1"
    assert spec.home == tmp_path / "here" / "p"
    assert spec.master == "local[1]"
    assert spec.folder == tmp_path


@pytest.mark.parametrize("given", ["s3://bucket/state/", Path("s3://bucket/state")])
def test_state_may_be_a_url(tmp_path: Path, given: str | Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(LEAST)
    assert load_spec(file, state=given).home == "s3://bucket/state/p"
    file.write_text('state = "file:///mine/of%20state"\n' + LEAST)
    assert load_spec(file).home == Path("/mine/of state/p")


def test_state_is_given_relative_to_where_the_user_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "p.toml"
    file.write_text(LEAST)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert load_spec(file, state="state").state == tmp_path / "here" / "state"


FORMATS = """
name = "p"
[sources.s]
format = "json"
options = { path = "in", "kafka.bootstrap.servers" = "h:1", secret = "env:S", multiLine = true }
[sources.i]
format = "iceberg"
options = { path = "db.t" }
[tables.t]
format = "csv"
schema = "id BIGINT"
options = { path = "s3a://bucket/t" }
[sinks.k]
input = "s"
format = "kafka"
options = { topic = "out" }
[sinks.f]
input = "i"
python = "writes:rows"
"""


def test_other_formats() -> None:
    spec = parse(FORMATS)
    assert spec.sources["s"].options == {
        "path": "/pipelines/in",
        "kafka.bootstrap.servers": "h:1",
        "secret": "env:S",
        "multiLine": "true",
    }
    assert spec.sources["i"].options == {"path": "db.t"}  # a table's name
    assert spec.tables["t"].options == {"path": "s3a://bucket/t"}
    assert "env:S" not in repr(spec)
    assert not spec.uses_server
    assert parse(FORMATS.replace('"iceberg"', '"iceberg"\nreader_schema = "topic:t"')).uses_server
    # The checkpoint knows where a source reads, and none of its secrets.
    assert source_topics(spec) == {"i": "format iceberg path=db.t", "s": "format json path=/pipelines/in"}
    assert [spec.sinks[name].target for name in "kf"] == ["format kafka topic=out", "python writes:rows"]
    moved = source_topics(parse(FORMATS.replace('"in"', '"other"')))
    assert not goes_on(source_topics(spec), moved)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (('"json"', '"json"\ntopics = ["t"]'), "[sources.s] topics belongs to topics"),
        (('"json"', '"json"\nstart = "latest"'), "[sources.s] start belongs to topics; say it in options"),
        (('"json"', '"json"\nmax_rows_per_batch = 5'), "[sources.s] max_rows_per_batch belongs to topics"),
        (('"json"', '"json"\ninclude = ["key"]'), "[sources.s] include: of another format only _raw"),
        (
            ('"json"', '"json"\ndecode = "flat"'),
            "[sources.s] reader_schema: decode of another format needs topic:",
        ),
        (('"json"', '"penstock"'), "[sources.s] format: penstock is written without it"),
        (('"csv"', '"csv"\npath = "p"'), "[tables.t] one of path and format is needed, and only one"),
        (('format = "csv"', 'path = "p"'), "[tables.t] options belongs to a format"),
        (('"kafka"\n', '"kafka"\nmode = "replace"\n'), "[sinks.k] mode: invalid enum value 'replace'"),
        (
            ('"kafka"\n', '"kafka"\ntopic = "t"\n'),
            "[sinks.k] exactly one of topic (or topic_column), path, format",
        ),
        (('"kafka"\n', '"kafka"\nkey = "k"\n'), "[sinks.k] key belongs to topics"),
        (('"kafka"\n', '"kafka"\ndelivery = "exactly_once"\n'), "[sinks.k] delivery belongs to topics"),
        (('"kafka"\n', '"kafka"\nkeys = ["k"]\n'), "[sinks.k] keys belongs to tables"),
        (('"writes:rows"', '"writes"'), "[sinks.f] python: 'writes' is not module:name"),
        (('"writes:rows"', '"writes:rows"\nmode = "overwrite"'), "[sinks.f] mode belongs to a format"),
        (('name = "p"', 'name = "p"\noutput = "update"'), "[sinks.k] a format takes output = 'append'"),
        (('name = "p"', 'name = "p"\noutput = "complete"'), "[sinks.k] mode: output = 'complete' needs"),
    ],
)
def test_a_mistake_about_formats_is_named(change: tuple[str, str], sentence: str) -> None:
    text = FORMATS.replace(*change)
    assert text != FORMATS
    assert refusal(text).startswith(f"p.toml: {sentence}")


def test_a_schema_registry_is_reached_like_a_server(tmp_path: Path) -> None:
    source = {"format": "kafka", "decode": "flat", "reader_schema": "registry:orders-value"}
    content = {"name": "p", "sources": {"s": source}, "sinks": {"k": {"input": "s", "path": "t"}}}
    with pytest.raises(PipelineError, match=r"reader_schema: registry: needs \[schema_registry\]"):
        parse_spec(content, "p.toml", tmp_path)
    content["schema_registry"] = {"url": "https://registry/", "basic_env": "AUTH", "ca_file": "ca.pem"}
    spec = parse_spec(content, "p.toml", tmp_path)
    assert spec.schema_registry == Access(
        url="https://registry", basic_env="AUTH", ca_file=str(tmp_path / "ca.pem")
    )
    assert not spec.uses_server
    content["schema_registry"] = {"url": "http://registry", "basic_env": "AUTH", "token_env": "T"}
    with pytest.raises(PipelineError, match=r"\[schema_registry\] token_env and basic_env exclude"):
        parse_spec(content, "p.toml", tmp_path)
    content["schema_registry"] = {}
    with pytest.raises(PipelineError, match=r"\[schema_registry\] url: .* is no address"):
        parse_spec(content, "p.toml", tmp_path)
