"""Who may ask a cluster for what, beside all that Pulsar 4.0.8 declares."""

import re
from pathlib import Path
from typing import Final

import pytest

from penstock.protocols.admin.cluster_operations import OPERATIONS, Right, match_operation

DECLARED: Final = Path(__file__).parents[3] / "integration" / "pulsar_admin_operations.txt"
_NAME: Final = re.compile(r"{[\w-]+}")

# Of the paths that begin with a tenant, what Pulsar keeps for superusers; and changing a tenant, which it does not.
SUPERUSERS: Final = {
    "PUT /admin/v2/tenants/{}",
    "POST /admin/v2/tenants/{}",
    "DELETE /admin/v2/tenants/{}",
    "PUT /admin/v2/namespaces/{}/{}/unload",
    "PUT /admin/v2/namespaces/{}/{}/{}/unload",
    "PUT /admin/v2/namespaces/{}/{}/{}/split",
    "POST /admin/v2/namespaces/{}/{}/delayedDelivery",
    "DELETE /admin/v2/namespaces/{}/{}/delayedDelivery",
    "GET /admin/v2/namespaces/{}/{}/persistence/bookieAffinity",
    "POST /admin/v2/namespaces/{}/{}/persistence/bookieAffinity",
    "DELETE /admin/v2/namespaces/{}/{}/persistence/bookieAffinity",
    "POST /admin/v2/namespaces/{}/{}/migration",
    "GET /admin/v2/namespaces/{}/antiAffinity/{}",
    # Of several tenants, by their bodies.
    "POST /admin/v2/namespaces/grantPermissionsOnTopics",
    "POST /admin/v2/namespaces/revokePermissionsOnTopics",
}


def _plain(path: str) -> str:
    """A path without what its names are called, and in one domain."""
    return _NAME.sub("{}", path.replace("/{domain}/", "/persistent/").replace("non-persistent", "persistent"))


def test_the_table_has_all_that_is_not_the_superusers_and_nothing_else() -> None:
    lines = [line.split() for line in DECLARED.read_text().splitlines() if not line.startswith("#")]
    declared = {f"{method} {_plain(path)}" for method, path in lines}
    ours = {
        f"{method} {_plain(operation.path)}": right
        for operation in OPERATIONS.values()
        for method, right in operation.rights.items()
        if operation.path.startswith("/admin/v2/")  # what is declared in the file
    }
    assert set(ours) <= declared
    of_tenants = re.compile(r"\w+ /admin/v2/(persistent|namespaces|schemas|tenants)/.")
    allowed = {name for name, right in ours.items() if right is not Right.SUPER}
    assert {name for name in declared if of_tenants.match(name)} - allowed == SUPERUSERS


@pytest.mark.parametrize(
    ("method", "path", "right", "names"),
    [
        ("HEAD", "lookup/v2/topic/persistent/t/n/a+b%2Bc", Right.LOOK, {"topic": "a b+c"}),
        ("GET", "admin/v2/schemas/t/n/a%252Fb/schema", Right.LOOK, {"topic_of_schemas": "a/b"}),
        ("GET", "admin/v2/schemas/t/n/a%2Bb/schema", Right.LOOK, {"topic_of_schemas": "a b"}),
        ("DELETE", "admin/v2/persistent/t/n/x/subscription/a%252Bb", Right.TENANT, {"subscription": "a+b"}),
        ("POST", "admin/v2/namespaces/t/n/unsubscribe/a+b", Right.TENANT, {"granted": "a+b"}),
        ("GET", "admin/v2/namespaces/t/antiAffinity/retention", Right.SUPER, {"cluster": "t"}),
        ("DELETE", "admin/v2/namespaces/t/n/0x00000000_0xffffffff", Right.TENANT, {"namespace": "n"}),
        ("PATCH", "admin/v2/namespaces/t/n/retention", Right.SUPER, {"namespace": "n"}),
        ("GET", "admin/v2/namespaces/t/n/elsewhere", Right.SUPER, {}),
        ("GET", "admin/v3/persistent/t/n/x/stats", Right.SUPER, {}),
    ],
)
def test_what_a_request_is_about(method: str, path: str, right: Right, names: dict[str, str]) -> None:
    found = match_operation(method, path.split("/"))
    assert found.right is right
    assert names.items() <= found.names.items()
