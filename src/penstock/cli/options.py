"""Options that many commands have: the server's address, credentials, and the output format."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import click

from . import output
from .spelling import nearest
from .typed import ParamType

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Decorated = Callable[..., Any]

URL_VARIABLE: Final = "PENSTOCK_URL"
TOKEN_VARIABLE: Final = "PENSTOCK_TOKEN"  # noqa: S105 - a variable's name


class Shared(click.Option):
    """An option that may stand before the subcommand, too: groups pass it on."""


class FormatType(ParamType[output.Format]):
    """`json`, `table` or `template=TEXT`."""

    name = "format"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> output.Format:
        if isinstance(value, output.Format):
            return value
        try:
            return output.Format.parse(str(value))
        except ValueError as error:
            kind = str(value).partition("=")[0]
            similar = "" if kind in output.FORMATS else nearest(kind, output.FORMATS)
            self.fail(f"{error}{similar}", param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return completions((*output.FORMATS[:-1], f"{output.FORMATS[-1]}="), incomplete)


class ContextName(ParamType[str]):
    """The name of a stored context."""

    name = "context"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from . import contexts  # here: what completes nothing need not know how to read them

        try:
            return completions(contexts.read().contexts, incomplete)
        except click.ClickException:
            return []


def completions(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """What a shell offers for the begin of a word."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell offer files."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def folders(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell offer folders."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]


def _choose(ctx: click.Context, param: click.Parameter, value: output.Format | None) -> None:
    if value is not None:
        ctx.meta[output.CHOSEN] = value


def _option(name: str, help: str, **more: Any) -> Callable[[Decorated], Decorated]:
    variable = f"PENSTOCK_{name.upper().replace('-', '_')}"
    return click.option(f"--{name}", cls=Shared, envvar=variable, help=f"{help} [env: {variable}]", **more)


output_option = click.option(
    "-o",
    "--output",
    cls=Shared,
    type=FormatType(),
    expose_value=False,
    callback=_choose,
    metavar="FORMAT",
    help="json, table or template='… {field} …' [a table on a terminal, JSON lines in a pipe].",
)
url_option = _option("url", "The server [http://127.0.0.1:8080].", metavar="URL")
context_option = _option("context", "A stored context: penstock context.", type=ContextName(), metavar="NAME")
token_option = _option("token", "A token for it.", metavar="TOKEN")
token_file_option = _option(
    "token-file", "A file with a token, read again for each request.", metavar="FILE", shell_complete=files
)
tls_options: Final = (
    _option(
        "tls-ca-file",
        "Certificates to trust instead of the system's (PEM).",
        metavar="FILE",
        shell_complete=files,
    ),
    _option("tls-cert-file", "Our own certificate (PEM).", metavar="FILE", shell_complete=files),
    _option(
        "tls-key-file", "Its key, where that is in another file (PEM).", metavar="FILE", shell_complete=files
    ),
)
_ALL: Final = (url_option, context_option, token_option, token_file_option, *tls_options, output_option)


def with_options(command: Decorated, options: Iterable[Callable[[Decorated], Decorated]]) -> Decorated:
    """Give a command some options, which its help shows in this order."""
    for option in reversed(tuple(options)):
        command = option(command)
    return command


def all_shared(*, hidden: bool) -> list[click.Parameter]:
    """Every shared option, for a group, which passes the text on; the subcommand reads the environment."""

    def of_group() -> None: ...

    found = click.command()(with_options(of_group, _ALL)).params
    for parameter in found:
        assert isinstance(parameter, Shared)
        parameter.envvar, parameter.expose_value, parameter.hidden = None, False, hidden
    return found
