"""The table of the registry's operations: their media types, and the right that each of them needs."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from penstock.model.errors import ErrorKind
from penstock.model.names import DEFAULT_NAMESPACE
from penstock.protocols.http.operations import Table
from penstock.protocols.http.params import Parameter

from .call import RegistryCall
from .shapes import ModeBody

MEDIA: Final = (
    "application/vnd.schemaregistry.v1+json",
    "application/vnd.schemaregistry+json",
    "application/json",
)

Handler = Callable[[RegistryCall], Awaitable[Any]]
Right = Callable[[RegistryCall], None]

rights: Final[dict[Handler, Right]] = {}  # what raises unless the caller may do it
writing: Final[set[Handler]] = set()

table: Final = Table("schema registry", "/registry", "/registry/contexts/{context}")

_ERRORS: Final = (ErrorKind.UNAUTHENTICATED, ErrorKind.FORBIDDEN, ErrorKind.UNAVAILABLE)
_FURTHER: Final = (
    (400, "The body is not valid JSON."),
    (404, "40401 subject, 40402 version, 40403 schema not found; 40404 to 40409: of deletions and settings."),
    (406, "No type of the answer is accepted."),
    (409, "409: the schema is not compatible."),
    (415, "The type of the body is not taken."),
    (
        422,
        "42201 schema, 42202 version, 42203 level, 42204 mode, 42205 not permitted, 42206 referenced, 42208 subject.",
    ),
)


def flag(name: str, description: str) -> Parameter:
    """A parameter that is there or not."""
    return Parameter(name, description, {"type": "boolean"})


def on(method: str, path: str, *, right: Right | None = None, **about: Any) -> Callable[[Handler], Handler]:
    """Declare an operation; `right` raises unless the caller may do it."""
    declare = table.on(method, path, errors=_ERRORS, media=MEDIA, further=_FURTHER, **about)

    def with_right(handler: Handler) -> Handler:
        if right is not None:
            rights[handler] = right
        if method in ("PUT", "DELETE") or right is may_register:
            writing.add(handler)
        return declare(handler)

    return with_right


def may_register(call: RegistryCall) -> None:
    """The right to register."""
    call.given()  # a body that cannot be read is refused first, and so are references that the caller may not see
    call.may_register()


def may_compare(call: RegistryCall) -> None:
    """The right to look up and compare a schema."""
    call.given()
    call.may_read()


def may_administer_all(call: RegistryCall) -> None:
    """The right to global settings."""
    call.caller.may_administer(DEFAULT_NAMESPACE)


def may_set_mode(call: RegistryCall) -> None:
    """The right to a subject's mode."""
    call.may_administer()
    if call.json(ModeBody).mode.upper() == "IMPORT":  # ids are of all subjects
        may_administer_all(call)
