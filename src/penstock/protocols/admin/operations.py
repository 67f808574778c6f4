"""Operations of the admin API, each declared at its handler: the router (`routes`) and OpenAPI are made from them."""

import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar, get_type_hints

from penstock.model.errors import ErrorKind
from penstock.protocols.http.answers import Answer
from penstock.protocols.http.operations import ALWAYS, Operation
from penstock.protocols.http.params import Parameter

from .call import Call

Handler = Callable[[Call], Awaitable[Any]]
H = TypeVar("H", bound=Handler)

NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
DOMAIN: Final = "/admin/v2/{domain}/{tenant}/{namespace}"
TOPIC: Final = f"{DOMAIN}/{{topic}}"
SUBSCRIPTION: Final = f"{TOPIC}/subscription/{{subscription}}"

BUNDLE: Final = "0x00000000_0xffffffff"  # each namespace is one, as all of it is served here
# The patterns of some names in a path; the others match any segment.
PARTICULAR: Final = {
    "domain": re.compile("persistent|non-persistent"),
    "bundle": re.compile("0x[0-9a-fA-F]{8}_0x[0-9a-fA-F]{8}"),
}

_NUMBER: Final[dict[str, Any]] = {"type": "integer", "minimum": 0}
_QUERY: Final[dict[str, dict[str, Any]]] = {  # the others are flags
    "mode": {"type": "string", "enum": ["PERSISTENT", "NON_PERSISTENT", "ALL"]},
    "backlogQuotaType": {"type": "string", "enum": ["destination_storage", "message_age"]},
    "messageTTL": _NUMBER,
    "initialPosition": {"type": "string", "enum": ["earliest", "latest"]},
    "messagePosition": _NUMBER,
    "key": {"type": "string"},
}
_IN_PATH: Final[dict[str, dict[str, Any]]] = {
    **dict.fromkeys(("version", "count", "seconds", "timestamp", "position", "ledger", "entry"), _NUMBER),
    "bundle": {"type": "string", "enum": [BUNDLE]},
}

# Further errors of an operation whose path has this.
_BY_PART: Final = {
    "{tenant}": (ErrorKind.INVALID_NAME, ErrorKind.NAMESPACE_NOT_FOUND, ErrorKind.NAMESPACE_IN_USE),
    "{topic}": (ErrorKind.TOPIC_NOT_FOUND, ErrorKind.PARTITION_NOT_FOUND, ErrorKind.METHOD_NOT_ALLOWED),
    "{subscription}": (ErrorKind.SUBSCRIPTION_NOT_FOUND, ErrorKind.SUBSCRIPTION_BUSY),
    "/schemas/": (ErrorKind.SCHEMA_NOT_FOUND,),
}


class AdminOperation(Operation, frozen=True, kw_only=True):
    """One method of one path; its handler's arguments are a `Call`."""

    fixed: bool = False  # what it answers is a truth of one server, whatever is configured


class Refusal(NamedTuple):
    """Methods of paths that are refused, with the reason. A path that ends in `/**` means all below it."""

    methods: tuple[str, ...]
    paths: tuple[str, ...]
    reason: str


class Table:
    """Operations as one module declares them."""

    def __init__(self) -> None:
        self._operations: list[AdminOperation] = []

    def __iter__(self) -> Iterator[AdminOperation]:
        return iter(self._operations)

    def on(
        self,
        method: str,
        *paths: str,
        query: tuple[str, ...] = (),
        body: Any = None,
        answer: Any = None,
        status: int = 200,
        fixed: bool = False,
    ) -> Callable[[H], H]:
        """Declare the decorated function as what serves `method` at `paths`; its docstring is the summary.

        What it returns is the answer's body: a value of JSON, text as bytes, or an `Answer` of text with headers.
        The type is that of its annotation, or `answer`; a function that returns nothing answers 204.
        """

        def declare(handler: H) -> H:
            shape = answer or get_type_hints(handler)["return"]
            text = shape in (bytes, Answer)
            nothing = shape is type(None)
            for path in paths:
                names = re.findall(r"{(\w+)}", path)
                operation = AdminOperation(
                    method=method,
                    path=path,
                    tag="admin",
                    summary=(handler.__doc__ or "").strip().partition("\n")[0],
                    parameters=(
                        *(Parameter(name, "", _QUERY.get(name, {"type": "boolean"})) for name in query),
                        *(Parameter(name, "", _IN_PATH[name], "path") for name in names if name in _IN_PATH),
                    ),
                    request=body,
                    request_needed=body in (int, bool) and "messageTTL" not in query,
                    answer=None if text or nothing else shape,
                    status=204 if nothing else status,
                    answers=("text/plain", "application/octet-stream") if text else (),
                    errors=_errors(method, path, takes=body is not None, fixed=fixed),
                    handler=handler,
                    fixed=fixed,
                )
                self._operations.append(operation)
            return handler

        return declare


def _errors(method: str, path: str, *, takes: bool, fixed: bool) -> tuple[ErrorKind, ...]:
    """What an operation may be refused with: as its path, its method and its having a body say."""
    kinds = [*ALWAYS, ErrorKind.NOT_FOUND]
    for part, more in _BY_PART.items():
        if part in path:
            kinds += more
    if fixed and takes:
        kinds.append(ErrorKind.METHOD_NOT_ALLOWED)
    if takes:
        kinds += (ErrorKind.TOO_LARGE, ErrorKind.BAD_VALUE_SCHEMA, ErrorKind.INCOMPATIBLE_SCHEMA)
    if method == "PUT":
        kinds += (
            ErrorKind.ALREADY_EXISTS,
            ErrorKind.TOO_MANY_TOPICS,
            ErrorKind.TOO_MANY_SUBSCRIPTIONS,
            ErrorKind.TOO_LARGE,
        )
    return tuple(kinds)
