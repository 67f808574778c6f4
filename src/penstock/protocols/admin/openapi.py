"""The administrator's endpoint for OpenAPI, from the table of its endpoints."""

import re
from typing import Any, Final

from penstock.model.errors import ErrorKind
from penstock.protocols.http.openapi import ALWAYS, Operation, Parameter

from .routes import ENDPOINTS
from .server import BUNDLE
from .table import AdminOperation

_NUMBER: Final[dict[str, Any]] = {"type": "integer", "minimum": 0}
_FLAG: Final[dict[str, Any]] = {"type": "boolean"}
_MODES: Final[dict[str, Any]] = {"type": "string", "enum": ["PERSISTENT", "NON_PERSISTENT", "ALL"]}
_QUOTA: Final[dict[str, Any]] = {"type": "string", "enum": ["destination_storage", "message_age"]}
_PLACES: Final[dict[str, Any]] = {"type": "string", "enum": ["earliest", "latest"]}
_TEXT: Final[dict[str, Any]] = {"type": "string"}
_QUERY: Final = {
    "mode": _MODES,
    "backlogQuotaType": _QUOTA,
    "messageTTL": _NUMBER,
    "initialPosition": _PLACES,
    "messagePosition": _NUMBER,
    "key": _TEXT,
}
_IN_PATH: Final[dict[str, dict[str, Any]]] = {
    **dict.fromkeys(("version", "count", "seconds", "timestamp", "position", "ledger", "entry"), _NUMBER),
    "bundle": {"type": "string", "enum": [BUNDLE]},
}

_ALWAYS: Final = (*ALWAYS, ErrorKind.NOT_FOUND)
# What an endpoint whose path has this may be refused with besides.
_BY_PART: Final = {
    "{tenant}": (ErrorKind.INVALID_NAME, ErrorKind.NAMESPACE_NOT_FOUND, ErrorKind.NAMESPACE_IN_USE),
    "{topic}": (ErrorKind.TOPIC_NOT_FOUND, ErrorKind.PARTITION_NOT_FOUND, ErrorKind.METHOD_NOT_ALLOWED),
    "{subscription}": (ErrorKind.SUBSCRIPTION_NOT_FOUND, ErrorKind.SUBSCRIPTION_BUSY),
    "/schemas/": (ErrorKind.SCHEMA_NOT_FOUND,),
}


def operations() -> list[Operation]:
    """Every call of the endpoint."""
    return [_operation(endpoint) for endpoint in ENDPOINTS]


def _operation(endpoint: AdminOperation) -> Operation:
    parameters = [Parameter(name, "", _QUERY.get(name, _FLAG)) for name in endpoint.query]
    names = re.findall(r"{(\w+)}", endpoint.path)
    parameters += [Parameter(name, "", _IN_PATH[name], "path") for name in names if name in _IN_PATH]
    return Operation(
        method=endpoint.method,
        path=endpoint.path,
        tag="admin",
        summary=endpoint.summary,
        parameters=tuple(parameters),
        request=endpoint.body,
        request_needed=endpoint.body in (int, bool) and "messageTTL" not in endpoint.query,
        answer=endpoint.answer,
        status=endpoint.status,
        answers=("text/plain", "application/octet-stream") if endpoint.text else (),
        errors=_errors(endpoint),
    )


def _errors(endpoint: AdminOperation) -> tuple[ErrorKind, ...]:
    kinds = list(_ALWAYS)
    for part, more in _BY_PART.items():
        if part in endpoint.path:
            kinds += more
    if endpoint.fixed and endpoint.body is not None:
        kinds.append(ErrorKind.METHOD_NOT_ALLOWED)
    if endpoint.body is not None:
        kinds += (ErrorKind.TOO_LARGE, ErrorKind.BAD_VALUE_SCHEMA, ErrorKind.INCOMPATIBLE_SCHEMA)
    if endpoint.method == "PUT":
        kinds += (
            ErrorKind.ALREADY_EXISTS,
            ErrorKind.TOO_MANY_TOPICS,
            ErrorKind.TOO_MANY_SUBSCRIPTIONS,
            ErrorKind.TOO_LARGE,
        )
    return tuple(kinds)
