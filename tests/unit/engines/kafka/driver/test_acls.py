"""What lists of access say of a topic, and of a group."""

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from penstock.engines.kafka.driver.acls import CHANGING, JOINING, _allowed

ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
_ALL, _READ, _WRITE, _DELETE = AclOperation.ALL, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE


def _of(
    principal: str, operation: AclOperation, kind: AclPermissionType = ALLOW, host: str = "*"
) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, "x", ResourcePatternType.LITERAL, f"User:{principal}", host, operation, kind
    )


@pytest.mark.parametrize(
    ("lists", "principals"),
    [
        ([], set()),
        ([_of("a", _READ)], set()),
        ([_of("a", _WRITE), _of("b", _DELETE), _of("c", _ALL), _of("*", _WRITE)], {"a", "b", "c", "*"}),
        ([_of("a", _ALL), _of("a", _ALL, DENY)], set()),
        ([_of("a", _ALL), _of("a", _WRITE, DENY)], {"a"}),  # it may delete the topic, and make another one
        ([_of("a", _ALL), _of("a", _ALL, DENY, "10.0.0.1")], {"a"}),  # from elsewhere
        ([_of("a", _ALL), _of("*", _ALL, DENY)], set()),
    ],
)
def test_who_may_change_a_topic(lists: list[AclBinding], principals: set[str]) -> None:
    assert _allowed(lists, CHANGING) == {f"User:{one}" for one in principals}


@pytest.mark.parametrize(
    ("lists", "principals"),
    [
        ([_of("a", _READ), _of("b", _ALL), _of("c", _DELETE)], {"a", "b"}),
        ([_of("a", _READ), _of("a", _READ, DENY)], set()),
        ([_of("a", _READ), _of("a", _DELETE, DENY)], {"a"}),
    ],
)
def test_who_may_join_a_group(lists: list[AclBinding], principals: set[str]) -> None:
    assert _allowed(lists, JOINING) == {f"User:{one}" for one in principals}
