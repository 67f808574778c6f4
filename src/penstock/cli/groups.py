"""A group of commands: it takes the shared options before its subcommand too, and answers a misspelt one with the nearest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from .options import Shared, all_shared
from .spelling import nearest

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_LINE = 200  # characters of a help in the list that a shell shows, which cuts it to its terminal


class Group(click.Group):
    """Hands shared options on, as if they had been written right after the subcommand's name.

    The later one wins. A shared option that the subcommand does not have is wrong usage.
    """

    shows_shared = False  # in its help

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.params = [*all_shared(hidden=not self.shows_shared), *self.params]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The subcommands and the options that begin so."""
        from click.shell_completion import CompletionItem

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        found = [CompletionItem(name, help=self.line_of(ctx, name)) for name in names]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def line_of(self, ctx: click.Context, name: str) -> str:
        """What a subcommand does, in one line."""
        command = self.get_command(ctx, name)
        return command.get_short_help_str(_LINE) if command is not None else ""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_given(ctx)] = list(args)  # the parser empties it
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        given: list[str] = ctx.meta[_given(ctx)]
        options = [word for word in given[: len(given) - len(args)] if word != "--"]
        name, more = args[0], [*options, *args[1:]]
        command = self.get_command(ctx, name)
        if command is None:
            if ctx.resilient_parsing:
                return None, None, more
            raise click.UsageError(f"No such command {name!r}.{nearest(name, self.list_commands(ctx))}", ctx)
        taken = {option.name for option in command.params if isinstance(option, Shared)}
        for option in self.params:
            source = ctx.get_parameter_source(option.name or "")
            if source is ParameterSource.COMMANDLINE and option.name not in taken:
                raise click.UsageError(f"{ctx.command_path} {name} has no option {option.opts[-1]}", ctx)
        return name, command, more


def _given(ctx: click.Context) -> str:
    """The key of the arguments of a group."""
    return f"{__name__} {ctx.command_path}"
