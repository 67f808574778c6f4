"""Options NAME=VALUE that may be repeated: properties, and what sets them."""

from collections.abc import Callable, Sequence

import click

from .options import Decorated

Decorator = Callable[[Decorated], Decorated]


def pairs_option(*names: str, help: str) -> Decorator:
    """An option NAME=VALUE that may be repeated; the command gets a dictionary."""
    return click.option(*names, metavar="NAME=VALUE", multiple=True, callback=_pairs, help=help)


def set_option(help: str = "Set one; may be repeated.") -> Decorator:
    """`--set` of what changes properties, as `given`."""
    return pairs_option("--set", "given", help=help)


remove_option: Decorator = click.option(
    "--remove", "removed", metavar="NAME", multiple=True, help="Remove one; may be repeated."
)
clear_option: Decorator = click.option("--clear", is_flag=True, help="Remove them all.")


def _pairs(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    found = {}
    for pair in given:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise click.UsageError(f"{param.opts[0]} {pair}: NAME=VALUE is expected", ctx)
        found[name] = value
    return found
