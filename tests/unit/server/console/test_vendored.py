"""Other people's files in the console are what is recorded of them, with their licences."""

import json
import re
from hashlib import sha256
from pathlib import Path

import penstock.server.console

STATIC = Path(penstock.server.console.__file__).parent / "static"
VENDOR = STATIC / "vendor"


def test_each_file_is_recorded_with_version_and_licence() -> None:
    recorded = json.loads((VENDOR / "VENDORED.json").read_text())
    files = {name: sha for each in recorded for name, sha in each["files"].items()}
    licences = {each["licence_file"] for each in recorded}
    assert {path.name for path in VENDOR.iterdir()} == {*files, *licences, "VENDORED.json"}
    for name, sha in files.items():
        assert sha256((VENDOR / name).read_bytes()).hexdigest() == sha, name
    for each in recorded:
        assert each["version"]
        assert each["licence"] in ("MIT", "Apache-2.0")
        assert len((VENDOR / each["licence_file"]).read_text()) > 500


def test_nothing_is_loaded_from_elsewhere() -> None:
    for path in STATIC.rglob("*"):
        if path.parent == VENDOR or path.suffix not in (".html", ".css", ".js"):
            continue
        text = path.read_text()
        assert not re.search(
            r"(src|href)=.(https?:)?//|@import|\burl\(.?(https?:)?//|(from|import\() ?.https?:", text
        ), path
        assert "innerHTML" not in text, path
        assert "eval(" not in text, path
