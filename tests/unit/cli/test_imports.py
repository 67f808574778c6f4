"""`penstock --version` and `--help` load nothing that takes time: a tenth of a second in all, most of it Python and click."""

import subprocess
import sys

import pytest

LOADED = """
import sys
from penstock.cli import main
try:
    main([sys.argv[1]])
except SystemExit as end:
    assert end.code == 0
    unwanted = {"asyncio", "msgspec", "rich", "httpx", "google.protobuf", "starlette", "uvloop", "ssl", "sqlite3"}
    print("loaded:", *sorted(unwanted & set(sys.modules)))
"""


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_only_the_list_of_commands_is_loaded(option: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, option], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "loaded:"
