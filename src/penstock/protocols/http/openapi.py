"""OpenAPI 3.1 of the HTTP endpoints, made from tables of their operations and the types of their bodies.

An endpoint describes itself by a list of `Operation`; `document` takes as many of them as there are.
"""

from collections.abc import Iterable, Sequence
from re import findall, sub
from typing import Any, Final

import msgspec

from penstock.model.errors import ErrorKind
from penstock.protocols.context import ServerContext

from .operations import Operation
from .params import Parameter

_BEFORE: Final = (
    ErrorKind.SLOW_REQUEST,
    ErrorKind.HEAD_TOO_LARGE,
)  # by the server, before an endpoint sees it

_OF_BODIES: Final = (ErrorKind.TOO_LARGE, ErrorKind.BAD_MEDIA_TYPE, ErrorKind.BAD_ENCODING)
_COMPRESSED: Final = (
    "it may be compressed, with Content-Encoding gzip or deflate, and the bound is of what it unfolds to."
)

_REF: Final = "#/components/schemas/{name}"


# Any of these, if authentication is on; `{}` is for a server without, and for a certificate.
SECURITY: Final[list[dict[str, list[str]]]] = [{"bearer": []}, {"basic": []}, {"query": []}, {}]
SCHEMES: Final[dict[str, Any]] = {
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "A token."},
    "basic": {"type": "http", "scheme": "basic", "description": "A name and a password."},
    "query": {
        "type": "apiKey",
        "in": "query",
        "name": "token",
        "description": "A token of a browser, which cannot send a header; proxies may log it.",
    },
}


class Error(msgspec.Struct):
    """Why a request was refused; in the shipped dialect `reason` says it too.

    If the body was not of the operation's shape, `example` is one that would have been taken.
    """

    error_code: int
    message: str
    reason: str | msgspec.UnsetType = msgspec.UNSET
    example: Any = msgspec.UNSET


def document(
    context: ServerContext | None, operations: Sequence[Operation], *, version: str = "0"
) -> dict[str, Any]:
    """The document of `operations`; `context` adds the bounds that it is held to."""
    types = [Error, *(t for o in operations for t in (o.request, o.answer, o.accepted) if t is not None)]
    shapes, components = msgspec.json.schema_components(types, ref_template=_REF)
    by_type = dict(zip(map(id, types), shapes, strict=True))
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(
            operation, by_type, context
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock", "version": version},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": SCHEMES},
    }


def _operation(
    operation: Operation, by_type: dict[int, Any], context: ServerContext | None
) -> dict[str, Any]:
    in_path = {p.name: p for p in operation.parameters if p.where == "path"}
    names = findall(r"{(\w+)}", operation.path)
    path = [in_path.get(n, Parameter(n, "", _PATH.get(n, {"type": "string"}), "path")) for n in names]
    described: dict[str, Any] = {
        "tags": [operation.tag],
        "operationId": f"{operation.method.lower()}-{sub(r'[^a-zA-Z0-9]+', '-', operation.path).strip('-')}",
        "summary": operation.summary,
        "parameters": [
            _parameter(p) for p in (*path, *(p for p in operation.parameters if p.where != "path"))
        ],
        "responses": _responses(operation, by_type),
    }
    if operation.secured:
        described["security"] = SECURITY
    if operation.description:
        described["description"] = operation.description
    if operation.request is not None:
        body: dict[str, Any] = {
            "required": operation.request_needed,
            "content": {media: {"schema": by_type[id(operation.request)]} for media in operation.media},
        }
        if operation.example is not None:
            for content in body["content"].values():
                content["example"] = operation.example
        if context is not None:
            most = context.limits.max_request_bytes
            body["description"] = f"At most {most} bytes; {_COMPRESSED}"
        described["requestBody"] = body
    elif operation.bodies:
        described["requestBody"] = {
            "required": False,
            "description": _COMPRESSED,
            "content": {media: {} for media in operation.bodies},
        }
    return described


_ENTITY: Final = {"type": "string", "pattern": "^[-=:.A-Za-z0-9_]+$"}
_PATH: Final[dict[str, dict[str, Any]]] = {
    "domain": {"type": "string", "enum": ["persistent", "non-persistent"]},
    "tenant": _ENTITY,
    "namespace": _ENTITY,
    "partition": {"type": "integer", "minimum": 0},
}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    described: dict[str, Any] = {"name": parameter.name, "in": parameter.where, "schema": parameter.schema}
    if parameter.description:
        described["description"] = parameter.description
    if parameter.where == "path":
        described["required"] = True
    return described


def _responses(operation: Operation, by_type: dict[int, Any]) -> dict[str, Any]:
    done: dict[str, Any] = {"description": "Done."}
    content: dict[str, Any] = {}
    if operation.answer is not None:
        content |= {media: {"schema": by_type[id(operation.answer)]} for media in operation.media}
    content |= {media: {} for media in operation.answers}
    if content:
        done["content"] = content
    responses: dict[str, Any] = {str(operation.status): done}
    if operation.accepted is not None:
        shown = {"application/json": {"schema": by_type[id(operation.accepted)]}}
        responses["202"] = {"description": "The work goes on.", "content": shown}
    refused = {media: {"schema": by_type[id(Error)]} for media in operation.media}
    for number, meaning in operation.further:
        shown = content if number < 300 else refused if number >= 400 else {}
        responses[str(number)] = {"description": meaning, **({"content": shown} if shown else {})}
    of_body = _OF_BODIES if operation.request is not None or operation.bodies else ()
    every = dict.fromkeys((*operation.errors, *of_body, *_BEFORE))
    for status, kinds in sorted(_by_status(every).items()):
        codes = ", ".join(f"{kind.codes.code} {kind.name.lower().replace('_', ' ')}" for kind in kinds)
        responses[str(status)] = {"description": codes, "content": refused}
    return responses


def _by_status(kinds: Iterable[ErrorKind]) -> dict[int, list[ErrorKind]]:
    found: dict[int, list[ErrorKind]] = {}
    for kind in kinds:
        found.setdefault(kind.codes.status, []).append(kind)
    return found
