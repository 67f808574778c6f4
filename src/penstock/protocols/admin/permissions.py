"""Permissions of roles in a namespace or on a topic, under Pulsar's paths.

What the server's configuration grants is not shown here, as it cannot be changed here.
"""

from collections.abc import Mapping

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import NamespacePolicies
from penstock.protocols.auth.permissions import check_actions
from penstock.protocols.auth.principal import ROLE_CHARACTERS_MAX

from .call import Call
from .operations import NAMESPACE, TOPIC, Table

table = Table()

Granted = dict[str, tuple[str, ...]]

ROLES_MAX = 1000  # of one namespace or topic: they are one document
TOPICS_MAX = 1000  # of one namespace with separate permissions


def _role(call: Call) -> str:
    role = call.path["role"]
    if not role.strip() or len(role) > ROLE_CHARACTERS_MAX or not role.isprintable():
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"{role[:80]!r} is no role")
    return role


def _with(granted: Mapping[str, tuple[str, ...]], role: str, actions: tuple[str, ...]) -> Granted:
    """The permissions with those of one role replaced; a role without any is not kept."""
    left = {name: kept for name, kept in granted.items() if name != role}
    if actions:
        left[role] = actions
    if len(left) > ROLES_MAX:
        raise PenstockError(ErrorKind.TOO_MANY_REQUESTS, f"permissions of more than {ROLES_MAX} roles")
    return left


# -- a namespace's


@table.on("GET", f"{NAMESPACE}/permissions")
async def of_namespace(call: Call) -> Granted:
    """The actions that roles may do in a namespace."""
    return call.broker.namespaces.policies(call.namespace).permissions


@table.on("POST", f"{NAMESPACE}/permissions/{{role}}", body=list[str])
async def grant_in_namespace(call: Call) -> None:
    """Let a role do these actions in a namespace, and no others; `produce`, `consume`, `admin`."""
    await _set_in_namespace(call, check_actions(call.body(list[str])))


@table.on("DELETE", f"{NAMESPACE}/permissions/{{role}}")
async def revoke_in_namespace(call: Call) -> None:
    """Let a role do nothing more in a namespace; connections that relied on it are closed."""
    await _set_in_namespace(call, ())


async def _set_in_namespace(call: Call, actions: tuple[str, ...]) -> None:
    role = _role(call)

    def changed(found: NamespacePolicies) -> NamespacePolicies:
        return msgspec.structs.replace(found, permissions=_with(found.permissions, role, actions))

    await call.broker.namespaces.change(call.namespace, changed)


# -- a topic's


@table.on("GET", f"{TOPIC}/permissions")
async def of_topic(call: Call) -> Granted:
    """The actions that roles may do with a topic, by its own permissions and its namespace's."""
    name = call.topic.base
    policies = call.broker.namespaces.policies(name.namespace_name)
    own = policies.topic_permissions.get(str(name), {})
    roles = {**policies.permissions, **own}
    return {role: check_actions((*policies.permissions.get(role, ()), *own.get(role, ()))) for role in roles}


@table.on("POST", f"{TOPIC}/permissions/{{role}}", body=list[str])
async def grant_on_topic(call: Call) -> None:
    """Grant a role these actions on a topic, in addition to those in the namespace."""
    name = call.topic.base
    await _set_on_topic(call, name, check_actions(call.body(list[str])))


@table.on("DELETE", f"{TOPIC}/permissions/{{role}}")
async def revoke_on_topic(call: Call) -> None:
    """Revoke the permissions of a role on a topic; 412 if the topic grants it nothing. Those of the namespace stay."""
    name = call.topic.base
    policies = call.broker.namespaces.policies(name.namespace_name)
    if _role(call) not in policies.topic_permissions.get(str(name), {}):
        raise PenstockError(ErrorKind.NOT_GRANTED, "Permissions are not set at the topic level")
    await _set_on_topic(call, name, ())


async def _set_on_topic(call: Call, name: TopicName, actions: tuple[str, ...]) -> None:
    role = _role(call)

    def changed(found: NamespacePolicies) -> NamespacePolicies:
        topics = {topic: by for topic, by in found.topic_permissions.items() if topic != str(name)}
        by_role = _with(found.topic_permissions.get(str(name), {}), role, actions)
        if by_role:
            topics[str(name)] = by_role
        if len(topics) > TOPICS_MAX:
            raise PenstockError(
                ErrorKind.TOO_MANY_REQUESTS, f"more than {TOPICS_MAX} topics with permissions of their own"
            )
        return msgspec.structs.replace(found, topic_permissions=topics)

    await call.broker.namespaces.change(name.namespace_name, changed)
