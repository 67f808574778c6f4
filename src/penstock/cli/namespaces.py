"""`penstock namespaces …` and `penstock tenants …`."""

from typing import Any, Final

import click

from penstock.client.http import HttpClient
from penstock.client.paths import namespace_path, quoted
from penstock.model.names import NamespaceName, check_entity

from . import output
from .actions import NAMESPACE, Action, Kind, add_actions, names, sure, yes_option
from .connection import connected, namespace_argument
from .groups import Group
from .properties import clear_option, remove_option, set_option
from .spelling import Choice

ACTIONS: Final = (
    Action("create", "PUT", "", "Create NAMESPACE.", "created {}"),
    Action(
        "delete",
        "DELETE",
        "",
        "Delete NAMESPACE.",
        "deleted {}",
        "delete the namespace {}",
        flags=(("--force", "force", "Also its topics, with what they hold."),),
    ),
    Action(
        "describe",
        "GET",
        "",
        "Show what NAMESPACE decides.",
    ),
    Action(
        "unload",
        "PUT",
        "/unload",
        "Disconnect the producers and consumers of every topic of NAMESPACE; they come back by themselves.",
        "unloaded {}",
    ),
)
TENANTS: Final = "/admin/v2/tenants"
CLUSTERS: Final = "/admin/v2/clusters"
TENANT: Final = Kind(
    (click.argument("tenant"),),
    lambda given: f"{TENANTS}/{check_entity('tenant', given['tenant'])}",
    lambda given: str(given["tenant"]),
)
TENANT_ACTIONS: Final = (
    Action(
        "describe",
        "GET",
        "",
        "Show TENANT: its clusters, and the roles that administer it.",
    ),
    Action(
        "delete",
        "DELETE",
        "",
        "Delete TENANT.",
        "deleted {}",
        "delete the tenant {}",
        flags=(("--force", "force", "Also its namespaces, with their topics."),),
    ),
)


@click.group("namespaces", cls=Group)
def namespaces_command() -> None:
    """List, create, describe and delete namespaces."""


@click.group("tenants", cls=Group)
def tenants_command() -> None:
    """List, create, describe and delete tenants."""


add_actions(namespaces_command, NAMESPACE, ACTIONS)
add_actions(tenants_command, TENANT, TENANT_ACTIONS)


@namespaces_command.command("list")
@click.argument("tenant", required=False)
@connected
def list_namespaces(client: HttpClient, tenant: str | None) -> None:
    """List the namespaces of TENANT, or of all tenants."""
    tenants = client.call("GET", TENANTS) if tenant is None else [check_entity("tenant", tenant)]
    found = [name for one in tenants for name in client.call("GET", f"/admin/v2/namespaces/{one}")]
    names(found, "there are no namespaces", "namespace")


@namespaces_command.command()
@namespace_argument
@click.option("--mode", type=Choice("PERSISTENT", "NON_PERSISTENT", "ALL"), default="ALL", show_default=True)
@connected
def topics(client: HttpClient, namespace: NamespaceName, mode: str) -> None:
    """List the topics of NAMESPACE, partitioned ones by their partitions."""
    found = client.call("GET", f"{namespace_path(namespace)}/topics", params={"mode": mode})
    names(found, f"{namespace} has no topics", "topic")


@namespaces_command.command("clear-backlog")
@namespace_argument
@click.option("--subscription", "-s", help="Only this one; all by default.")
@yes_option
@connected
def clear_backlog(client: HttpClient, namespace: NamespaceName, subscription: str | None, yes: bool) -> None:
    """Count the backlog of every topic of NAMESPACE as acknowledged."""
    who = subscription or "every subscription"
    sure(yes, f"skip the backlog of {who} in {namespace}")
    one = "" if subscription is None else f"/{quoted(subscription)}"
    client.call("POST", f"{namespace_path(namespace)}/clearBacklog{one}")
    output.done(
        f"skipped the backlog of {who} in {namespace}", namespace=str(namespace), subscription=subscription
    )


@namespaces_command.command()
@namespace_argument
@click.argument("subscription")
@yes_option
@connected
def unsubscribe(client: HttpClient, namespace: NamespaceName, subscription: str, yes: bool) -> None:
    """Delete SUBSCRIPTION of every topic of NAMESPACE."""
    sure(yes, f"delete {subscription} of every topic in {namespace}")
    client.call("POST", f"{namespace_path(namespace)}/unsubscribe/{quoted(subscription)}")
    output.done(f"deleted {subscription} in {namespace}", namespace=str(namespace), subscription=subscription)


@namespaces_command.command()
@namespace_argument
@set_option()
@remove_option
@clear_option
@yes_option
@connected
def properties(
    client: HttpClient,
    namespace: NamespaceName,
    given: dict[str, str],
    removed: tuple[str, ...],
    clear: bool,
    yes: bool,
) -> None:
    """Show the properties of NAMESPACE, or change them."""
    path = f"{namespace_path(namespace)}/properties"
    if clear:
        sure(yes, f"remove all properties of {namespace}")
        client.call("DELETE", path)
    for name in removed:
        client.fetch("DELETE", f"{namespace_path(namespace)}/property/{quoted(name)}")
    if given:
        client.call("PUT", path, body=given)
    found: dict[str, Any] = client.call("GET", path)
    output.record(found)


# -- tenants

_roles = click.option(
    "--admin-role", "-r", "roles", metavar="ROLE", multiple=True,
    help="May do everything in it; may be repeated.",
)  # fmt: skip


@tenants_command.command("list")
@connected
def list_tenants(client: HttpClient) -> None:
    """List the tenants, with the roles that administer them."""
    rows = [
        {"tenant": name, **client.call("GET", f"{TENANTS}/{name}")} for name in client.call("GET", TENANTS)
    ]
    output.rows(("tenant", "adminRoles", "allowedClusters"), rows, "there are no tenants")


@tenants_command.command("create")
@click.argument("tenant")
@_roles
@connected
def create_tenant(client: HttpClient, tenant: str, roles: tuple[str, ...]) -> None:
    """Create TENANT."""
    every = _put(client, "PUT", tenant, roles)
    output.done(f"created {tenant}", tenant=tenant, adminRoles=every)


@tenants_command.command("update")
@click.argument("tenant")
@_roles
@connected
def update_tenant(client: HttpClient, tenant: str, roles: tuple[str, ...]) -> None:
    """Say which roles administer TENANT, instead of those before."""
    every = _put(client, "POST", tenant, roles)
    output.done(f"{', '.join(every) or 'nobody'} administers {tenant}", tenant=tenant, adminRoles=every)


def _put(client: HttpClient, method: str, tenant: str, roles: tuple[str, ...]) -> list[str]:
    every = list(roles)
    path = f"{TENANTS}/{check_entity('tenant', tenant)}"
    # A Pulsar cluster requires the list of its clusters, and keeps no former one.
    clusters = (
        client.call("GET", path)["allowedClusters"] if method == "POST" else client.call("GET", CLUSTERS)
    )
    client.call(method, path, body={"adminRoles": every, "allowedClusters": clusters})
    return every
