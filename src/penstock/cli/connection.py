"""What every command that talks to a server shares: where it is, and how its answers are printed."""

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec

import click

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.names import TopicName

P = ParamSpec("P")


_VARIABLE: Final = "PENSTOCK_TOKEN"

# By option, the field of `Access` that it sets.
_ACCESS: Final = {
    "url": "url",
    "token": "token",
    "token_file": "token_file",
    "tls_ca_file": "ca_file",
    "tls_cert_file": "cert_file",
    "tls_key_file": "key_file",
}


def _file(name: str, help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    variable = f"PENSTOCK_{name.upper().replace('-', '_')}"
    return click.option(f"--{name}", envvar=variable, metavar="FILE", help=f"{help} [env: {variable}]")


def connected(run: Callable[Concatenate[HttpClient, P], Any]) -> Callable[P, Any]:
    """Give a command the options that say where the server is, and a client as its first argument."""

    @click.option(
        "--url",
        envvar="PENSTOCK_URL",
        default="http://127.0.0.1:8080",
        show_default=True,
        help="The server. [env: PENSTOCK_URL]",
    )
    @click.option("--token", envvar="PENSTOCK_TOKEN", help="A token for it. [env: PENSTOCK_TOKEN]")
    @_file("token-file", "A file with a token, read again for each request.")
    @_file("tls-ca-file", "Certificates to trust instead of the system's (PEM).")
    @_file("tls-cert-file", "Our own certificate (PEM).")
    @_file("tls-key-file", "Its key, where that is in another file (PEM).")
    @wraps(run)
    def command(*args: P.args, **options: P.kwargs) -> Any:
        given = {field: str(options.pop(option) or "") for option, field in _ACCESS.items()}
        with HttpClient(Access(**given)) as client:
            return run(client, *args, **options)

    return command


def by_reference(run: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the same options as an argument `server`: an `Access` that holds no token, only where it is.

    What runs on Spark travels in plans.
    """

    @click.option(
        "--url",
        envvar="PENSTOCK_URL",
        default="http://127.0.0.1:8080",
        show_default=True,
        help="The server. [env: PENSTOCK_URL]",
    )
    @_file("token-file", "A file with a token; without one, the token in PENSTOCK_TOKEN.")
    @_file("tls-ca-file", "Certificates to trust instead of the system's (PEM).")
    @_file("tls-cert-file", "Our own certificate (PEM).")
    @_file("tls-key-file", "Its key, where that is in another file (PEM).")
    @wraps(run)
    def command(*args: Any, **options: Any) -> Any:
        given = {
            field: str(options.pop(option) or "") for option, field in _ACCESS.items() if option != "token"
        }
        if not given["token_file"] and os.environ.get(_VARIABLE):
            given["token_env"] = _VARIABLE
        return run(*args, server=Access(**given), **options)

    return command


class TopicType(click.ParamType[TopicName]):
    """A topic by its full or short name."""

    name = "topic"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TopicName:
        return value if isinstance(value, TopicName) else TopicName.parse(str(value))


topic_argument = click.argument("topic", type=TopicType())
