"""Files that hold secrets: read where they are, written for the owner alone."""

import os
import tempfile
from pathlib import Path

import click


def read_secret(path: Path) -> bytes:
    """A file's content."""
    try:
        return path.expanduser().read_bytes()
    except OSError as error:
        raise click.ClickException(f"{path} cannot be read: {error.strerror}") from None


def write_secret(path: Path, content: bytes, *, replace: bool = False, mode: int = 0o600) -> None:
    """Write a file that nobody else may read, whole or not at all; refuses one that is there unless `replace`."""
    path = path.expanduser()
    if path.exists() and not replace:
        raise click.ClickException(f"{path} is there already, and may be in use")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from None
