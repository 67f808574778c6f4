"""What is stored of tenants, namespaces and topics' policies: a server does not start with what it cannot read."""

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from penstock.broker.namespaces import TenantInfo
from penstock.model.errors import PenstockError
from penstock.model.names import NamespaceName, TopicName, check_entity
from penstock.model.policy import NamespacePolicies, TopicPolicies

from .check_entries import Found

_KINDS: Final[dict[str, tuple[Callable[[str], object], Any]]] = {
    "tenant": (lambda key: check_entity("tenant", key), TenantInfo),
    "namespace": (NamespaceName.parse, NamespacePolicies),
    "topic-policies": (TopicName.parse, TopicPolicies),
}


def check_documents(connection: sqlite3.Connection) -> Iterator[Found]:
    """Look at every document of these kinds."""
    for kind, (parse, type_) in _KINDS.items():
        for key, document in connection.execute("SELECT key, document FROM meta WHERE kind = ?", (kind,)):
            try:
                parse(key)
                msgspec.json.decode(document, type=type_)
            except (PenstockError, msgspec.DecodeError, UnicodeDecodeError) as error:
                yield f"{kind} {key!r}", f"its document cannot be read: {error}"
