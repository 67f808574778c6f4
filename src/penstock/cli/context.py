"""`penstock context …`: names for servers, so that commands need neither an address nor credentials."""

import sys
from pathlib import Path
from typing import Final

import click
import msgspec

from penstock.client.access import Access, without_password

from . import output
from .actions import sure, yes_option
from .connection import by_reference
from .contexts import (
    Context,
    check_name,
    file,
    read,
    token_file,
    write,
    write_token,
)
from .groups import Group
from .options import ContextName, files, output_option

_COLUMNS: Final = ("current", "name", "url", "token_file", "ca_file", "cert_file", "key_file")

_LETS_IN: Final = ("token_file", "ca_file", "cert_file", "key_file")  # what belongs to an address

STDIN: Final = "-"

_name = click.argument("name", type=ContextName())


@click.group("context", cls=Group)
def context_command() -> None:
    """Name servers, and choose which one is asked.

    Options and PENSTOCK_URL go before the context in use; --context NAME goes before the environment.
    """


@context_command.command("list")
@output_option
def list_contexts() -> None:
    """List the contexts."""
    found = read()
    rows = [
        {"current": name == found.current, "name": name, **_fields(context)}
        for name, context in found.contexts.items()
    ]
    output.rows(_COLUMNS, rows, f"there are no contexts in {file()}: penstock context set NAME --url URL")


@context_command.command()
@click.argument("name", type=ContextName(), required=False)
@by_reference
def show(name: str | None, server: Access) -> None:
    """Show the context NAME, or which server a command with these options asks now."""
    fields = _fields(read().named(name) if name is not None else server)
    output.record({field: value for field, value in fields.items() if value})


@context_command.command()
@_name
@output_option
def use(name: str) -> None:
    """Let commands ask the server of NAME from now on."""
    found = read()
    context = found.named(name)
    found.current = name
    write(found)
    url = without_password(context.url)
    output.done(f"commands ask {url} now ({name})", current=name, url=url)


@context_command.command("set")
@_name
@click.option("--url", metavar="URL", help="The server.")
@click.option("--token", metavar="TOKEN", help="A token for it; - reads it from stdin. It is kept in a file.")
@click.option(
    "--token-file",
    metavar="FILE",
    shell_complete=files,
    help="A file with a token, read again for each request.",
)
@click.option(
    "--tls-ca-file", "ca_file", metavar="FILE", shell_complete=files, help="Certificates to trust (PEM)."
)
@click.option(
    "--tls-cert-file", "cert_file", metavar="FILE", shell_complete=files, help="Our own certificate (PEM)."
)
@click.option("--tls-key-file", "key_file", metavar="FILE", shell_complete=files, help="Its key (PEM).")
@click.option("--use", "in_use", is_flag=True, help="Let commands ask it from now on.")
@output_option
def set_context(name: str, token: str | None, in_use: bool, **given: str | None) -> None:
    """Store a context, or change what the options name of it; "" takes a field away.

    The first one is in use from then on. A token is kept in its own file that only you may read (mode 0600).
    """
    check_name(name)
    if token is not None and given["token_file"] is not None:
        raise click.UsageError("--token and --token-file exclude one another")
    found = read()
    before = found.contexts.get(name)
    if before is None and not given["url"]:
        raise click.UsageError(f"{name} is new: --url says where its server is")
    fields = msgspec.structs.asdict(before or Context(url=""))
    chosen = {field: _kept(field, value) for field, value in given.items() if value is not None}
    address = Access(url=chosen.get("url", fields["url"])).url  # raises BAD_PARAMETER for an invalid address
    moved = address != fields["url"].rstrip("/")
    dropped = [field for field in _LETS_IN if moved and fields[field] and field not in chosen]
    fields |= dict.fromkeys(dropped, "") | chosen
    if token is not None:
        text = sys.stdin.readline().strip() if token == STDIN else token
        if token == STDIN and not text:
            raise click.UsageError("stdin holds no token")
        fields["token_file"] = str(write_token(name, text)) if text else ""
    found.contexts[name] = Context(**fields)
    if in_use or not found.current:
        found.current = name
    write(found)
    if fields["token_file"] != str(token_file(name)):
        token_file(name).unlink(missing_ok=True)
    if left_out := [field for field in dropped if not fields[field]]:
        output.say(f"left out, as given for another address: {', '.join(left_out)}")
    own = token is not None and fields["token_file"]
    kept = f"; its token is in {fields['token_file']}, which only you may read" if own else ""
    output.done(f"{name} is kept in {file()}{kept}", name=name, **_fields(found.contexts[name]))


@context_command.command()
@_name
@yes_option
@output_option
def delete(name: str, yes: bool) -> None:
    """Forget a context, and its token if that was given as text."""
    found = read()
    found.named(name)
    sure(yes, f"forget {name} and the token that is kept for it")
    del found.contexts[name]
    if found.current == name:
        found.current = ""
    write(found)
    token_file(name).unlink(missing_ok=True)
    output.done(f"forgot {name}", deleted=name)


def _kept(field: str, value: str) -> str:
    """Files by their whole path: a context is used in other folders."""
    return value if field == "url" or not value else str(Path(value).expanduser().absolute())


def _fields(context: Context | Access) -> dict[str, str | None]:
    """As they are shown."""
    fields = {field: value or None for field, value in msgspec.structs.asdict(context).items()}
    return fields | {"url": without_password(context.url)}
