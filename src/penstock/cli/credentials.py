"""`penstock tokens`: make keys and tokens, and look whether a server would take one. `penstock users`: names and
passwords for `auth.basic_file`; a running server sees the change."""

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from penstock.model.errors import PenstockError
from penstock.protocols.auth.passwords import Hash, check_name, hash_password, read_users, write_users

from .groups import Group
from .options import output_option
from .output import done, record, rows
from .secret_files import read_secret, write_secret

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_FILE: Final = click.Path(path_type=Path, dir_okay=False)


@click.group("tokens", cls=Group)
def tokens_command() -> None:
    """Make keys and tokens, and check tokens."""


@tokens_command.command("create-secret-key")
@click.option("--output", "-o", type=_FILE, required=True, help="The file to write; it must not be there.")
def create_secret_key(output: Path) -> None:
    """Make a secret key, which both signs and verifies."""
    from penstock.protocols.auth.mint import new_secret_key

    write_secret(output, new_secret_key())
    click.echo(str(output))


@tokens_command.command("create-key-pair")
@click.option(
    "--output-private-key", "private", type=_FILE, required=True, help="Signs; keep it to yourself."
)
@click.option("--output-public-key", "public", type=_FILE, required=True, help="Verifies; the server's.")
@click.option(
    "--algorithm",
    "-a",
    type=click.Choice(("RS256", "ES256", "ES384", "ES512", "EdDSA")),
    default="RS256",
    show_default=True,
    help="What kind of keys.",
)
def create_key_pair(private: Path, public: Path, algorithm: str) -> None:
    """Make a private key that signs and a public key that verifies."""
    from penstock.protocols.auth.mint import new_key_pair

    path = public.expanduser()
    if path.exists() or path.is_symlink():  # else the private key would be left without it
        raise click.ClickException(f"{public} is there already, and may be in use")
    made = new_key_pair(algorithm)
    write_secret(private, made[0])
    write_secret(public, made[1], mode=0o644)
    click.echo(f"{private}\n{public}")


@tokens_command.command("create")
@click.option("--secret-key", type=_FILE, help="The file of a secret key.")
@click.option("--private-key", type=_FILE, help="The file of a private key (PEM or DER).")
@click.option("--subject", "-s", required=True, help="The role that the token stands for.")
@click.option(
    "--expires", "-e", metavar="TIME", help="How long it is valid: 30m, 12h, 90d; for ever without."
)
@click.option("--audience", metavar="TEXT", help="Whom it is for.")
@click.option("--claim", "claims", metavar="NAME=VALUE", multiple=True, help="A further claim.")
@click.option("--key-id", metavar="TEXT", default="", help="The key's id in a JWKS file.")
@click.option("--algorithm", "-a", metavar="NAME", default="", help="Another algorithm of the key's kind.")
@click.option(
    "--output", "-o", type=_FILE, help="Write it to a file that only you may read, instead of printing it."
)
@click.option("--force", is_flag=True, help="Replace the file of --output where there is one.")
def create(
    secret_key: Path | None,
    private_key: Path | None,
    subject: str,
    expires: str | None,
    audience: str | None,
    claims: tuple[str, ...],
    key_id: str,
    algorithm: str,
    output: Path | None,
    force: bool,
) -> None:
    """Make a token, and print it or write it to a file."""
    from penstock.protocols.auth.mint import private_signer, secret_signer

    payload: dict[str, Any] = {}
    for claim in claims:
        name, separator, value = claim.partition("=")
        if not separator or not name:
            raise click.UsageError(f"--claim {claim}: NAME=VALUE is expected")
        payload[name] = value
    payload |= {"sub": subject, "iat": int(time.time())}
    if audience:
        payload["aud"] = audience
    if expires is not None:
        payload["exp"] = payload["iat"] + _seconds(expires)
    path = _one(secret_key=secret_key, private_key=private_key)
    make = secret_signer if path is secret_key else private_signer
    token: str = _tried(lambda: make(read_secret(path), key_id).sign(payload, algorithm), path)
    if output is None:
        click.echo(token)
    else:
        write_secret(output, f"{token}\n".encode(), replace=force)
        click.echo(str(output))


@tokens_command.command("validate")
@click.argument("token", required=False)
@click.option("--secret-key", type=_FILE, help="The file of a secret key.")
@click.option("--public-key", type=_FILE, help="The file of a public key (PEM or DER).")
@click.option("--jwks", type=_FILE, help="A file of JSON web keys.")
@click.option("--role-claim", default="sub", show_default=True, help="The claim that names the role.")
@click.option("--audience", default="", help="Whom it must be for.")
@output_option
def validate(
    token: str | None,
    secret_key: Path | None,
    public_key: Path | None,
    jwks: Path | None,
    role_claim: str,
    audience: str,
) -> None:
    """Say whether a server with this key would take a token, and as which role; without TOKEN it is read from
    the standard input, which no list of processes shows."""
    from penstock.protocols.auth import keys
    from penstock.protocols.auth.tokens import Tokens

    path = _one(secret_key=secret_key, public_key=public_key, jwks=jwks)
    read = keys.secret_key if path is secret_key else keys.public_key if path is public_key else keys.jwks
    found = _tried(lambda: read(read_secret(path)), path)
    text = token if token is not None else sys.stdin.readline()
    verifier = Tokens(
        [found], lambda: int(time.time() * 1000), role_claim=role_claim, audience=audience, leeway_s=0
    )
    try:
        principal = verifier.verify(text.strip())
    except PenstockError as error:
        raise click.ClickException(error.message) from None
    record({"role": principal.role, "expires_timestamp": principal.expires_ms})


def _one(**given: Path | None) -> Path:
    """The one file that was named."""
    named = [path for path in given.values() if path is not None]
    if len(named) != 1:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise click.UsageError(f"name one of {options}")
    return named[0]


def _tried(make: Callable[[], Any], path: Path) -> Any:
    try:
        return make()
    except ValueError as error:
        raise click.ClickException(f"{path}: {error}") from None


def _seconds(text: str) -> int:
    found = re.fullmatch(r"([1-9][0-9]{0,8})([smhdwy])", text)
    if found is None:
        raise click.UsageError(f"--expires {text}: a number and s, m, h, d, w or y is expected")
    return int(found[1]) * _UNITS[found[2]]


@click.group("users", cls=Group)
def users_command() -> None:
    """Users with passwords (auth.basic_file)."""


@users_command.command("add")
@output_option
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


@users_command.command("remove")
@output_option
@click.argument("file", type=_FILE)
@click.argument("name")
def remove(file: Path, name: str) -> None:
    """Remove a user."""
    users = _users(file)
    if users.pop(name, None) is None:
        raise click.ClickException(f"{file} has no user {name!r}")
    write_secret(file, write_users(users), replace=True)
    done(f"{name} is removed.", user=name)


@users_command.command("list")
@output_option
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
