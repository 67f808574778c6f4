"""Everything of the admin API from the command line: each declared operation is asked for by some command.

The commands run in this process, against a server; what they send is noted and looked up in the server's own table.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.cli_policy_stories import (
    completions,
    permissions,
    policies,
    schemas,
    server,
)
from tests.integration.cli_stories import messages_by_place, namespaces_and_tenants, subscriptions, topics
from tests.support.cli import Commands

from penstock.protocols.admin.operations import AdminOperation
from penstock.protocols.admin.routes import OPERATIONS
from penstock.testing.server import running

# Operations that have no command, with the reason.
OTHER_WORDS = {
    "{bundle}": "a namespace is one bundle: the commands of the namespace do the same",
    "/property/{key}/{value}": "namespaces properties --set",
    "GET /admin/v2/namespaces/{tenant}/{namespace}/property/{key}": "namespaces properties shows them all",
    "/terminate/partitions": "topics terminate ends the partitions, too",
    "/broker-stats/destinations": "an older name of broker-stats/topics",
}


@pytest.fixture
def penstock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    with running() as address:
        yield Commands(address.url, monkeypatch)


def test_every_operation_has_a_command(penstock: Commands, tmp_path: Path) -> None:
    stories: tuple[Callable[[Commands], None], ...] = (
        namespaces_and_tenants,
        topics,
        messages_by_place,
        subscriptions,
        policies,
        permissions,
        server,
        completions,
    )
    for story in stories:
        story(penstock)
    schemas(penstock, tmp_path)
    missing = [
        f"{operation.method} {operation.path}"
        for operation in OPERATIONS
        if (operation.method, operation.path) not in penstock.asked and not excused(operation)
    ]
    assert missing == []


def excused(operation: AdminOperation) -> bool:
    """What is the same for every server of one process, or has other words: `penstock api` reaches it."""
    name = f"{operation.method} {operation.path}"
    return operation.fixed or any(part in name for part in OTHER_WORDS)
