"""Named contexts: a server's address and credentials, in files of the user's folder that no other user may read.

`contexts.json` holds no token: one that is given as text gets its own file in the same folder, named by the context.
"""

import re
from pathlib import Path
from typing import Final

import click
import msgspec

from .spelling import nearest

_NAME: Final = re.compile(r"[A-Za-z0-9][-_.A-Za-z0-9]{0,63}")


class Context(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A server and credentials; the fields are those of `client.access.Access`, "" for none."""

    url: str
    token_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""


class Contexts(msgspec.Struct, forbid_unknown_fields=True):
    """The stored contexts by name, and the name of the current one ("" for none)."""

    current: str = ""
    contexts: dict[str, Context] = msgspec.field(default_factory=dict)

    def named(self, name: str) -> Context:
        """The context of this name; raises ClickException."""
        found = self.contexts.get(name)
        if found is None:
            similar = nearest(name, self.contexts)
            raise click.ClickException(f"there is no context {name!r} in {file()}.{similar}")
        return found


def folder() -> Path:
    """The user's folder for settings of programs, where ours are: ~/.config/penstock on Linux."""
    return Path(click.get_app_dir("penstock"))


def file() -> Path:
    return folder() / "contexts.json"


def read() -> Contexts:
    """The stored contexts, none without a file. Raises ClickException."""
    try:
        return msgspec.json.decode(file().read_bytes(), type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise click.ClickException(f"{file()} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{file()} holds no contexts: {error}") from None


def write(found: Contexts) -> None:
    """Store all of it, of mode 0600; raises ClickException."""
    _write_secret(file(), msgspec.json.format(msgspec.json.encode(found)) + b"\n")


def write_token(name: str, token: str) -> Path:
    """Store a context's token in a file of mode 0600; returns its path."""
    _write_secret(token_file(name), f"{token}\n".encode())
    return token_file(name)


def token_file(name: str) -> Path:
    """The path of the token of a context that was given as text."""
    return folder() / f"{name}.token"


def check_name(name: str) -> str:
    """A name that can be one of a file; raises UsageError."""
    if not _NAME.fullmatch(name):
        raise click.UsageError(f"{name!r} names no context: letters, digits and -_. only, 64 at most")
    return name


def _write_secret(path: Path, content: bytes) -> None:
    from .secret_files import write_secret  # here: readers need not wait for its imports

    try:
        folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"{folder()} cannot be made: {error.strerror}") from None
    write_secret(path, content, replace=True)
