"""The code blocks of the documentation, with what comments before them say of their test.

A comment stands right before its block and is not shown to a reader. There may be several:

    <!-- test: not run, REASON -->            the block is only looked at; the reason is counted
    <!-- test: run by tests/…/test_it.py -->  that file has it
    <!-- test: with spark -->                 its page runs where there is a Spark session (or `kafka`, `pulsar`)
    <!-- test: file app.py -->                it is a file, written where the page's other blocks run; one of examples/
                                              is the same as there
    <!-- test: prints TEXT -->                this text is in what it prints
    <!-- test: before
    code of the block's language that makes what the block needs
    -->

Before a table, `<!-- test: table -->` makes a block of each row: the command in backquotes in the last cell but one prints what is
in those of the last.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

NEEDS = ("", "spark", "kafka", "pulsar")

_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)``` *$", re.MULTILINE | re.DOTALL
)
_TABLE = re.compile(r"^<!-- test: table -->\n(?P<rows>(?:\|[^\n]*\n)+)", re.MULTILINE)
_CELLS = re.compile(r" *(?<!\\)\| *")
_CODE = re.compile(r"`([^`]+)`")
_COMMENT = re.compile(r"<!-- test: (?P<said>.*?)-->", re.DOTALL)
_COMMENTS_BEFORE = re.compile(r"(?:<!--(?:(?!-->).)*-->\s*)*\Z", re.DOTALL)
_WORDS = ("not run", "run by", "with", "file", "prints", "before")


@dataclass
class Block:
    """One block of code, and what its comments say."""

    page: str  # the path below the project's root
    line: int
    language: str
    text: str
    skipped: str = ""  # why it is not run
    run_by: str = ""  # the test that has it
    needs: str = ""  # spark, kafka or pulsar
    file: str = ""
    prints: list[str] = field(default_factory=list)
    before: str = ""

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """README and every page of the documentation but the decisions, which are not edited afterwards."""
    found = [page for page in sorted(DOCS.rglob("*.md")) if page.parent.name != "decisions"]
    return [ROOT / "README.md", *found]


def blocks(page: Path) -> list[Block]:
    """All blocks of a page that name a language, in order."""
    text = page.read_text()
    found = []
    for match in _BLOCK.finditer(text):
        if match["language"]:
            before = text[: match.start()]
            lines = match["text"].splitlines(keepends=True)
            code = "".join(line.removeprefix(match["indent"]) for line in lines)
            place = (page.relative_to(ROOT).as_posix(), before.count("\n") + 1)
            found.append(_block(Block(*place, match["language"], code), before))
    for table in _TABLE.finditer(text):
        line = text[: table.start("rows")].count("\n") + 1
        for number, row in enumerate(table["rows"].splitlines()):
            command, printed = map(_CODE.fullmatch, _CELLS.split(row.strip("| "))[-2:])
            if command is not None and printed is not None:
                place = (page.relative_to(ROOT).as_posix(), line + number)
                found.append(Block(*place, "sh", command[1].replace("\\|", "|"), prints=[printed[1]]))
    return sorted(found, key=lambda block: block.line)


def _block(block: Block, before: str) -> Block:
    comments = _COMMENTS_BEFORE.search(before)
    for match in _COMMENT.finditer(comments[0] if comments else ""):
        said = match["said"].rstrip()
        word = next((word for word in _WORDS if said.startswith(word)), "")
        rest = said.removeprefix(word)
        match word:
            case "not run":
                block.skipped = rest.removeprefix(",").strip()
                assert block.skipped, f"{block.name}: say why it is not run"
            case "run by":
                block.run_by = rest.strip()
                assert (ROOT / block.run_by).is_file(), f"{block.name}: there is no {block.run_by}"
            case "with":
                block.needs = rest.strip()
                assert block.needs in NEEDS, f"{block.name}: there is no {block.needs}"
            case "file":
                example = ROOT / rest.strip()
                block.file = example.name
                if rest.strip().startswith("examples/"):
                    assert example.read_text() == block.text, f"{block.name} is not {rest.strip()}"
            case "prints":
                block.prints.append(rest.strip())
            case "before":
                block.before = rest.lstrip("\n")
            case _:
                raise AssertionError(f"{block.name}: what does the comment {said!r} mean?")
    return block
