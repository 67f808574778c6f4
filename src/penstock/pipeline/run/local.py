"""Where the files of a pipeline are on this machine whose state is in an object store."""

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from penstock.pipeline.errors import PipelineError


def here(home: str) -> Path:
    """Where the files of Spark are on this machine."""
    name = hashlib.sha256(home.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}" / name


def make_private(folder: Path) -> None:
    """A folder of this user's alone, where other users may make folders too."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        about = folder.lstat()
    except OSError as error:
        raise PipelineError(f"the folder {folder} cannot be used: {error.strerror}") from None
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise PipelineError(f"the folder {folder} is not this user's alone: remove it, or set TMPDIR")
