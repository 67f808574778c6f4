"""What does not fit is said in one sentence that names the place, and nothing is written."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.declared import Bench

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.run.query import check, check_early
from penstock.pipeline.spec.parse import load_spec
from penstock.testing.server import running

GOOD = """
name = "good"
dead_letters = "dead"
[sources.s]
topics = ["in"]
[[steps]]
name = "read"
sql = "SELECT key, CAST(value AS STRING) AS text, timestamp AS at FROM s"
watermark = { column = "at", delay = "1 minute", late = "dead_letter" }
expect = [{ name = "short", predicate = "length(text) < 10", action = "dead_letter" }]
[[steps]]
name = "counted"
sql = "SELECT window.start AS at, count(*) AS c FROM read GROUP BY window(at, '1 minute')"
[sinks.out]
input = "counted"
topic = "out"
event_time = "at"
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Bench]:
    with running() as server:
        found = Bench(tmp_path_factory.mktemp("check"), server.url, spark)
        found.create("in")
        yield found


def test_what_would_run_is_shown(bench: Bench) -> None:
    spec = load_spec(bench.file(GOOD), url=bench.url, state=bench.folder / "state")
    checked = check(spec, bench.spark)
    assert checked.views["counted"] == {"at": "timestamp", "c": "bigint"}
    assert checked.sinks["out"] == {"value": "struct<c:bigint>", "event_time": "timestamp"}
    assert checked.readings == 1
    assert checked.limits == ["[sources.s] a batch takes at most 5,000,000 rows and 1,024 MiB"]
    assert "Aggregate" in checked.plan
    assert not (bench.folder / "state").exists()


def test_rows_that_must_keep_their_order_go_through_no_shuffle(bench: Bench) -> None:
    spec = load_spec(bench.file(GOOD + "ordered = true\n"), url=bench.url, state=bench.folder / "state")
    assert check(spec, bench.spark).readings == 2


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (('["in"]', '["nowhere"]'), "[sources.s]: topic persistent://public/default/nowhere does not exist"),
        (("SELECT key", "SELEC key"), "[[steps]] read: sql: Syntax error at or near 'SELEC'"),
        (
            ("SELECT key, CAST", "SELECT kee, CAST"),
            "[[steps]] read: sql: A column, variable, or function parameter",
        ),
        (
            ("FROM read GROUP", "FROM reed GROUP"),
            "[[steps]] counted: sql: The table or view `reed` cannot be found",
        ),
        (
            ("SELECT key, CAST(value AS STRING) AS text, timestamp AS at FROM s", "DROP TABLE s"),
            "read: sql: Syntax",
        ),
        (('column = "at"', 'column = "when"'), "[[steps]] read: watermark: there is no column 'when'"),
        (
            ('column = "at"', 'column = "text"'),
            "[[steps]] read: watermark: column text is string, not timestamp",
        ),
        (("length(text)", "length(txt)"), "[[steps]] read: expect 'short': A column, variable"),
        (('event_time = "at"', 'key = "kk"'), "[sinks.out] key: counted has no column 'kk'; there are at, c"),
        (
            ('topics = ["in"]', 'topics = ["in"]\ninclude = ["colour"]'),
            "[sources.s]: option include: no column 'colour'",
        ),
    ],
)
def test_what_does_not_fit_is_named(bench: Bench, change: tuple[str, str], sentence: str) -> None:
    text = GOOD.replace(*change)
    assert text != GOOD
    with pytest.raises(PipelineError) as refused:
        check(load_spec(bench.file(text), url=bench.url, state=bench.folder / "state"), bench.spark)
    message = refused.value.message
    assert "p.toml: " in message
    assert sentence in message
    assert "\n" not in message
    assert not (bench.folder / "state").exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("SELECT key, CAST", "SELECT kee, CAST"), "[[steps]] read: sql: A column, variable"),
        (("GROUP BY window(at, '1 minute')", "GROUP BY window(at + INTERVAL 1 DAY, '1 minute')"), "append"),
    ],
)
def test_a_run_that_cannot_be_planned_leaves_nothing(
    bench: Bench, change: tuple[str, str], sentence: str
) -> None:
    text = GOOD.replace(*change)
    assert text != GOOD
    for _ in range(2):  # and can be tried again
        with pytest.raises(PipelineError) as refused:
            bench.pipeline(text).start()
        assert sentence in refused.value.message
        assert refused.value.error_class == "plan"  # type: ignore[attr-defined]
        assert not (bench.folder / "state").exists()


def test_user_code_that_is_not_there_or_fails(bench: Bench) -> None:
    python = 'inputs = ["s"]\npython = "{}"\nwatermark'
    (bench.folder / "broken_module.py").write_text("1 / 0\n")
    (bench.folder / "fine_module.py").write_text(
        "def f(frame):\n    return 3\n\ndef g(frame):\n    return frame.x.y\n"
    )
    for name, sentence in (
        ("no_module:f", "module no_module cannot be imported"),
        ("broken_module:f", "module broken_module fails when it is imported: ZeroDivisionError"),
        ("fine_module:nothing", "module fine_module has no function or class nothing"),
        ("fine_module:f", "fine_module:f returns int, not a DataFrame"),
    ):
        sql = 'sql = "SELECT key, CAST(value AS STRING) AS text, timestamp AS at FROM s"\nwatermark'
        text = GOOD.replace(sql, python.format(name))
        assert text != GOOD
        with pytest.raises(PipelineError, match=sentence):
            check(load_spec(bench.file(text), url=bench.url, state=bench.folder / "state"), bench.spark)


def test_a_server_that_is_not_there(bench: Bench, tmp_path: Path) -> None:
    spec = load_spec(bench.file(GOOD), url="http://127.0.0.1:1", state=tmp_path / "state")
    with pytest.raises(PipelineError, match=r"^pipeline \w+: http://127\.0\.0\.1:1 cannot be reached: "):
        check(spec, bench.spark)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            ('input = "counted"\ntopic = "out"\nevent_time = "at"', 'input = "s"\ntopic = "out"\nkey = "kk"'),
            "[sinks.out] key: s has no column 'kk'; there are key, value",
        ),
        (
            ('topics = ["in"]', 'topics = ["in"]\nwatermark = { column = "at", delay = "1 minute" }'),
            "[sources.s]: watermark: there is no column 'at'; there are key, value",
        ),
        (
            ('topics = ["in"]', 'topics = ["in"]\ninclude = ["colour"]'),
            "[sources.s]: option include: no column 'colour'",
        ),
        (
            (
                "[sinks.out]",
                '[[steps]]\nname = "once"\ninputs = ["s"]\ndeduplicate = ["offsett"]\n[sinks.out]',
            ),
            "[[steps]] once: deduplicate: there is no column 'offsett'; there are key, value",
        ),
        (
            ("[sinks.out]", '[[steps]]\nname = "f"\ninputs = ["s"]\npython = "no_module:f"\n[sinks.out]'),
            "[[steps]] f: python: module no_module cannot be imported",
        ),
    ],
)
def test_what_spark_is_not_needed_for_is_known_before_it_starts(
    bench: Bench, change: tuple[str, str], sentence: str
) -> None:
    text = GOOD.replace(*change)
    assert text != GOOD
    with pytest.raises(PipelineError) as refused:
        check_early(load_spec(bench.file(text), url=bench.url, state=bench.folder / "state"))
    assert f"p.toml: {sentence}" in refused.value.message


def test_what_is_right_passes_early(bench: Bench) -> None:
    check_early(load_spec(bench.file(GOOD), url=bench.url, state=bench.folder / "state"))
