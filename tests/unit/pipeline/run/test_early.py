"""What is known of the user's functions before Spark starts is known without running them."""

import sys
from pathlib import Path

import pytest

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.run.query import check_callable, check_early
from penstock.pipeline.spec.parse import parse_spec


def test_code_that_asks_for_spark_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "early_columns.py").write_text(
        "from pyspark.sql import functions as f\nLATE = f.col('delay') > 60\ndef late(frame):\n    return frame\n"
    )
    check_callable(tmp_path, "early_columns:late", "python")
    assert "early_columns" not in sys.modules
    assert str(tmp_path) not in sys.path


@pytest.mark.parametrize(
    "code",
    [
        "from other import *",
        "from other import wanted",
        "import other as wanted",
        "if True:\n    wanted = print",
        "class wanted: pass",
        "def __getattr__(name): return print",
        "globals()['want' + 'ed'] = print",
    ],
)
def test_a_name_may_come_from_anywhere(tmp_path: Path, code: str) -> None:
    (tmp_path / "early_names.py").write_text(code)
    check_callable(tmp_path, "early_names:wanted", "python")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "early_nowhere:f",
            "python: module early_nowhere cannot be imported: No module named 'early_nowhere'",
        ),
        ("early_code:g", "python: module early_code has no function or class g"),
        ("early_package.inner:g", "python: module early_package.inner has no function or class g"),
        ("early_wrong:f", "python: module early_wrong fails when it is imported: SyntaxError: "),
    ],
)
def test_what_is_not_there_is_said(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "early_code.py").write_text("def f(frame):\n    return frame\n")
    (tmp_path / "early_wrong.py").write_text("def f(frame)\n")
    (tmp_path / "early_package").mkdir()
    (tmp_path / "early_package" / "inner.py").write_text("def f(frame):\n    return frame\n")
    with pytest.raises(PipelineError) as refused:
        check_callable(tmp_path, text, "python")
    assert refused.value.message.startswith(sentence)


def test_what_only_code_knows_passes(tmp_path: Path) -> None:
    (tmp_path / "early_other").mkdir()
    (tmp_path / "early_other" / "__init__.py").write_text("__path__ = []\n")
    check_callable(tmp_path, "early_other.inner:f", "python")
    check_callable(tmp_path, "sys:f", "python")


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("avro:nowhere.avsc", "reader_schema: nowhere.avsc cannot be read: No such file"),
        ("avro:wrong.avsc", ""),
        ("json:[", ""),
        ("avro:right.avsc", None),
        ('json:{"type": "record", "name": "R", "fields": []}', None),
    ],
)
def test_the_schema_of_a_foreign_source_is_read(tmp_path: Path, schema: str, sentence: str | None) -> None:
    (tmp_path / "wrong.avsc").write_text('{"type": "recor"}')
    (tmp_path / "right.avsc").write_text(
        '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'
    )
    content = {
        "name": "p",
        "sources": {"s": {"format": "kafka", "decode": "struct", "reader_schema": schema}},
        "sinks": {"k": {"input": "s", "python": "early_sink:f"}},
    }
    (tmp_path / "early_sink.py").write_text("def f(rows, batch):\n    pass\n")
    spec = parse_spec(content, "p.toml", tmp_path)
    if sentence is None:
        check_early(spec)
        return
    with pytest.raises(PipelineError) as refused:
        check_early(spec)
    assert refused.value.message.startswith(f"p.toml: [sources.s]: {sentence}")


def test_the_function_of_a_sink_is_looked_for(tmp_path: Path) -> None:
    content = {
        "name": "p",
        "sources": {"s": {"format": "rate"}},
        "sinks": {"k": {"input": "s", "python": "early_missing:f"}},
    }
    with pytest.raises(PipelineError, match=r"\[sinks.k\]: python: module early_missing cannot be imported"):
        check_early(parse_spec(content, "p.toml", tmp_path))
