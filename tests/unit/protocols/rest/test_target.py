"""From paths to targets."""

import pytest

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.rest.endpoint import OPERATIONS
from penstock.protocols.rest.operations import Paths

locate = Paths(OPERATIONS).locate


@pytest.mark.parametrize(
    ("path", "operation", "topic", "shipped"),
    [
        ("a/b/c", "", "persistent://a/b/c", False),
        ("persistent/a/b/c", "", "persistent://a/b/c", True),
        ("non-persistent/a/b/c/partitions/3", "/partitions/{partition}", "non-persistent://a/b/c", True),
        ("a/b/c/partitions/0/messages", "/partitions/{partition}/messages", "persistent://a/b/c", False),
        ("a/b/c/partitions/0/offsets", "/partitions/{partition}/offsets", "persistent://a/b/c", False),
        ("a/b/c%2Fd%20e", "", "persistent://a/b/c/d e", False),
        ("a/b/c/subscription/s", "/subscription/{subscription}", "persistent://a/b/c", False),
        ("a/b/c/subscription/s/cursor", "/subscription/{subscription}/cursor", "persistent://a/b/c", False),
        (
            "a/b/c/subscription/s/consumers/x",
            "/subscription/{subscription}/consumers/{consumer_id}",
            "persistent://a/b/c",
            False,
        ),
        (
            "a/b/c/subscription/s/consumer/x/messages",
            "/subscription/{subscription}/consumer/{consumer_id}/messages",
            "persistent://a/b/c",
            False,
        ),
        ("a/b/c/request", "/request", "persistent://a/b/c", False),
    ],
)
def test_targets(path: str, operation: str, topic: str, shipped: bool) -> None:
    target = locate(f"/topics/{path}".encode())
    assert (target.operation, str(target.topic), target.shipped) == (operation, topic, shipped)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("a/b", ErrorKind.NOT_FOUND),
        ("persistent/a/b", ErrorKind.NOT_FOUND),
        ("a/b/c/d", ErrorKind.NOT_FOUND),
        ("a/b/c/", ErrorKind.NOT_FOUND),
        ("a/b/", ErrorKind.INVALID_NAME),
        ("a%00/b/c", ErrorKind.INVALID_NAME),
        ("a/b/%ff", ErrorKind.INVALID_NAME),
        ("a/b/c/partitions/-1", ErrorKind.PARTITION_NOT_FOUND),
        ("a/b/c/partitions/x/messages", ErrorKind.PARTITION_NOT_FOUND),
        ("a/b/c/partitions/99999999999", ErrorKind.PARTITION_NOT_FOUND),
        ("a/b/c/subscription/%20", ErrorKind.INVALID_NAME),
    ],
)
def test_what_names_nothing(path: str, kind: ErrorKind) -> None:
    with pytest.raises(PenstockError) as caught:
        locate(f"/topics/{path}".encode())
    assert caught.value.kind is kind
