"""Which principals may change topics, and join groups, by the cluster's ACLs.

librdkafka 2.16 returns an empty list if brokers refuse to show ACLs, or have no authorizer. So brokers are asked first which
operations this server may use, and whether they have an authorizer.
"""

from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from penstock.model.errors import ErrorKind, PenstockError

from .admin import KafkaAdmin

AUTHORIZER: Final = "authorizer.class.name"  # of brokers; empty: every principal may do everything

# Each of them lets a principal change a topic's records: by writing, or by recreating the topic.
CHANGING: Final = frozenset(
    (
        AclOperation.ALL,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.ALTER_CONFIGS,
    )
)
JOINING: Final = frozenset((AclOperation.ALL, AclOperation.READ))  # let a principal be a member of a group


class NoAuthorizer(PenstockError):
    """The cluster has no ACLs: every principal may do everything."""


async def writers(admin: KafkaAdmin, topics: Iterable[str]) -> dict[str, frozenset[str]]:
    """The principals (`User:name`, `User:*`) that ACLs allow to write, delete or alter each topic.

    The brokers' super users are in no ACL. Raises NoAuthorizer, FORBIDDEN if this server may not see ACLs, UNAVAILABLE.
    """
    bound = admin.bound
    # Callers ask `admin.check_reachable` before: librdkafka aborts the process if no broker is registered.
    cluster = await admin.answer(
        lambda: admin.client.describe_cluster(include_authorized_operations=True, **bound)
    )
    may = frozenset(cluster.authorized_operations or ())
    if AclOperation.DESCRIBE not in may:
        raise PenstockError(
            ErrorKind.FORBIDDEN, "the principal of this server has no authorization to Describe the cluster"
        )
    # Without an authorizer a principal may do everything, DESCRIBE_CONFIGS included.
    if AclOperation.DESCRIBE_CONFIGS in may and not await _has_authorizer(admin, cluster.nodes[0].id):
        raise NoAuthorizer(ErrorKind.NOT_SUPPORTED, "the cluster has no authorizer")
    return {topic: _allowed(await _lists(admin, ResourceType.TOPIC, topic), CHANGING) for topic in topics}


async def joiners(admin: KafkaAdmin, group: str) -> frozenset[str]:
    """The principals that ACLs allow to join a consumer group, once `writers` has returned."""
    return _allowed(await _lists(admin, ResourceType.GROUP, group), JOINING)


async def _has_authorizer(admin: KafkaAdmin, broker: int) -> bool:
    wanted = ConfigResource(ResourceType.BROKER, str(broker))
    found: dict[str, Any] = await admin.answer(
        lambda: admin.client.describe_configs([wanted], **admin.bound)[wanted], "a broker's configuration"
    )
    return AUTHORIZER not in found or bool(found[AUTHORIZER].value)


async def _lists(admin: KafkaAdmin, kind: ResourceType, name: str) -> list[AclBinding]:
    wanted = AclBindingFilter(
        kind,
        name,
        ResourcePatternType.MATCH,  # also prefixes, and *
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    found: list[AclBinding] = await admin.answer(
        lambda: admin.client.describe_acls(wanted, **admin.bound), "the cluster's ACLs"
    )
    return found


def _allowed(lists: Iterable[AclBinding], operations: frozenset[AclOperation]) -> frozenset[str]:
    """The principals that may use one of these operations, which contain `ALL`."""
    allowed: set[str] = set()
    denied: set[str] = set()
    for one in lists:
        if one.permission_type == AclPermissionType.ALLOW and one.operation in operations:
            allowed.add(one.principal)
        elif (
            one.permission_type == AclPermissionType.DENY
            and one.host == "*"
            and (one.operation == AclOperation.ALL or operations == {AclOperation.ALL, one.operation})
        ):
            denied.add(one.principal)
    return frozenset() if "User:*" in denied else frozenset(allowed - denied)
