"""A group of commands: it takes the shared options before its subcommand too, and answers a misspelt one with the nearest."""

import importlib
from typing import Any

import click
from click.core import ParameterSource

from .options import Shared, all_shared
from .spelling import nearest


class Group(click.Group):
    """Hands shared options on, as if they had been written right after the subcommand's name.

    What is written later wins. A shared option that the subcommand does not have is wrong usage.
    """

    shows_shared = False  # in its help

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.params = [*all_shared(hidden=not self.shows_shared), *self.params]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)  # the parser empties it
        super().parse_args(ctx, args)
        rest = len(ctx._protected_args) + len(ctx.args)
        options = given[: len(given) - rest]
        ctx.args = [*(one for one in options if one != "--"), *ctx.args]
        return ctx.args

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        command = self.get_command(ctx, name)
        if command is None:
            if ctx.resilient_parsing:
                return None, None, args[1:]
            raise click.UsageError(f"No such command {name!r}.{nearest(name, self.list_commands(ctx))}", ctx)
        taken = {option.name for option in command.params if isinstance(option, Shared)}
        for option in self.params:
            given = ctx.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
            if given and option.name not in taken:
                raise click.UsageError(f"{ctx.command_path} {name} has no option {option.opts[-1]}", ctx)
        return name, command, args[1:]


class PolicyWords(Group):
    """A group that knows `set-retention` and its like, too, as pulsar-admin's `namespaces` and `topics` do."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        if found is None and cmd_name.startswith(("get-", "set-", "remove-")):
            policies = importlib.import_module("penstock.cli.policies")  # only for who needs them
            found = policies.by_word(cmd_name)
        return found
