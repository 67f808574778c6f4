"""`penstock users`: names and passwords for `auth.basic_file`. A running server sees the change."""

import sys
from pathlib import Path

import click

from penstock.protocols.auth.passwords import Hash, check_name, hash_password, read_users, write_users

from .output import done, rows
from .secret_files import read_secret, write_secret

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group("users")
def command() -> None:
    """Users with passwords (auth.basic_file)."""


@command.command("add")
@click.argument("file", type=_FILE)
@click.argument("name")
@click.option("--password-stdin", is_flag=True, help="Read the password from the standard input.")
def add(file: Path, name: str, password_stdin: bool) -> None:
    """Add a user, or give one a new password."""
    users = _users(file)
    if password_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    try:
        users[check_name(name)] = hash_password(password.encode())
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    write_secret(file, write_users(users), replace=True)
    done(f"{name} may come in.", user=name)


@command.command("remove")
@click.argument("file", type=_FILE)
@click.argument("name")
def remove(file: Path, name: str) -> None:
    """Remove a user."""
    users = _users(file)
    if users.pop(name, None) is None:
        raise click.ClickException(f"{file} has no user {name!r}")
    write_secret(file, write_users(users), replace=True)
    done(f"{name} is removed.", user=name)


@command.command("list")
@click.argument("file", type=_FILE)
def list_users(file: Path) -> None:
    """List the users."""
    rows(["name"], ({"name": name} for name in sorted(_users(file))), "There are no users.")


def _users(file: Path) -> dict[str, Hash]:
    if not file.expanduser().exists():
        return {}
    try:
        return read_users(read_secret(file))
    except ValueError as error:
        raise click.ClickException(f"{file} {error}") from None
