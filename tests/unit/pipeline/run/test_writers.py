"""Names of writers last as long as their checkpoint, however the file names and surrounds the sinks."""

import tomllib
from pathlib import Path

import pytest

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.run.folder import SinkWriter
from penstock.pipeline.run.sinks import DEAD_WRITER, differences, plan_writers, refuse, suffixes
from penstock.pipeline.spec.parse import parse_spec
from penstock.pipeline.spec.spec import Spec

TOPIC = "persistent://public/default/"
DROP = 'expect = [{ name = "e", predicate = "true", action = "drop" }]'


def spec(sinks: dict[str, str], rule: str = "", folder: str = "/f") -> Spec:
    """Each sink by what it writes to: a topic, or a table's path."""
    text = f'name = "p"\ndead_letters = "dead"\n[sources.s]\ntopics = ["in"]\n{rule}\n'
    for name, target in sinks.items():
        text += f'[sinks.{name}]\ninput = "s"\n{"path" if "/" in target else "topic"} = "{target}"\n'
    return parse_spec(tomllib.loads(text), "p.toml", Path(folder))


def writers(
    sinks: dict[str, str], known: dict[str, SinkWriter] | None = None, letters: bool = False
) -> dict[str, SinkWriter]:
    return plan_writers(spec(sinks), known or {}, letters=letters)


def test_a_new_checkpoint_names_its_writers_by_the_file() -> None:
    assert suffixes(spec({"a": "out"}), {}) == {"a": ""}
    assert suffixes(spec({"a": "out"}, DROP), {}) == {"a": "-a"}
    assert suffixes(spec({"a": "out", "b": "/b"}), {}) == {"a": "-a", "b": "-b"}


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ({"a": "out", "b": "/b"}, {"a": "out"}, {"a": "-a"}),
        ({"a": "out"}, {"a": "out", "b": "/b"}, {"a": "", "b": "-b"}),
        ({"a": "out"}, {"c": "out"}, {"c": ""}),
        ({"a": "out", "b": "/b"}, {"b": "out", "a": "/b"}, {"b": "-a", "a": "-b"}),
        ({"a": "out", "b": "/b"}, {"c": "out", "a": "other"}, {"c": "-a", "a": "-a-"}),
        ({"a": "out", "b": "/b"}, {"a": "other", "b": "/c"}, {"a": "-a", "b": "-b"}),
        ({"a": "out", "b": "out"}, {"b": "out", "c": "out"}, {"b": "-b", "c": "-a"}),
        ({"a": "out", "b": "out"}, {"c": "out", "d": "out"}, {"c": "-c", "d": "-d"}),
    ],
)
def test_a_writer_goes_with_what_it_writes_to(
    before: dict[str, str], after: dict[str, str], named: dict[str, str]
) -> None:
    known = writers(before)
    assert suffixes(spec(after), known) == named
    assert suffixes(spec(after, DROP), known) == named


def test_a_table_may_move_with_its_file() -> None:
    one = plan_writers(spec({"t": "/here/tables/t", "u": "/u"}, folder="/here"), {}, letters=False)
    other = plan_writers(spec({"t": "/there/tables/t", "u": "/u"}, folder="/there"), one, letters=False)
    assert differences(one, other) == []
    assert [writer.target for writer in other.values()] == ["table tables/t", "table /u"]


def test_dead_letters_stay_with_the_sink_that_took_them() -> None:
    known = writers({"a": "one", "b": "two"}, letters=True)
    assert [one.letters for one in known.values()] == [f"{TOPIC}dead", ""]
    assert differences(known, writers({"b": "two", "a": "one"}, known, letters=True)) == []
    moved = writers({"b": "two"}, known, letters=True)
    assert differences(known, moved) == ["there is no [sinks.a]", "[sinks.b] now takes the dead letters"]
    tables = writers({"t": "/t"}, known, letters=True)
    assert tables[DEAD_WRITER] == SinkWriter(
        suffix="-dead-letters", target=f"topic {TOPIC}dead", letters=f"{TOPIC}dead"
    )
    assert "dead_letters is new" in differences(known, tables)


def test_a_refusal_says_the_way_out() -> None:
    known = writers({"a": "out", "b": "/b"})
    gone = writers({"a": "out"}, known)
    with pytest.raises(PipelineError) as refused:
        refuse(spec({"a": "out"}), 7, known, gone, {"a"}, change_sinks=False)
    assert refused.value.message == (
        f"p.toml: batch 7 is in [sinks.a] (topic {TOPIC}out), and not in [sinks.b] (table /b), and the file has changed since it"
        " was begun: there is no [sinks.b]. Nothing was done: put the sinks and dead_letters back as they were, mend what fails,"
        " and run until the batch is over (penstock pipeline run p.toml --once); then change the file. Where a sink can never get"
        " the batch, run once with --change-sinks: a sink that stays takes the batch for a repeat, and one that is gone lacks it"
    )
    refuse(spec({"a": "out"}), 7, known, gone, {"a"}, change_sinks=True)


def test_a_commit_that_has_dead_letters_is_not_repeated_without_them() -> None:
    known = writers({"a": "out"}, letters=True)
    without = writers({"a": "out"}, known)
    with pytest.raises(
        PipelineError,
        match=r"\[sinks.a\] no longer takes the dead letters\. .*--once\); then change the file$",
    ):
        refuse(spec({"a": "out"}), 7, known, without, {"a"}, change_sinks=True)


def test_a_foreign_sink_is_known_by_its_format_and_place() -> None:
    text = """
name = "p"
[sources.s]
format = "rate"
[sinks.a]
input = "s"
format = "jdbc"
options = { dbtable = "t", password = "secret" }
[sinks.f]
input = "s"
python = "m:f"
"""
    made = parse_spec(tomllib.loads(text), "p.toml", Path("/f"))
    known = plan_writers(made, {}, letters=False)
    assert [(one.target, one.at_once) for one in known.values()] == [
        ("format jdbc dbtable=t", True),
        ("python m:f", True),
    ]
    renamed = parse_spec(tomllib.loads(text.replace("sinks.a", "sinks.b")), "p.toml", Path("/f"))
    assert plan_writers(renamed, known, letters=False)["b"].suffix == known["a"].suffix
