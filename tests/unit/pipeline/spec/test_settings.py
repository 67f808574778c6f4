"""Settings beside a pipeline's file, variables in its texts, and secrets that stand in it."""

from pathlib import Path
from typing import Any

import pytest

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.spec.parse import apply_settings, literal_secrets, load_spec, with_variables

FILE = """
name = "p"
master = "${MASTER:-local[2]}"
[sources.s]
topics = ["${TOPIC}", "u"]
[[steps]]
name = "made"
sql = "SELECT '$${TOPIC}' AS a, '${env:HOME}' AS b FROM s WHERE x RLIKE '^a$'"
expect = [{ name = "small", predicate = "x < 3" }]
[sinks.k]
input = "made"
path = "history"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOPIC", "orders")
    path = tmp_path / "p.toml"
    path.write_text(FILE)
    return path


def applied(*given: str) -> dict[str, Any]:
    content: dict[str, Any] = {"name": "p", "steps": [{"name": "made", "expect": [{"name": "small"}]}]}
    apply_settings(content, given, "p.toml")
    return content


def test_variables_and_settings_make_the_file_that_is_run(file: Path) -> None:
    spec = load_spec(
        file, settings=["sinks.k.path=/data/h", "steps.made.expect.small.action=drop", "sources.s.start=17"]
    )
    assert (spec.master, spec.sources["s"].topics) == ("local[2]", ("orders", "u"))
    assert spec.steps[0].sql == "SELECT '${TOPIC}' AS a, '${env:HOME}' AS b FROM s WHERE x RLIKE '^a$'"
    assert spec.sinks["k"].path == "/data/h"
    assert spec.steps[0].expect[0].action == "drop"
    assert spec.sources["s"].start == 17


def test_settings_of_a_program_have_their_own_types(file: Path) -> None:
    spec = load_spec(file, settings={"sinks.k.partition_by": ["day(at)"], "sinks.k.compact": False})
    assert (spec.sinks["k"].partition_by, spec.sinks["k"].compact) == (("day(at)",), False)


def test_a_setting_stands_for_a_variable_that_is_not_set(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOPIC")
    with pytest.raises(PipelineError) as refused:
        load_spec(file)
    assert refused.value.message == (
        f"{file}: sources.s.topics: the environment variable TOPIC is not set; set it, or write ${{TOPIC:-default}}"
    )
    assert load_spec(file, settings=['sources.s.topics=["v"]']).sources["s"].topics == ("v",)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("a=1", 1),
        ("a=true", True),
        ('a="1"', "1"),
        ("a=[1, 2]", [1, 2]),
        ("a=10 minutes", "10 minutes"),
        ("a=/tmp/x", "/tmp/x"),
        ("a=b=c", "b=c"),
        ("a=", ""),
        ("a=1\nb = 2", "1\nb = 2"),
    ],
)
def test_a_value_is_tomls_or_text(setting: str, value: object) -> None:
    assert applied(setting)["a"] == value


def test_keys_are_tomls() -> None:
    content = applied('spark."spark.sql.x"=4', "server.url=http://h", "steps.made.sql=SELECT 1")
    assert content["spark"] == {"spark.sql.x": 4}
    assert content["server"] == {"url": "http://h"}
    assert content["steps"][0]["sql"] == "SELECT 1"


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("name", "setting 'name' is not KEY=VALUE, like sinks.history.path=/tmp/history"),
        ("a b=1", "setting 'a b' is not a key like sinks.history.path"),
        ("name.x=1", "p.toml: setting name.x: name is not a table"),
        ("steps.mode.sql=1", "p.toml: setting steps.mode.sql: there is no 'mode'; there are made"),
        ("steps.sql=1", "p.toml: setting steps.sql: steps is a list; name one of its entries"),
    ],
)
def test_what_is_no_setting_is_refused(setting: str, sentence: str) -> None:
    with pytest.raises(PipelineError) as refused:
        applied(setting)
    assert refused.value.message == sentence


def test_an_empty_variable_has_its_default() -> None:
    environment = {"EMPTY": ""}
    assert with_variables("${EMPTY:-x}${EMPTY}${NONE:-}", environment, "p") == "x"


def test_secrets_as_text_are_found() -> None:
    content = {
        "server": {"token_file": "t", "token_env": "T"},
        "storage": {
            "aws_access_key_id": "me",
            "aws_secret_access_key": "s3cret",
            "azure_storage_account_key": "env:K",
        },
        "sources": {
            "s": {"options": {"kafka.sasl.jaas.config": "x password=1", "kafka.ssl.key.password": "${P}"}}
        },
        "steps": [{"name": "password", "sql": "SELECT token FROM s"}],
        "spark": {"spark.hadoop.fs.s3a.secret.key": "s3cret"},
    }
    assert literal_secrets(content, "p.toml") == [
        f"p.toml: {key} holds a secret as text: write ${{NAME}}, a variable of the environment"
        for key in (
            "storage.aws_secret_access_key",
            "sources.s.options.kafka.sasl.jaas.config",
            "spark.spark.hadoop.fs.s3a.secret.key",
        )
    ]
