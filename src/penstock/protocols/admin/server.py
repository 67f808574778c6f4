"""The server as an administrator sees it: one cluster of one broker, and its tenants."""

from typing import Any

import msgspec

from penstock.core.namespaces import TenantInfo
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import check_entity

from .answers import NO_CONTENT, Answer
from .call import Call
from .table import Table

table = Table()

CLUSTER = "standalone"  # Pulsar's name for what runs in one process


@table.on("GET", "/admin/v2/clusters", answer=list[str])
async def clusters(call: Call) -> Answer:
    """List the clusters: there is one."""
    return Answer(body=[CLUSTER])


@table.on("GET", "/admin/v2/clusters/{cluster}")
async def cluster(call: Call) -> Answer:
    """Describe a cluster."""
    if call.path["cluster"] != CLUSTER:
        raise PenstockError(ErrorKind.NOT_FOUND, f"cluster {call.path['cluster']} does not exist")
    gate = call.session.gate
    return Answer(
        body={
            "serviceUrl": call.reached(gate.http_url) or f"http://{call.host}",
            "serviceUrlTls": call.reached(gate.https_url),
            "brokerServiceUrl": call.reached(gate.pulsar_url, gate.pulsar_advertised),
            "brokerServiceUrlTls": call.reached(gate.pulsar_tls_url, gate.pulsar_tls_advertised),
        }
    )


@table.on("GET", "/admin/v2/brokers", "/admin/v2/brokers/{cluster}", answer=list[str])
async def brokers(call: Call) -> Answer:
    """List the brokers: this one."""
    return Answer(body=[call.host])


@table.on("GET", "/admin/v2/brokers/health", text=True)
async def health(call: Call) -> Answer:
    """Answer `ok`."""
    return Answer(raw=b"ok")


@table.on("GET", "/admin/v2/brokers/version", text=True)
async def version(call: Call) -> Answer:
    """Answer Penstock's version."""
    from penstock import __version__

    return Answer(raw=f"penstock-{__version__}".encode())


@table.on("GET", "/admin/v2/tenants", answer=list[str])
async def tenants(call: Call) -> Answer:
    """List the tenants."""
    call.session.may_administer()
    return Answer(body=call.broker.namespaces.tenants)


@table.on("GET", "/admin/v2/tenants/{tenant}")
async def tenant(call: Call) -> Answer:
    """Describe a tenant."""
    call.session.may_administer_tenant(call.path["tenant"])
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
    call.session.may_administer()
    name = check_entity("tenant", call.path["tenant"])
    await call.broker.namespaces.create_tenant(name, _info(call))
    return NO_CONTENT


@table.on("POST", "/admin/v2/tenants/{tenant}", body=dict[str, Any])
async def update_tenant(call: Call) -> Answer:
    """Say which roles administer a tenant."""
    call.session.may_administer()
    await call.broker.namespaces.update_tenant(call.path["tenant"], _info(call))
    return NO_CONTENT


@table.on("DELETE", "/admin/v2/tenants/{tenant}")
async def delete_tenant(call: Call) -> Answer:
    """Delete a tenant without namespaces."""
    call.session.may_administer()
    await call.broker.namespaces.delete_tenant(call.path["tenant"])
    return NO_CONTENT
