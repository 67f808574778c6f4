"""Files that only their owner may read: keys, tokens, users, contexts."""

import os
import stat
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
    """Write a file that only its owner may read, whole or not at all; refuses one that is there unless `replace`.

    It has its mode from its first byte on, and appears under its name when it is complete. Only a regular file is
    replaced: a device, a pipe, a folder or a symbolic link (such as /dev/stdout) is refused before anything is written.
    """
    path = path.expanduser()
    _check_regular(path)
    name: Path | None = None
    try:
        handle, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # of mode 0600
        name = Path(made)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        name.chmod(mode)
        if replace:
            name.replace(path)
        else:
            path.hardlink_to(name)  # fails if there is one, also one that came a moment ago
    except FileExistsError:
        raise click.ClickException(f"{path} is there already, and may be in use") from None
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from None
    finally:
        if name is not None:
            name.unlink(missing_ok=True)


def _check_regular(path: Path) -> None:
    """Raise unless the path is free, or names a regular file itself."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        raise click.ClickException(f"{path} is not a regular file, and is not replaced")
