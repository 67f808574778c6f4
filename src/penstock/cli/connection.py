"""Which server a command asks, and as whom: its options, the environment, and the named contexts."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec

import click
import msgspec
from click.core import ParameterSource

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.errors import PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, NamespaceName, TopicName

from . import contexts
from .options import (
    TOKEN_VARIABLE,
    URL_VARIABLE,
    completions,
    context_option,
    output_option,
    tls_options,
    token_file_option,
    token_option,
    url_option,
    with_options,
)
from .typed import ParamType

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

P = ParamSpec("P")

COMPLETION_S: Final = 2.0  # the longest wait for a server at a completion
DEFAULT_URL: Final = "http://127.0.0.1:8080"

# By option, the field of `Access` that it sets.
_ACCESS: Final = {
    "url": "url",
    "token": "token",
    "token_file": "token_file",
    "tls_ca_file": "ca_file",
    "tls_cert_file": "cert_file",
    "tls_key_file": "key_file",
}
_TOKENS: Final = ("token", "token_file", "token_env")  # one of them holds the credentials

_CONNECTION: Final = (
    url_option,
    context_option,
    token_option,
    token_file_option,
    *tls_options,
    output_option,
)
_REFERENCE: Final = (url_option, context_option, token_file_option, *tls_options, output_option)


def connected(run: Callable[Concatenate[HttpClient, P], Any]) -> Callable[P, Any]:
    """Give a command the options of the connection and of the output, and a client as its first argument."""

    @wraps(run)
    def command(*args: P.args, **options: P.kwargs) -> Any:
        with HttpClient(_taken(options)) as client:
            return run(client, *args, **options)

    return with_options(command, _CONNECTION)


def by_reference(run: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the same options as an argument `server`: an `Access` that holds no token, only if it is.

    What runs on Spark travels in plans.
    """

    @wraps(run)
    def command(*args: Any, **options: Any) -> Any:
        return run(*args, server=_taken(options), **options)

    return with_options(command, _REFERENCE)


def _taken(options: dict[str, Any]) -> Access:
    """Takes the connection's options away from a command's, and says what they mean."""
    named: str | None = options.pop("context")
    given = {name: options.pop(name) for name in _ACCESS if name in options}
    return access(click.get_current_context(), given, named)


def access(ctx: click.Context, given: dict[str, Any], named: str | None) -> Access:
    """A command's options before the environment, and that before the context in use.

    A server's address and what lets one in belong together: a context is left out whole where another address is
    given, and the environment where `--context` names one or `--url` another address than its own. Raises UsageError, ClickException.
    """
    line, environment = (
        {
            _ACCESS[name]: value
            for name, value in given.items()
            if value and ctx.get_parameter_source(name) is source
        }
        for source in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    )
    if "token" not in given and "token_file" not in environment and os.environ.get(TOKEN_VARIABLE):
        environment["token_env"] = TOKEN_VARIABLE
    if named and ctx.get_parameter_source("context") is ParameterSource.COMMANDLINE:
        layers = [stored(named), line]
    elif "url" in line:
        own = os.environ.get(URL_VARIABLE) or line["url"]  # what the rest of the environment is for
        layers = [environment, line] if own.rstrip("/") == line["url"].rstrip("/") else [line]
    elif named and "url" in environment:
        raise click.UsageError("PENSTOCK_URL and PENSTOCK_CONTEXT are both set: which server is meant?", ctx)
    elif "url" in environment:
        layers = [environment, line]
    else:
        layers = [stored(named or contexts.read().current), environment, line]
    found = {"url": DEFAULT_URL}
    for layer in layers:
        if not layer.keys().isdisjoint(_TOKENS):
            found = {field: value for field, value in found.items() if field not in _TOKENS}
        found |= layer
    return Access(**found)


def stored(name: str) -> dict[str, str]:
    """The fields of a context that are set; none for ""."""
    if not name:
        return {}
    fields = msgspec.structs.asdict(contexts.read().named(name))
    return {field: value for field, value in fields.items() if value}


class TopicType(ParamType[TopicName]):
    """A topic by its full or short name."""

    name = "topic"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TopicName:
        return value if isinstance(value, TopicName) else TopicName.parse(str(value))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Topics of the namespace that the word names already; short names where it names none."""
        domain, separator, rest = incomplete.partition("://")
        parts = (rest if separator else incomplete).split("/")
        namespace = "/".join(parts[:2]) if len(parts) > 2 else str(DEFAULT_NAMESPACE)
        listed = answered(ctx, f"/admin/v2/{domain if separator else 'persistent'}/{namespace}")
        names = sorted({str(TopicName.parse(name).base) for name in listed})
        if not separator:  # as the word begins: tenant/namespace/topic, or topic
            names = [name.split("/", 2 if len(parts) > 2 else 4)[-1] for name in names]
        return completions(names, incomplete)


class NamespaceType(ParamType[NamespaceName]):
    """`tenant/namespace`."""

    name = "namespace"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> NamespaceName:
        return value if isinstance(value, NamespaceName) else NamespaceName.parse(str(value))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        tenant, separator, _ = incomplete.partition("/")
        if separator:
            return completions(answered(ctx, f"/admin/v2/namespaces/{tenant}"), incomplete)
        return completions([f"{name}/" for name in answered(ctx, "/admin/v2/tenants")], incomplete)


def answered(ctx: click.Context, path: str) -> list[str]:
    """What the server of a command that is being typed answers; nothing if it does not answer soon."""
    given = {name: ctx.params.get(name) for name in _ACCESS}
    try:
        with HttpClient(access(ctx, given, ctx.params.get("context")), timeout_s=COMPLETION_S) as client:
            return list(client.call("GET", path))
    except (PenstockError, click.ClickException):
        return []


topic_argument = click.argument("topic", type=TopicType())
namespace_argument = click.argument("namespace", type=NamespaceType())
