"""`penstock permissions …`: which roles may do what in a namespace or with a topic."""

import click

from penstock.client.http import HttpClient
from penstock.client.paths import quoted

from . import output
from .actions import sure, yes_option
from .connection import connected
from .groups import Group
from .spelling import Choice
from .targets import Target, target_argument


@click.group("permissions", cls=Group)
def permissions_command() -> None:
    """List, grant and revoke what roles may do.

    TARGET is a namespace, as public/default, or a topic, as orders or public/default/orders.
    """


@permissions_command.command("list")
@target_argument
@connected
def list_permissions(client: HttpClient, target: Target) -> None:
    """List what roles may do with TARGET; of a topic, those of its namespace are among them."""
    found = client.call("GET", f"{target.path}/permissions")
    rows = [{"role": role, "actions": actions} for role, actions in found.items()]
    output.rows(("role", "actions"), rows, f"{target.name} grants nothing")


@permissions_command.command()
@target_argument
@click.argument("role")
@click.argument("actions", nargs=-1, required=True, type=Choice("produce", "consume", "admin"))
@connected
def grant(client: HttpClient, target: Target, role: str, actions: tuple[str, ...]) -> None:
    """Let ROLE do ACTIONS with TARGET, and no others: produce, consume, admin."""
    client.call("POST", f"{target.path}/permissions/{quoted(role)}", body=actions)
    output.done(
        f"{role} may {', '.join(actions)} with {target.name}", target=target.name, role=role, actions=actions
    )


@permissions_command.command()
@target_argument
@click.argument("role")
@yes_option
@connected
def revoke(client: HttpClient, target: Target, role: str, yes: bool) -> None:
    """Let ROLE do nothing more with TARGET; connections that relied on it are closed."""
    sure(yes, f"take from {role} what it may do with {target.name}")
    client.call("DELETE", f"{target.path}/permissions/{quoted(role)}")
    output.done(f"{role} is granted nothing by {target.name}", target=target.name, role=role)
