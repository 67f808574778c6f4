"""The secret that the processes of one user on one machine share without any configuration.

It is in a file that only that user can read, in the state folder of systemd (`$STATE_DIRECTORY`) or of the user
(`$XDG_STATE_HOME/penstock`, else `~/.local/state/penstock`). The first process creates it.
"""

import contextlib
import logging
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from penstock.model.secret import Secret

from .config import Config

log = logging.getLogger(__name__)

FILE: Final = "fleet.secret"
_BYTES: Final = 32
_BYTES_MAX: Final = 4096  # of the file


def secret_before_cluster(config: Config) -> Secret | None:
    """The secret of this user's processes on this machine, if the server runs before a cluster and no secret is configured."""
    configured = config.fleet.secret or config.fleet.secret_file
    return local_secret() if config.engine.url and not configured else None


def local_secret() -> Secret:
    """The secret of this user's processes on this machine. If it cannot be kept or read, a new one of this process alone, and a log
    line with the reason."""
    try:
        file = secret_file()
        return _read(file) or _create(file)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: the user has no home
        log.warning(
            "this process shares no secret with others",
            extra={
                "reason": str(error),
                "follows": "other processes before the same cluster are not reached",
                "remedy": "set the same fleet.secret for all of them",
            },
        )
        return Secret(secrets.token_hex(_BYTES))


def secret_file() -> Path:
    """Its path. Raises RuntimeError if the user has no home."""
    systemd = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if systemd:
        return Path(systemd) / FILE
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if state else Path.home() / ".local" / "state") / "penstock" / FILE


def _read(file: Path) -> Secret | None:
    """None if there is no file. Raises ValueError if others could have read or written it, or if it is empty."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as opened:
        found = os.fstat(opened.fileno())
        if found.st_uid != os.geteuid():
            raise ValueError(f"{file} belongs to another user")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise ValueError(f"{file} can be read by other users: remove it, or chmod 600")
        text = opened.read(_BYTES_MAX).decode().strip()
    if not text:
        raise ValueError(f"{file} is empty: remove it")
    return Secret(text)


def _create(file: Path) -> Secret:
    """Create it whole, or return the one that another process has just created."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = Secret(secrets.token_hex(_BYTES))
    written = file.with_name(f"{FILE}.{secrets.token_hex(8)}")
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as opened:
            opened.write(made.reveal() + "\n")
        with contextlib.suppress(FileExistsError):
            os.link(written, file)  # unlike a rename, it replaces nothing
            return made
    finally:
        written.unlink()
    found = _read(file)
    if found is None:
        raise ValueError(f"{file} was removed by another program")
    return found
