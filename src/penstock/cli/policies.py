"""`penstock policies list|get|set|remove`: what a namespace or a topic decides, policy by policy (`policy_table`)."""

from collections.abc import Callable
from typing import Any

import click

from penstock.client.http import HttpClient

from . import output
from .connection import connected
from .groups import Group
from .options import with_options
from .policy_table import POLICIES, QUOTA_ACTIONS, QUOTA_TYPES, Policy, paths
from .quantities import DURATION, SIZE
from .spelling import Choice
from .targets import Target, target_argument

_applied = click.option("--applied", is_flag=True, help="Of a topic: what holds, whoever decided it.")
_quota_type = click.option(
    "--type", "-t", "kind", type=Choice(*QUOTA_TYPES), default=QUOTA_TYPES[0], show_default=True
)


@click.group("policies", cls=Group)
def policies_command() -> None:
    """Show and decide what holds for a namespace or a topic.

    TARGET is a namespace, as public/default, or a topic, as orders or public/default/orders. A topic's policy goes
    before its namespace's, and that before the server's configuration.
    """


@policies_command.group("get", cls=Group)
def get_policy() -> None:
    """Show one policy of TARGET."""


@policies_command.group("set", cls=Group)
def set_policy() -> None:
    """Decide one policy of TARGET."""


@policies_command.group("remove", cls=Group)
def remove_policy() -> None:
    """Remove one policy of TARGET: the level above it applies."""


@policies_command.command("list")
@target_argument
@_applied
@connected
def list_policies(client: HttpClient, target: Target, applied: bool) -> None:
    """List every policy of TARGET; one that it does not decide has no value."""
    found = {**paths(POLICIES, target.topic), "backlog-quota": "backlogQuotaMap"}
    rows = (
        {"policy": name, "value": client.call("GET", f"{target.path}/{path}", params=_query(target, applied))}
        for name, path in sorted(found.items())
    )
    output.rows(("policy", "value"), rows, "")


def _query(target: Target, applied: bool) -> dict[str, str]:
    """Raises UsageError if the effective value of a namespace is asked for."""
    if applied and not target.topic:
        raise click.UsageError("--applied is for topics: a namespace shows what it decides")
    return {"applied": "true"} if applied else {}


def _path(policy: Policy, target: Target) -> str:
    """The policy's path below the target; raises UsageError if it has none."""
    segment = policy.topic if target.topic else policy.namespace
    if not segment:
        of = "a namespace" if target.topic else "a topic"
        raise click.UsageError(f"{policy.name} is a policy of {of}, and {target.name} is none")
    return f"{target.path}/{segment}"


def _add(policy: Policy) -> None:
    """Give the three groups a command for a policy."""

    def get(client: HttpClient, target: Target, applied: bool) -> None:
        value = client.call("GET", _path(policy, target), params=_query(target, applied))
        output.record({"policy": policy.name, "value": value})

    def put(client: HttpClient, target: Target, **given: Any) -> None:
        body = policy.body(given)
        client.call("POST" if target.topic else policy.method, _path(policy, target), body=body)
        output.done(
            f"decided {policy.name} of {target.name}", target=target.name, policy=policy.name, value=body
        )

    def remove(client: HttpClient, target: Target) -> None:
        client.call("DELETE", _path(policy, target))
        output.done(
            f"{target.name} leaves {policy.name} to what is above", target=target.name, removed=policy.name
        )

    value = (click.argument("value", type=policy.type),)
    _register(policy, get_policy, f"Say {policy.help}.", get, target_argument, _applied)
    _register(policy, set_policy, f"Decide {policy.help}.", put, target_argument, *(policy.options or value))
    if policy.removable:
        _register(policy, remove_policy, f"Do not decide {policy.help}.", remove, target_argument)


def _register(
    policy: Policy, group: click.Group, help: str, run: Callable[..., Any], *options: Callable[..., Any]
) -> None:
    group.add_command(click.command(policy.name, help=help)(with_options(connected(run), options)))


for _policy in POLICIES:
    _add(_policy)


@get_policy.command("backlog-quota", help="Say how large and how old a backlog may be.")
@target_argument
@_applied
@connected
def get_quota(client: HttpClient, target: Target, applied: bool) -> None:
    found = client.call("GET", f"{target.path}/backlogQuotaMap", params=_query(target, applied))
    output.record({"policy": "backlog-quota", "value": found})


@set_policy.command("backlog-quota")
@target_argument
@_quota_type
@click.option("--limit-size", "size", type=SIZE, help="10G; of the type destination_storage.")
@click.option("--limit-time", "age", type=DURATION, help="3d; of the type message_age.")
@click.option(
    "--policy", "-p", "action", type=Choice(*QUOTA_ACTIONS), required=True, help="What happens beyond it."
)
@connected
def set_quota(
    client: HttpClient, target: Target, kind: str, size: int | None, age: int | None, action: str
) -> None:
    """Decide how large or how old a backlog may be, and what happens then."""
    by_size = kind == QUOTA_TYPES[0]
    if (size is None) == by_size or (age is None) != by_size:
        raise click.UsageError(
            "--type destination_storage takes --limit-size; --type message_age takes --limit-time"
        )
    body = {"policy": action, "limitSize": size} if by_size else {"policy": action, "limitTime": age}
    client.call("POST", f"{target.path}/backlogQuota", params={"backlogQuotaType": kind}, body=body)
    output.done(
        f"decided backlog-quota of {target.name}", target=target.name, policy="backlog-quota", value=body
    )


@remove_policy.command("backlog-quota")
@target_argument
@_quota_type
@connected
def remove_quota(client: HttpClient, target: Target, kind: str) -> None:
    """Remove a backlog quota: the level above applies."""
    client.call("DELETE", f"{target.path}/backlogQuota", params={"backlogQuotaType": kind})
    output.done(
        f"{target.name} leaves backlog-quota to what is above", target=target.name, removed="backlog-quota"
    )


@remove_policy.command("all")
@target_argument
@connected
def remove_all(client: HttpClient, target: Target) -> None:
    """Leave every policy of a topic to its namespace."""
    if not target.topic:
        raise click.UsageError(f"all is for topics, and {target.name} is a namespace")
    client.call("DELETE", f"{target.path}/policies")
    output.done(f"{target.name} leaves every policy to its namespace", target=target.name, removed="all")
