"""Libraries that are preloaded into a server, so that its calls of the system do what a test wants."""

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

needs_preloading = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("gcc") is None,
    reason="faults are injected by a preloaded library, which needs Linux and gcc",
)


@cache
def library(name: str) -> Path:
    """The library of the source `name.c` beside this file; built once a run."""
    made = Path(mkdtemp(prefix="penstock-faults-")) / f"{name}.so"
    source = Path(__file__).with_name(f"{name}.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", made, source, "-ldl"], check=True)
    return made


def shifted_clock(seconds: int) -> dict[str, str]:
    """The environment of a process whose wall clock is so many seconds ahead."""
    return {"LD_PRELOAD": str(library("shifted_clock")), "CLOCK_SHIFT_S": str(seconds)}
