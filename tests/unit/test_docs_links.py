"""Links between pages lead somewhere, to their headings too, and every page is in the site's navigation."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.pages import DOCS, ROOT

_FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def text_of(page: Path) -> str:
    """A page without its code, which may have what looks like links and headings."""
    return _FENCED.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """Of the headings, as the site and GitHub name them."""
    titles = _HEADING.findall(text_of(page))
    plain = (re.sub(r"\[(.*?)\]\(.*?\)", r"\1", title).lower() for title in titles)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip()) for title in plain}


def links(page: Path) -> Iterator[tuple[str, Path, str]]:
    """What a page links to: as it is written, the file, the anchor."""
    for target in _LINK.findall(re.sub(r"`[^`\n]*`", "", text_of(page))):
        if not re.match(r"[a-z+]+:", target):
            path, _, anchor = target.partition("#")
            yield target, (page.parent / path).resolve() if path else page, anchor


def in_nav(nav: list[dict[str, Any]]) -> Iterator[str]:
    for entry in nav:
        for place in entry.values():
            yield from in_nav(place) if isinstance(place, list) else [place]


def test_links_lead_somewhere() -> None:
    wrong = []
    for page in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]:
        for target, file, anchor in links(page):
            if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
                wrong.append(f"{page.relative_to(ROOT)}: {target}")
            elif page.is_relative_to(DOCS) and not file.is_relative_to(DOCS):
                wrong.append(f"{page.relative_to(ROOT)}: {target} is not in the site")
    assert not wrong, "\n".join(wrong)


def test_every_page_is_in_the_navigation() -> None:
    nav = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    decisions = {page for page in pages if page.startswith("decisions/0")}  # their index is there
    assert set(in_nav(nav)) == pages - decisions


def test_every_decision_is_in_their_index() -> None:
    index = (DOCS / "decisions" / "README.md").read_text()
    assert not [page.name for page in DOCS.glob("decisions/0*.md") if f"({page.name})" not in index]


def test_the_site_asks_no_other_host() -> None:
    project = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    assert project["theme"]["font"] is False  # else fonts come from a server of others
    assert "analytics" not in project["extra"]
    for script in project["extra"]["polyfills"]:
        assert (DOCS / script["path"]).is_file()
