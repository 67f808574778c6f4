"""What every command that talks to a server shares: where it is, and how its answers are printed."""

import os
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec

import click

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.names import TopicName

P = ParamSpec("P")
Decorated = Callable[..., Any]

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


def _option(name: str, help: str, **more: Any) -> Callable[[Decorated], Decorated]:
    variable = f"PENSTOCK_{name.upper().replace('-', '_')}"
    return click.option(f"--{name}", envvar=variable, help=f"{help} [env: {variable}]", **more)


def _options(command: Decorated, *tokens: Callable[[Decorated], Decorated]) -> Decorated:
    """Give a command the options that say where the server is; `tokens` are those of the token."""
    for option in reversed(
        (
            _option("url", "The server.", default="http://127.0.0.1:8080", show_default=True),
            *tokens,
            _option("tls-ca-file", "Certificates to trust instead of the system's (PEM).", metavar="FILE"),
            _option("tls-cert-file", "Our own certificate (PEM).", metavar="FILE"),
            _option("tls-key-file", "Its key, where that is in another file (PEM).", metavar="FILE"),
        )
    ):
        command = option(command)
    return command


def _access(options: dict[str, Any], **more: str) -> Access:
    """Takes the options of `_options` away from a command's."""
    given = {field: str(options.pop(option, None) or "") for option, field in _ACCESS.items()}
    return Access(**(given | more))


def connected(run: Callable[Concatenate[HttpClient, P], Any]) -> Callable[P, Any]:
    """Give a command the options that say where the server is, and a client as its first argument."""

    @wraps(run)
    def command(*args: P.args, **options: P.kwargs) -> Any:
        with HttpClient(_access(options)) as client:
            return run(client, *args, **options)

    return _options(
        command,
        _option("token", "A token for it."),
        _option("token-file", "A file with a token, read again for each request.", metavar="FILE"),
    )


def by_reference(run: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the same options as an argument `server`: an `Access` that holds no token, only where it is.

    What runs on Spark travels in plans.
    """

    @wraps(run)
    def command(*args: Any, **options: Any) -> Any:
        by_env = not options["token_file"] and os.environ.get(_VARIABLE)
        server = _access(options, token_env=_VARIABLE if by_env else "")
        return run(*args, server=server, **options)

    without = f"A file with a token; without one, the token in {_VARIABLE}."
    return _options(command, _option("token-file", without, metavar="FILE"))


if TYPE_CHECKING:
    _TopicParameter = click.ParamType[TopicName]
else:
    _TopicParameter = click.ParamType  # generic since click 8.4


class TopicType(_TopicParameter):
    """A topic by its full or short name."""

    name = "topic"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TopicName:
        return value if isinstance(value, TopicName) else TopicName.parse(str(value))


topic_argument = click.argument("topic", type=TopicType())
