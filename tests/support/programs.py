"""Whole programs that pages print in Java, Go or Python, for tests to run them as a reader would."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.clients.users import HERE, JAVA, LIBRARIES, skip_unless_built

from .kafka_broker import HOME as KAFKA
from .pages import ROOT, Block, blocks, pages

# Two seconds with what our own program in Go left in the cache of builds; minutes without.
BUILD_S: Final = 500


def programs_of(test: str, needs: str = "") -> list[Block]:
    """The blocks that a file of tests has (its `__file__`), of those that need a cluster of this kind."""
    name = Path(test).relative_to(ROOT).as_posix()
    found = [block for page in pages() for block in blocks(page)]
    return [block for block in found if block.run_by == name and block.needs == needs]


def command_of(block: Block, folder: Path, printed: Mapping[str, str]) -> list[str]:
    """What runs the program of a block, which is written to `folder` with other texts for those that are `printed`.

    Skips the test where the tools of its language are missing; fails where it does not compile.
    """
    text = block.text
    for one, other in printed.items():
        assert one in text, f"{block.name} does not have {one}"
        text = text.replace(one, other)
    if block.language == "python":
        return [sys.executable, "-c", text]
    skip_unless_built(block.language)
    if block.language == "java":  # which compiles a single file itself, in memory
        source = folder / "Program.java"
        source.write_text(text)
        libraries = f"{KAFKA}/home/*" if block.needs == "kafka" else LIBRARIES
        return [*JAVA, "-cp", libraries, str(source)]
    assert block.language == "go", block.name
    source, program = folder / "main.go", folder / "program"
    source.write_text(text)
    # Where the module of our program in Go is: it names the client, which was fetched and compiled with it.
    built = subprocess.run(
        ["go", "build", "-o", str(program), str(source)],
        cwd=HERE / "go",
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"},
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    assert built.returncode == 0, f"{block.name}: {built.stderr}"
    return [str(program)]
