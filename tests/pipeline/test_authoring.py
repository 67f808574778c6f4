"""What people who write pipelines do all day: preview, test, backfill; on a real session."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from tests.pipeline.declared import HOUR, Bench

from penstock.cli import pipeline_authoring
from penstock.cli.pipeline_group import pipeline_command
from penstock.client.http import HttpClient
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.run.folder import Folder
from penstock.pipeline.run.handle import pipeline
from penstock.pipeline.run.lateness import emits_later
from penstock.pipeline.run.plain import plain_rows
from penstock.testing.pipelines import pipeline_tests, run_pipeline
from penstock.testing.server import running

SALES = """
name = "sales"
dead_letters = "dead"
[sources.orders]
topics = ["orders"]
[tables.names]
path = "names"
[[steps]]
name = "parsed"
sql = '''
SELECT o.product, o.price, to_timestamp(o.at) AS at, key, value, properties, topic, partition, offset
FROM (SELECT *, from_json(CAST(value AS STRING), 'product STRING, price DOUBLE, at STRING') AS o FROM orders)
'''
expect = [
  { name = "readable", predicate = "product IS NOT NULL", action = "dead_letter" },
  { name = "has a price", predicate = "price > 0", action = "drop" },
  { name = "not too dear", predicate = "coalesce(price, 0) < 1000", action = "fail" },
]
watermark = { column = "at", delay = "10 minutes", late = "dead_letter" }
[[steps]]
name = "first"
deduplicate = ["product", "at"]
inputs = ["parsed"]
[[steps]]
name = "per_minute"
sql = '''
SELECT window.start AS minute, any_value(n.name) AS name, product, count(*) AS sold, sum(price) AS revenue
FROM first LEFT JOIN names n USING (product) GROUP BY window(at, '1 minute'), product
'''
[sinks.results]
input = "per_minute"
topic = "results"
key = "product"
event_time = "minute"
[sinks.history]
input = "per_minute"
path = "history"
partition_by = ["day(minute)"]

[[tests]]
name = "two sales of a minute"
given.orders = [
  { key = "1", value = { product = "tea", price = 3.5, at = 2026-01-31T08:00:10Z } },
  { key = "2", value = { product = "tea", price = 3.5, at = 2026-01-31T08:00:10Z } },
  { key = "3", value = { product = "tea", price = 0.1, at = 2026-01-31T08:00:20Z } },
  { key = "4", value = { product = "milk", price = -1, at = 2026-01-31T08:00:20Z } },
  { key = "5", value = "not an order", properties = { from = "here" } },
  { key = "6", value = '{"product": "tea", "price": 1}' },
]
tables.names = [{ product = "tea", name = "Darjeeling" }]
[tests.expect]
per_minute = [{ minute = 2026-01-31T08:00:00Z, name = "Darjeeling", sold = 2, revenue = 3.6 }]
results = [{ key = "tea", value = { revenue = 3.6 }, event_time = "2026-01-31T08:00:00Z" }]
dead_letters = [
  { view = "parsed", rule = "readable", value = "not an order", key = "5", properties = { from = "here" }, offset = 4 },
  { view = "parsed", rule = "at", key = "6" },
]
"""

DEAR = """
[[tests]]
name = "too dear"
given.orders = [{ value = { product = "tea", price = 1000, at = "2026-01-31T08:00:10Z" } }]
tables.names = []
schemas.names = "product STRING, name STRING"
fails = "expectation 'not too dear' of parsed does not hold"

[[tests]]
name = "wrong"
given.orders = [{ value = { product = "tea", price = 2, at = "2026-01-31T08:00:10Z" } }]
tables.names = [{ product = "tea", name = "Assam" }]
expect.per_minute = [{ product = "tea", sold = 1, revenue = 3.5 }, { product = "milk", sold = 1, revenue = 1.0 }]
"""

TYPED = """
name = "typed"
dead_letters = "dead"
[sources.s]
topics = ["in"]
decode = "flat"
on_bad_value = "dead_letter"
[[steps]]
name = "days"
sql = "SELECT id, date(at) AS day, tags[0] AS tag FROM s"
[sinks.k]
input = "days"
path = "days"
"""

DEFINITION = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
    ],
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Bench]:
    with running() as server:
        yield Bench(tmp_path_factory.mktemp("authoring"), server.url, spark)


def order(minute: int, product: str = "tea", price: float = 3.5) -> dict[str, Any]:
    return {"product": product, "price": price, "at": f"2026-01-31T08:{minute:02}:10Z"}


def command(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, verb: str, *words: str
) -> tuple[int, list[dict[str, Any]]]:
    """`penstock pipeline …` over the tests' own session: its exit code, and its lines of JSON."""
    monkeypatch.setattr(pipeline_authoring, "spark_session", lambda *_, **__: nullcontext(bench.spark))
    given = [
        verb,
        str(bench.folder / "p.toml"),
        "--url",
        bench.url,
        "--state",
        str(bench.folder / "state"),
        *words,
    ]
    done = CliRunner().invoke(pipeline_command, given)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()]


def topics(bench: Bench) -> list[str]:
    with HttpClient(bench.url) as client:
        found: list[str] = client.call("GET", "/admin/v2/persistent/public/default")
    return sorted(found)


def test_the_tests_of_a_file_need_no_server(tmp_path: Path, spark: SparkSession) -> None:
    file = tmp_path / "sales.toml"
    file.write_text(SALES)
    (tmp_path / "sales.tests.toml").write_text(DEAR)
    good, dear, wrong = pipeline_tests(file, url="http://127.0.0.1:1")
    assert list(map(str, (good, dear, wrong))) == ["two sales of a minute", "too dear", "wrong"]
    good.check(spark)
    dear.check(spark)
    with pytest.raises(AssertionError) as failed:
        wrong.check(spark)
    assert str(failed.value).splitlines()[1:] == [
        "per_minute:",
        '  - {"product": "tea", "sold": 1, "revenue": 3.5}',
        '  + {"product": "tea", "sold": 1, "revenue": 2.0}',
        "  ? revenue: 2.0, not 3.5",
        '  - {"product": "milk", "sold": 1, "revenue": 1.0}',
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sales.tests.toml", "sales.toml"]


def test_the_command_says_which_tests_failed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.file(SALES + DEAR)
    code, (good, dear) = command(
        bench, monkeypatch, "test", "two sales of a minute", "too dear", "--url", "http://127.0.0.1:1"
    )
    assert (code, good["test"], good["passed"], dear["passed"]) == (0, "two sales of a minute", True, True)
    code, (wrong,) = command(
        bench, monkeypatch, "test", "wrong", "--set", "steps.parsed.expect.readable.action=drop"
    )
    assert (code, wrong["passed"], wrong["error"]) == (1, False, "")
    assert wrong["differences"][0]["unexpected"] == [{"product": "tea", "sold": 1, "revenue": 2.0}]


def test_the_tests_of_the_docs(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = Path(__file__).parents[2] / "docs"
    declared, tests = re.findall(
        r"```toml\n(name = \"sales\".*?|\[\[tests\]\].*?)```", (docs / "pipelines.md").read_text(), re.DOTALL
    )
    (tmp_path / "sales.toml").write_text(declared)
    (tmp_path / "sales.tests.toml").write_text(tests)
    (code,) = re.findall(
        r"```python\n((?:(?!```).)*run_pipeline.*?)```", (docs / "testing.md").read_text(), re.DOTALL
    )
    monkeypatch.chdir(tmp_path)
    module: dict[str, Any] = {}
    exec(code, module)
    (test,) = pipeline_tests("sales.toml")
    module["test_what_the_file_declares"](test)
    module["test_a_sale_is_counted"]()


@pytest.mark.parametrize(
    "schema", [json.dumps(DEFINITION), "order.avsc", "id BIGINT, at TIMESTAMP, tags ARRAY<STRING>"]
)
def test_values_are_decoded_by_the_schema_of_the_test(
    tmp_path: Path, spark: SparkSession, schema: str
) -> None:
    file = tmp_path / "typed.toml"
    file.write_text(TYPED)
    (tmp_path / "order.avsc").write_text(json.dumps(DEFINITION))
    given: list[dict[str, Any]] = [
        {"value": {"id": 1, "at": "2026-01-31T23:59:59Z", "tags": ["a"]}},
        {"value": {"id": "one", "at": "2026-01-31T23:59:59Z"}, "key": "bad"},
        {"value": b"\xff"},
    ]
    found = run_pipeline(file, {"s": given}, schemas={"s": schema}, spark=spark)
    assert found.rows("k") == [{"id": 1, "day": "2026-01-31", "tag": "a"}]
    letters = found.rows("dead_letters")
    assert [(row["rule"], row["key"]) for row in letters] == [("readable", "bad"), ("readable", None)]
    assert letters[1]["value"] == {"base64": "/w=="}


PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "tags.proto";
message Cancelled { int64 id = 1; }
message Order { int64 id = 1; google.protobuf.Timestamp at = 2; repeated Tag tags = 3; }
"""


def test_values_are_decoded_by_a_protobuf_schema(tmp_path: Path, spark: SparkSession) -> None:
    file = tmp_path / "typed.toml"
    tests = """
[[tests]]
name = "an order"
schemas.s = "order.proto#shop.Order"
given.s = [
  { value = { id = 1, at = 2026-01-31T23:59:59Z, tags = [{ name = "a" }] } },
  { value = { id = 2, colour = "red" }, key = "bad" },
  { value = { base64 = "/w==" } },
]
expect.k = [{ id = 1, day = 2026-01-31, tag = "a" }]
expect.dead_letters = [{ rule = "readable", key = "bad" }, { rule = "readable", value = { base64 = "/w==" } }]
"""
    file.write_text(TYPED.replace("tags[0]", "tags[0].name") + tests)
    (tmp_path / "order.proto").write_text(PROTO)
    (tmp_path / "tags.proto").write_text('syntax = "proto3"; package shop; message Tag { string name = 1; }')
    (test,) = pipeline_tests(file)
    test.check(spark)
    text = 'syntax = "proto3"; message Id { int64 id = 1; }'
    given: dict[str, Any] = {"s": [{"value": {"id": "7"}}]}
    found = run_pipeline(
        tmp_path / "typed.toml",
        given,
        schemas={"s": text},
        spark=spark,
        settings={"steps.days.sql": "SELECT id, current_date() AS day FROM s"},
    )
    assert [row["id"] for row in found.rows("days")] == [7]


def test_what_a_test_lacks_is_said(tmp_path: Path, spark: SparkSession) -> None:
    file = tmp_path / "typed.toml"
    file.write_text(TYPED)
    wrong: list[tuple[dict[str, Any], dict[str, str], str]] = [
        ({"s": []}, {}, "[sources.s]: the source decodes: give its schema in the test's schemas"),
        ({"t": []}, {}, "given: there is no 't'; there are s"),
        (
            {"s": [{"values": 1}]},
            {"s": "id INT"},
            "[sources.s]: message 1: unknown key values; there are key, value",
        ),
    ]
    for given, schemas, sentence in wrong:
        with pytest.raises(PipelineError) as refused:
            run_pipeline(file, given, schemas=schemas, spark=spark)
        assert sentence in refused.value.message


def test_a_preview_shows_the_newest_messages_and_leaves_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.create("orders", 2)
    bench.publish("orders", [order(minute) for minute in range(50)] + ["not an order"])
    bench.spark.createDataFrame([("tea", "Assam")], "product string, name string").write.format(
        "penstock_lake"
    ).mode("append").save(str(bench.folder / "names"))
    there = topics(bench)
    state = bench.folder / "state of sales"
    running = pipeline(bench.file(SALES), bench.spark, url=bench.url, state=state)
    found = list(plain_rows(running.preview("orders", rows=3, messages=10)))
    newest = [m["offset"] for m in bench.messages("orders")]
    assert len(newest) == 51
    assert found[0]["value"] == "not an order"
    parsed: Any = running.preview("parsed", rows=3)
    plan = parsed._jdf.queryExecution().executedPlan().toString()
    assert "LocalTableScan" in plan
    assert "Exchange" not in plan
    rows = list(plain_rows(parsed))
    assert [row["product"] for row in rows] == ["tea"] * 3
    assert running.preview("per_minute", rows=100, messages=10).count() < 11
    assert running.preview(rows=100).columns == ["minute", "name", "product", "sold", "revenue"]
    assert [row["key"] for row in plain_rows(running.preview("results", rows=1))] == ["tea"]
    letters = list(plain_rows(running.preview("dead_letters")))
    assert [(row["rule"], row["value"]) for row in letters] == [("readable", "not an order")]
    with pytest.raises(PipelineError, match="there is no source, step or sink 'nothing'; there are orders, "):
        running.preview("nothing")
    words = ("results", "--rows", "1", "--messages", "5", "--set", "sinks.results.key=minute")
    code, (row,) = command(bench, monkeypatch, "preview", *words)
    assert (code, row["key"][:10], row["value"]["product"]) == (0, "2026-01-31", "tea")
    assert not state.exists()
    assert not (bench.folder / "history").exists()
    assert topics(bench) == there
    with HttpClient(bench.url) as client:
        assert client.call("GET", "/admin/v2/persistent/public/default/orders/subscriptions") == []


BASE = int(time.time()) // HOUR * HOUR - 10 * HOUR  # an hour whose messages are published within the margin

HOURS = """
name = "hours"
dead_letters = "dead-hours"
[sources.flights]
topics = ["flights"]
[[steps]]
name = "parsed"
sql = '''
SELECT f.*, timestamp_seconds(f.s) AS at, date(timestamp_seconds(f.s)) AS day
FROM (SELECT from_json(CAST(value AS STRING), 'k STRING, n INT, s BIGINT') AS f FROM flights)
'''
expect = [{ name = "known", predicate = "k IS NOT NULL", action = "dead_letter" }]
watermark = { column = "at", delay = "1 hour" }
[[steps]]
name = "hourly"
sql = "SELECT window.start AS at, k, sum(n) AS n FROM parsed GROUP BY window(at, '1 hour'), k"
[sinks.flights]
input = "parsed"
path = "flights"
partition_by = ["day(at)", "k"]
[sinks.hourly]
input = "hourly"
path = "hourly"
[sinks.topic]
input = "hourly"
topic = "hourly"
event_time = "at"
"""


def at(hours: float) -> str:
    return datetime.fromtimestamp(BASE + hours * HOUR, UTC).isoformat()


def flight(k: str, n: int, hours: float) -> dict[str, Any]:
    return {"k": k, "n": n, "s": BASE + int(hours * HOUR)}


def hours_of(bench: Bench, table: str) -> list[tuple[int, str, int]]:
    """The rows of a table of hours, the hour as their distance from BASE."""
    rows = bench.spark.read.format("penstock_lake").load(str(bench.folder / table))
    found = rows.selectExpr(f"(unix_seconds(at) - {BASE}) / {HOUR} AS hour", "k", "n").collect()
    return sorted((row.hour, row.k, row.n) for row in found)


@pytest.fixture(scope="module")
def hours(bench: Bench) -> Bench:
    """With a pipeline that has run."""
    bench.create("flights", 2)
    bench.publish("flights", [flight("AA", 1, hour / 4) for hour in range(24)] + ["nonsense"])
    bench.publish("flights", [flight("UA", 5, 2.5)])
    bench.run_once(HOURS)
    return bench


def test_a_backfill_replaces_the_rows_of_a_range(hours: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = hours
    assert hours_of(bench, "hourly") == [(0, "AA", 4), (1, "AA", 4), (2, "AA", 4), (2, "UA", 5), (3, "AA", 4)]
    published = len(bench.messages("hourly"))

    changed = HOURS.replace("sum(n) AS n FROM", "sum(10 * n) AS n FROM").replace(
        "f.*,", "f.k, f.n + 100 AS n, f.s,"
    )
    options = {"url": bench.url, "state": bench.folder / "state"}
    edited = pipeline(bench.file(changed), bench.spark, **options)
    expected = [(0, "AA", 4), (1, "AA", 4040), (2, "AA", 4040), (2, "UA", 1050), (3, "AA", 4)]
    for _ in range(2):  # repeated, it leaves the same
        report = edited.backfill(at(1), at(3), sinks=["flights", "hourly"], columns={"hourly": "at"})
        assert report.rows == {"flights": 9, "hourly": 3}
        assert report.dead_letters == 1
        assert report.replaced["hourly"] == f"`at` >= '{at(1)}' AND `at` < '{at(3)}'".replace("+00:00", "Z")
        assert hours_of(bench, "hourly") == expected
        flights = hours_of(bench, "flights")
        assert len(flights) == 25
        assert [n for hour, _, n in flights if n > 100] == [101] * 4 + [101] * 2 + [101, 105, 101]
        assert all((n > 100) == (1 <= hour < 3) for hour, _, n in flights)
    assert len(bench.messages("dead-hours")) == 1, "dead letters are not published again"
    assert len(bench.messages("hourly")) == published

    # The stream goes on, under its own writers and numbers.
    bench.publish("flights", [flight("AA", 1, 9)])
    bench.run_once(HOURS)
    after = hours_of(bench, "hourly")
    assert [row for row in after if row[0] < 4] == expected
    assert (4, "AA", 4) in after

    words = ("--from", at(1), "--to", at(3), "--sink", "topic", "--append-topics", "--yes")
    code, (said,) = command(bench, monkeypatch, "backfill", *words)
    assert (code, said["rows"], said["replaced"]) == (0, {"topic": 3}, {})
    assert len(bench.messages("hourly")) == published + 2 + 3  # of which 2 the stream's


@pytest.mark.parametrize(
    ("column", "name", "sentence"),
    [
        (
            "at",
            "fresh",
            "the pipeline is still to read messages of the range, or of the margin of 90,000 s behind it",
        ),
        ("n", "hours", "[sinks.flights]: column n is int, not a time"),
        (
            "day",
            "hours",
            "[sinks.flights]: column day is a date: a range of it begins and ends at midnight in UTC",
        ),
    ],
)
def test_a_backfill_that_could_spoil_a_table_is_refused(
    hours: Bench, column: str, name: str, sentence: str
) -> None:
    file = hours.file(HOURS.replace('name = "hours"', f'name = "{name}"'))
    refused = pipeline(file, hours.spark, url=hours.url, state=hours.folder / "state")
    before = hours_of(hours, "flights")
    with pytest.raises(PipelineError) as error:
        refused.backfill(at(1), at(3), sinks=["flights"], columns={"flights": column})
    assert sentence in error.value.message
    assert hours_of(hours, "flights") == before


def test_windows_that_the_pipeline_holds_back_are_not_written(hours: Bench) -> None:
    before = hours_of(hours, "hourly")
    held = pipeline(hours.file(HOURS), hours.spark, url=hours.url, state=hours.folder / "state")
    with pytest.raises(PipelineError, match="may still hold rows of the range back") as refused:
        held.backfill(at(1), at(9), sinks=["hourly"], columns={"hourly": "at"})
    assert f"windows of the range end until {at(10)}".replace("+00:00", "Z") in refused.value.message
    assert hours_of(hours, "hourly") == before


@pytest.mark.parametrize(
    ("query", "later"),
    [
        ("SELECT key, count(*) FROM flights GROUP BY key", True),
        (
            "WITH f AS (SELECT * FROM flights) SELECT a.key, count(*) FROM f a JOIN f b USING (key) GROUP BY a.key",
            True,
        ),
        ("SELECT a.value FROM flights a JOIN flights b USING (key)", True),
        ("SELECT value FROM flights JOIN (SELECT max(id) AS most FROM limits) ON offset < most", False),
        ("SELECT value FROM flights WHERE offset < (SELECT max(id) FROM limits)", False),
        ("SELECT DISTINCT key FROM flights", False),
    ],
)
def test_rows_that_a_stream_has_later_are_made_of_several_messages(
    hours: Bench, query: str, later: bool
) -> None:
    spark = hours.spark.newSession()
    reader = spark.read.format("penstock").option("url", hours.url).option("subscribe", "flights")
    reader.load().createOrReplaceTempView("flights")
    spark.range(3).createOrReplaceTempView("limits")
    assert emits_later(spark.sql(query)) == later


KEYED = (
    HOURS.replace('name = "hours"', 'name = "keyed"').partition("[sinks.flights]")[0]
    + """
[sinks.latest]
input = "parsed"
path = "latest"
keys = ["k", "at"]
"""
)


def test_a_table_with_keys_keeps_rows_that_changed_after_the_range(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = KEYED.replace('topics = ["flights"]', 'topics = ["changes"]')
    bench.create("changes")
    bench.publish("changes", [flight("AA", 1, 1), flight("UA", 1, 2)])
    bench.run_once(text)
    bench.publish("changes", [flight("AA", 7, 1)])
    bench.run_once(text)
    changed = bench.file(text.replace("f.*,", "f.k, f.n + 100 AS n, f.s,"))
    again = pipeline(changed, bench.spark, url=bench.url, state=bench.folder / "state")
    with (
        Folder(bench.folder / "state" / "keyed").locked(),
        pytest.raises(PipelineError, match="stop it before"),
    ):
        again.backfill(at(0), at(3), columns={"latest": "at"})
    with monkeypatch.context() as patched:

        def confirm(self: Folder) -> None:
            raise PipelineError("another run has taken over")

        patched.setattr(Folder, "confirm", confirm)
        with pytest.raises(PipelineError, match="another run has taken over"):
            again.backfill(at(0), at(3), columns={"latest": "at"})
        assert hours_of(bench, "latest") == [(1, "AA", 7), (2, "UA", 1)]
    # All messages are published after the range and this margin.
    report = again.backfill(at(0), at(3), columns={"latest": "at"}, margin="1 minute")
    assert report.rows == {"latest": 3}  # of which one is of a message before it
    assert hours_of(bench, "latest") == [(1, "AA", 107), (2, "UA", 101)]


FOREIGN = """
name = "files"
[sources.orders]
format = "json"
options = { path = "orders" }
schema = "id BIGINT, drink STRING"
[[steps]]
name = "teas"
sql = "SELECT id FROM orders WHERE drink = 'tea'"
[sinks.out]
input = "teas"
format = "parquet"
options = { path = "out" }
"""
DECODED = """
name = "decoded"
[sources.orders]
format = "parquet"
options = { path = "orders" }
schema = "body BINARY"
column = "body"
decode = "flat"
reader_schema = "json:order.avsc"
[sinks.out]
input = "orders"
format = "parquet"
options = { path = "out" }
"""


def test_sources_of_other_formats_are_previewed_and_given(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "a.json").write_text('{"id": 1, "drink": "tea"}\n{"id": 2, "drink": "milk"}\n')
    (tmp_path / "files.toml").write_text(FOREIGN)
    assert list(plain_rows(pipeline(tmp_path / "files.toml", spark).preview())) == [{"id": 1}]
    given = [{"id": 7, "drink": "tea"}, {"id": 8, "drink": "water"}]
    assert run_pipeline(tmp_path / "files.toml", {"orders": given}, spark=spark).rows("out") == [{"id": 7}]
    with pytest.raises(PipelineError, match=r"\[sources.orders\]: format: a backfill reads topics"):
        pipeline(tmp_path / "files.toml", spark).backfill("2026-01-01", "2026-01-02")
    definition = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]}
    (tmp_path / "order.avsc").write_text(json.dumps(definition))
    (tmp_path / "decoded.toml").write_text(DECODED)
    for rows in ([{"body": {"id": 3}}], []):
        found = run_pipeline(tmp_path / "decoded.toml", {"orders": rows}, spark=spark).rows("out")
        assert [row["id"] for row in found] == [3][: len(rows)]
