"""The console's modules that need no browser, in Node."""

import subprocess
from pathlib import Path

SCRIPTS = Path(__file__).parents[1] / "js"


def test_the_console_s_modules() -> None:
    done = subprocess.run(
        ["node", "--test", "console.test.mjs"],
        cwd=SCRIPTS,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
