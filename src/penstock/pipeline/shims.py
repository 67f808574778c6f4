"""Scripts in front of the programs that Spark starts; they are removed when this process ends."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path


def shim(name: str, commands: str) -> Path | None:
    """A shell script in its own folder, or None if no script runs there: the folder may be mounted noexec."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-java-"))  # mkdtemp lets no other user in
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script = folder / name
    script.parent.mkdir(exist_ok=True)
    script.write_text(f"#!/bin/sh\n# Written by penstock.\n{commands}", "utf-8")
    script.chmod(0o700)
    return script if os.access(script, os.X_OK) else None
