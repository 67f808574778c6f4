"""The cluster, which has one broker (`brokers`), and the tenants."""

from typing import Any, Final

import msgspec

from penstock.engines.embedded.registry.namespaces import TenantInfo
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import check_entity
from penstock.protocols.http.answers import NO_CONTENT, Answer

from .call import Call
from .table import BUNDLE, Table

table = Table()

CLUSTER: Final = "standalone"  # Pulsar's name for what runs in one process
BUNDLES: Final = {"boundaries": BUNDLE.split("_"), "numBundles": 1}


def check_cluster(call: Call) -> None:
    """Raise NOT_FOUND unless the path names this cluster."""
    if call.path["cluster"] != CLUSTER:
        raise PenstockError(ErrorKind.NOT_FOUND, f"cluster {call.path['cluster'][:80]} does not exist")


@table.on("GET", "/admin/v2/clusters", answer=list[str], fixed=True)
async def clusters(call: Call) -> Answer:
    """List the clusters: there is one."""
    return Answer(body=[CLUSTER])


@table.on("GET", "/admin/v2/clusters/{cluster}")
async def cluster(call: Call) -> Answer:
    """Describe a cluster."""
    check_cluster(call)
    context = call.caller.context
    encrypted = {
        "serviceUrlTls": call.reached(context.https_url),
        "brokerServiceUrlTls": call.reached(context.pulsar_tls_url, context.pulsar_tls_advertised),
    }
    return Answer(
        body={
            "serviceUrl": call.reached(context.http_url) or f"http://{call.host}",
            "brokerServiceUrl": call.reached(context.pulsar_url, context.pulsar_advertised),
            **{name: url for name, url in encrypted.items() if url},  # an empty one is no address
        }
    )


@table.on("GET", "/admin/v2/clusters/{cluster}/peers", answer=list[str], fixed=True)
async def peers(call: Call) -> Answer:
    """List a cluster's peers: none."""
    check_cluster(call)
    return Answer(body=[])


@table.on(
    "GET",
    "/admin/v2/clusters/{cluster}/failureDomains",
    "/admin/v2/clusters/{cluster}/namespaceIsolationPolicies",
    fixed=True,
)
async def no_domains(call: Call) -> Answer:
    """List how brokers are kept apart: there is one."""
    check_cluster(call)
    return Answer(body={})


@table.on(
    "GET",
    "/admin/v2/clusters/{cluster}/namespaceIsolationPolicies/brokers",
    answer=list[dict[str, Any]],
    fixed=True,
)
async def isolated(call: Call) -> Answer:
    """List the brokers that namespaces are isolated on: none."""
    check_cluster(call)
    return Answer(body=[])


@table.on("GET", "/admin/v2/tenants", answer=list[str])
async def tenants(call: Call) -> Answer:
    """List the tenants."""
    call.caller.may_administer()
    return Answer(body=call.broker.namespaces.tenants)


@table.on("GET", "/admin/v2/tenants/{tenant}")
async def tenant(call: Call) -> Answer:
    """Describe a tenant."""
    call.caller.may_administer_tenant(call.path["tenant"])
    found = call.broker.namespaces.tenant(call.path["tenant"])
    return Answer(body={"adminRoles": found.admin_roles, "allowedClusters": [CLUSTER]})


class _Tenant(msgspec.Struct):
    """The part of Pulsar's TenantInfo that there is here."""

    adminRoles: set[str] = set()  # noqa: N815 - Pulsar's JSON


def _info(call: Call) -> TenantInfo:
    given = call.body_or_none(_Tenant)
    return TenantInfo(tuple(sorted(given.adminRoles)) if given is not None else ())


@table.on("PUT", "/admin/v2/tenants/{tenant}", body=dict[str, Any])
async def create_tenant(call: Call) -> Answer:
    """Create a tenant; its adminRoles may do everything in it."""
    call.caller.may_administer()
    name = check_entity("tenant", call.path["tenant"])
    await call.broker.namespaces.create_tenant(name, _info(call))
    return NO_CONTENT


@table.on("POST", "/admin/v2/tenants/{tenant}", body=dict[str, Any])
async def update_tenant(call: Call) -> Answer:
    """Say which roles administer a tenant."""
    call.caller.may_administer()
    await call.broker.namespaces.update_tenant(call.path["tenant"], _info(call))
    return NO_CONTENT


@table.on("DELETE", "/admin/v2/tenants/{tenant}", query=("force",))
async def delete_tenant(call: Call) -> Answer:
    """Delete a tenant; with `force` also its namespaces and their topics."""
    call.caller.may_administer()
    await call.broker.delete_tenant(call.path["tenant"], force=call.flag("force"))
    return NO_CONTENT
