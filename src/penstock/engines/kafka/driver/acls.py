"""Who may change topics, by the cluster's lists of access.

librdkafka 2.16 answers with an empty list where brokers refuse to show lists, or keep none. So brokers are asked first what
this server may do, and whether they have an authorizer.
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

# Each of them lets a principal decide what a topic says: by a record, or by making it again.
CHANGING: Final = frozenset(
    (
        AclOperation.ALL,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.ALTER_CONFIGS,
    )
)


class NoAuthorizer(PenstockError):
    """The cluster keeps no lists of access: every principal may do everything."""


async def writers(admin: KafkaAdmin, topics: Iterable[str]) -> dict[str, frozenset[str]]:
    """The principals (`User:name`, `User:*`) that lists allow to write, delete or alter each topic.

    Super users of the brokers are not in lists. Raises NoAuthorizer, FORBIDDEN if this server may not see lists, UNAVAILABLE.
    """
    bound = admin.bound
    cluster = await admin.answer(
        lambda: admin.client.describe_cluster(include_authorized_operations=True, **bound)
    )
    may = frozenset(cluster.authorized_operations or ())
    if AclOperation.DESCRIBE not in may:
        raise PenstockError(
            ErrorKind.FORBIDDEN, "the principal of this server has no authorization to Describe the cluster"
        )
    # Without an authorizer a principal may do everything, this as well.
    if AclOperation.DESCRIBE_CONFIGS in may and not await _has_authorizer(admin, cluster.nodes[0].id):
        raise NoAuthorizer(ErrorKind.NOT_SUPPORTED, "the cluster has no authorizer")
    return {topic: _changing(await _lists(admin, topic)) for topic in topics}


async def _has_authorizer(admin: KafkaAdmin, broker: int) -> bool:
    wanted = ConfigResource(ResourceType.BROKER, str(broker))
    found: dict[str, Any] = await admin.answer(
        lambda: admin.client.describe_configs([wanted], **admin.bound)[wanted], "a broker's configuration"
    )
    return AUTHORIZER not in found or bool(found[AUTHORIZER].value)


async def _lists(admin: KafkaAdmin, topic: str) -> list[AclBinding]:
    wanted = AclBindingFilter(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.MATCH,  # also prefixes, and *
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    found: list[AclBinding] = await admin.answer(
        lambda: admin.client.describe_acls(wanted, **admin.bound), "the cluster's lists of access"
    )
    return found


def _changing(lists: Iterable[AclBinding]) -> frozenset[str]:
    allowed: set[str] = set()
    denied: set[str] = set()
    for one in lists:
        if one.permission_type == AclPermissionType.ALLOW and one.operation in CHANGING:
            allowed.add(one.principal)
        elif (
            one.permission_type == AclPermissionType.DENY
            and one.operation == AclOperation.ALL
            and one.host == "*"
        ):
            denied.add(one.principal)
    return frozenset() if "User:*" in denied else frozenset(allowed - denied)
