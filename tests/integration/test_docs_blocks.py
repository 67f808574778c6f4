"""What runs the pages notices what goes wrong in one."""

from pathlib import Path

import pytest
from tests.support.page_runs import PageRun, check
from tests.support.pages import ROOT, Block, blocks

from penstock.testing.server import Address


def run(folder: Path, language: str, text: str, **said: object) -> None:
    with PageRun(folder, Address("http://127.0.0.1:1", "pulsar://127.0.0.1:2")) as page:
        page.run(Block("page.md", 1, language, text, **said))  # type: ignore[arg-type]


def test_a_block_that_works_passes(tmp_path: Path) -> None:
    run(tmp_path, "sh", "echo http://127.0.0.1:8080", prints=["http://127.0.0.1:1"])
    run(tmp_path, "python", "print(number)", before="number = 3", prints=["3"])
    run(tmp_path, "console", "$ echo one\none\n$ echo two \\\n  three\ntwo\n  three\n")


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("sh", "false | true"),
        ("sh", "echo '{\"error_code\": 40401}'"),
        ("sh", 'echo \'{"error":"no"}\''),
        ("console", "$ echo one\ntwo"),
        ("toml", "[http]\nlisten = 3"),
        ("toml", 'name = "p"\n[sources.s]\ntopic = "t"'),
        ("java", "System.exit(1);"),
    ],
)
def test_one_that_does_not_fails(tmp_path: Path, language: str, text: str) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 (each by who reads it)
        run(tmp_path, language, text)


def test_what_is_not_printed_is_missed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="does not print tea"):
        run(tmp_path, "sh", "echo coffee", prints=["tea"])


def test_other_data_are_read() -> None:
    check(Block("page.md", 1, "json", '{"a": 1}\n\n{"b": 2}\n'))
    with pytest.raises(ValueError, match="Expecting"):
        check(Block("page.md", 1, "json", '{"a": }'))


@pytest.mark.parametrize("comment", ["not run", "skip it", "run by tests/nothing.py", "with a broker"])
def test_a_comment_that_means_nothing_is_refused(
    comment: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tests.support.pages.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n<!-- test: {comment} -->\n```sh\ntrue\n```\n")
    with pytest.raises(AssertionError):
        blocks(page)


def test_comments_belong_to_the_next_block_alone() -> None:
    found = blocks(ROOT / "docs" / "tutorials" / "request-reply.md")
    assert [block.language for block in found[:3]] == ["sh", "sh", "python"]
    assert [block.file for block in found if block.file] == ["replier.py"]


def test_rows_of_a_table_are_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tests.support.pages.ROOT", tmp_path)
    page = tmp_path / "page.md"
    table = "| | command | prints |\n| --- | --- | --- |\n| `one` | `echo a \\|\\| true` | `a` |\n"
    page.write_text(f"<!-- test: table -->\n{table}\n| other | `false` | `b` |\n")
    (found,) = blocks(page)
    assert (found.text, found.prints, found.line) == ("echo a || true", ["a"], 4)
