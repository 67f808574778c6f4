"""Who may change a topic, by the access control lists of the cluster."""

from typing import Final

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from .admin import KafkaAdmin

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


async def writers(admin: KafkaAdmin, topic: str) -> frozenset[str]:
    """The principals (`User:name`, `User:*`) that lists allow to write, delete or alter a topic.

    Super users of the brokers are not in lists. Raises NoAuthorizer, FORBIDDEN if this server may not see lists, UNAVAILABLE.
    """
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
    allowed = {
        one.principal
        for one in found
        if one.permission_type == AclPermissionType.ALLOW and one.operation in CHANGING
    }
    denied = {
        one.principal
        for one in found
        if one.permission_type == AclPermissionType.DENY
        and one.operation == AclOperation.ALL
        and one.host == "*"
    }
    return frozenset(() if "User:*" in denied else allowed - denied)
