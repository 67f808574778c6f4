"""The schema registry's API below `/registry`, and without that prefix on a port of its own (docs/schema-registry.md).

Errors, codes and content types are Confluent's. Unknown parameters and fields are ignored, as clients of several versions send them.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from penstock.model.confluent import ConfluentError
from penstock.model.errors import ErrorKind
from penstock.model.names import DEFAULT_NAMESPACE
from penstock.model.subjects import CONTEXT, SCHEMA_NOT_FOUND, SubjectVersion, context_of, qualified
from penstock.protocols.http.answers import Answer
from penstock.protocols.http.operations import Operation, Table
from penstock.protocols.http.params import Parameter

from .call import RegistryCall
from .shapes import (
    Compatible,
    Config,
    GivenSchema,
    ModeBody,
    RegisteredSchema,
    SchemaId,
    VersionOfId,
)

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

_SUBJECT: Final = "/subjects/{subject}"
_VERSION: Final = f"{_SUBJECT}/versions/{{version}}"
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


def _flag(name: str, description: str) -> Parameter:
    return Parameter(name, description, {"type": "boolean"})


_DELETED: Final = _flag("deleted", "Also softly deleted versions.")
_NORMALIZE: Final = _flag("normalize", "Compare and store the normalized schema.")
_FORMAT: Final = Parameter(
    "format", "`resolved` (AVRO): with its references; `serialized` (PROTOBUF): a descriptor in base64."
)


def _on(method: str, path: str, *, right: Right | None = None, **about: Any) -> Callable[[Handler], Handler]:
    declare = table.on(method, path, errors=_ERRORS, media=MEDIA, further=_FURTHER, **about)

    def with_right(handler: Handler) -> Handler:
        if right is not None:
            rights[handler] = right
        if method in ("PUT", "DELETE") or right is _may_register:
            writing.add(handler)
        return declare(handler)

    return with_right


def knows(call: RegistryCall) -> bool:
    """Whether a request asks for the schema with an id that is known here: an id always means the same."""
    path = call.exchange.scope["path"]
    return (
        "id" in call.names
        and not path.endswith(("/subjects", "/versions"))
        and call.registry.has(call.context, call.id)
    )


def _may_register(call: RegistryCall) -> None:
    call.given()  # a body that cannot be read is refused first, and so are references that the caller may not see
    call.may_register()


def _may_compare(call: RegistryCall) -> None:
    call.given()
    call.may_read()


def _may_administer_all(call: RegistryCall) -> None:
    call.caller.may_administer(DEFAULT_NAMESPACE)


def _may_set_mode(call: RegistryCall) -> None:
    call.may_administer()
    if call.json(ModeBody).mode.upper() == "IMPORT":  # ids are of all subjects
        _may_administer_all(call)


@_on("GET", "/schemas/types", summary="The types of schemas.", answer=list[str])
async def types(call: RegistryCall) -> list[str]:
    return list(call.registry.types)


@_on(
    "GET",
    "/schemas/ids/{id}",
    summary="A schema by its id.",
    parameters=(
        Parameter("subject", "One that has it, for its context."),
        _FORMAT,
        _flag("fetchMaxId", "Also the greatest id."),
    ),
    answer=RegisteredSchema,
)
async def by_id(call: RegistryCall) -> RegisteredSchema:
    found = _seen(call)
    answer = RegisteredSchema.of(found, _formatted(call, found), named=False)
    if call.flag("fetchMaxId"):
        answer.max_id = call.registry.greatest_id(call.context)
    return answer


@_on("GET", "/schemas/ids/{id}/schema", summary="The text of a schema.", answer=Any)
async def text_by_id(call: RegistryCall) -> Answer:
    found = _seen(call)
    return _text(call, found)


@_on(
    "GET",
    "/schemas/ids/{id}/subjects",
    summary="The subjects that have an id.",
    parameters=(_DELETED,),
    answer=list[str],
)
async def subjects_of(call: RegistryCall) -> list[str]:
    return sorted({one.subject for one in _holders(call)})


@_on(
    "GET",
    "/schemas/ids/{id}/versions",
    summary="The versions that have an id.",
    parameters=(_DELETED,),
    answer=list[VersionOfId],
)
async def versions_of(call: RegistryCall) -> list[VersionOfId]:
    return [VersionOfId(one.subject, one.version) for one in _holders(call)]


@_on(
    "GET",
    "/schemas",
    summary="All schemas.",
    parameters=(
        Parameter("subjectPrefix", "How their subjects begin."),
        _DELETED,
        _flag("latestOnly", "The newest version of each subject."),
        Parameter("offset", "How many to leave out.", {"type": "integer"}),
        Parameter("limit", "How many to answer, 1,000 at most.", {"type": "integer"}),
    ),
    answer=list[RegisteredSchema],
)
async def schemas(call: RegistryCall) -> list[RegisteredSchema]:
    deleted = call.flag("deleted")
    found: list[SubjectVersion] = []
    for name in call.registry.names(call.text("subjectPrefix"), call.context, deleted=deleted):
        if call.sees(name):
            versions = call.registry.versions(name, deleted=deleted)
            found += versions[-1:] if call.flag("latestOnly") else versions
    return [RegisteredSchema.of(one) for one in call.page(found)[:1000]]


@_on(
    "GET",
    "/subjects",
    summary="The subjects.",
    parameters=(
        Parameter("subjectPrefix", "How they begin; `:*:` for those of all contexts."),
        _DELETED,
        _flag("deletedOnly", "Only those whose versions are all deleted softly."),
    ),
    answer=list[str],
)
async def subjects(call: RegistryCall) -> list[str]:
    found = call.registry.names(
        call.text("subjectPrefix"),
        call.context,
        deleted=call.flag("deleted"),
        only_deleted=call.flag("deletedOnly"),
    )
    return call.page([name for name in found if call.sees(name)])


@_on(
    "GET",
    f"{_SUBJECT}/versions",
    right=RegistryCall.may_read,
    summary="The versions of a subject.",
    parameters=(_DELETED, _flag("deletedOnly", "Only softly deleted versions.")),
    answer=list[int],
)
async def versions(call: RegistryCall) -> list[int]:
    found = call.registry.versions(
        call.subject, deleted=call.flag("deleted"), only_deleted=call.flag("deletedOnly")
    )
    return call.page([one.version for one in found])


@_on(
    "POST",
    f"{_SUBJECT}/versions",
    right=_may_register,
    summary="Register a schema.",
    parameters=(_NORMALIZE,),
    request=GivenSchema,
    answer=SchemaId,
)
async def register(call: RegistryCall) -> SchemaId:
    given = call.given()
    found = await call.registry.register(
        call.subject,
        given.definition(),
        normalize=call.flag("normalize"),
        schema_id=given.id,
        version=given.version,
        forced=call.administers,
    )
    return SchemaId(found.id)


def known(call: RegistryCall, handler: Handler) -> SchemaId | None:
    """What `register` answers for a schema that is registered already; None if there is something to write."""
    if handler is not register:
        return None
    given = call.given()
    found = call.registry.registered(
        call.subject, given.definition(), normalize=call.flag("normalize"), schema_id=given.id
    )
    return None if found is None else SchemaId(found.id)


@_on(
    "POST",
    _SUBJECT,
    right=_may_compare,
    summary="Look up a schema under a subject.",
    parameters=(_NORMALIZE, _DELETED),
    request=GivenSchema,
    answer=RegisteredSchema,
)
async def lookup(call: RegistryCall) -> RegisteredSchema:
    given = call.given()
    found = call.registry.lookup(
        call.subject, given.definition(), normalize=call.flag("normalize"), deleted=call.flag("deleted")
    )
    return RegisteredSchema.of(found, _formatted(call, found))


@_on(
    "GET",
    _VERSION,
    right=RegistryCall.may_read,
    summary="One version of a subject.",
    parameters=(_DELETED, _FORMAT),
    answer=RegisteredSchema,
)
async def version(call: RegistryCall) -> RegisteredSchema:
    found = call.registry.version(call.subject, call.version, deleted=call.flag("deleted"))
    return RegisteredSchema.of(found, _formatted(call, found))


@_on(
    "GET",
    f"{_VERSION}/schema",
    right=RegistryCall.may_read,
    summary="The text of a version.",
    parameters=(_DELETED,),
    answer=Any,
)
async def text(call: RegistryCall) -> Answer:
    return _text(call, call.registry.version(call.subject, call.version, deleted=call.flag("deleted")))


@_on(
    "GET",
    f"{_VERSION}/referencedby",
    right=RegistryCall.may_read,
    summary="The ids of schemas that use a version.",
    answer=list[int],
)
async def referenced_by(call: RegistryCall) -> list[int]:
    return call.registry.users(call.subject, call.version)


@_on(
    "GET",
    f"{_SUBJECT}/metadata",
    right=RegistryCall.may_read,
    summary="The newest version with properties of its metadata, by `key` and `value`.",
    answer=RegisteredSchema,
)
async def with_metadata(call: RegistryCall) -> RegisteredSchema:
    wanted = dict(zip(call.texts("key"), call.texts("value"), strict=False))
    return RegisteredSchema.of(
        call.registry.with_metadata(call.subject, wanted, deleted=call.flag("deleted"))
    )


_PERMANENT: Final = _flag("permanent", "Delete for good what is deleted softly.")


@_on(
    "DELETE",
    _SUBJECT,
    right=RegistryCall.may_administer,
    summary="Delete a subject.",
    parameters=(_PERMANENT,),
    answer=list[int],
)
async def delete_subject(call: RegistryCall) -> list[int]:
    return await call.registry.delete_subject(call.subject, permanent=call.flag("permanent"))


@_on(
    "DELETE",
    _VERSION,
    right=RegistryCall.may_administer,
    summary="Delete a version.",
    parameters=(_PERMANENT,),
    answer=int,
)
async def delete_version(call: RegistryCall) -> int:
    return await call.registry.delete_version(call.subject, call.version, permanent=call.flag("permanent"))


_VERBOSE: Final = _flag("verbose", "Say why not.")


@_on(
    "POST",
    "/compatibility/subjects/{subject}/versions/{version}",
    summary="Whether a schema may follow a version.",
    parameters=(_NORMALIZE, _VERBOSE),
    request=GivenSchema,
    answer=Compatible,
)
async def compatible_with(call: RegistryCall) -> Compatible:
    return _compatible(call, call.version)


@_on(
    "POST",
    "/compatibility/subjects/{subject}/versions",
    right=_may_compare,
    summary="Whether a schema may follow all that the level compares.",
    parameters=(_NORMALIZE, _VERBOSE),
    request=GivenSchema,
    answer=Compatible,
)
async def compatible(call: RegistryCall) -> Compatible:
    return _compatible(call, None)


def _compatible(call: RegistryCall, number: str | None) -> Compatible:
    given = call.given()
    found = call.registry.objections(
        call.subject, given.definition(), number, normalize=call.flag("normalize")
    )
    return Compatible(not found, found if call.flag("verbose") else None)


@_on("GET", "/config", summary="The global level.", answer=dict[str, Any])
async def config(call: RegistryCall) -> dict[str, Any]:
    return call.registry.settings.config(_whole(call))


@_on(
    "PUT",
    "/config",
    right=_may_administer_all,
    summary="Set the global level.",
    request=Config,
    answer=dict[str, Any],
)
async def set_config(call: RegistryCall) -> dict[str, Any]:
    return await call.registry.settings.set_config(_whole(call), call.json(dict[str, Any]))


@_on("DELETE", "/config", right=_may_administer_all, summary="Reset the global level.", answer=dict[str, Any])
async def delete_config(call: RegistryCall) -> dict[str, Any]:
    return await call.registry.settings.delete_config(_whole(call))


_DEFAULT: Final = _flag("defaultToGlobal", "Answer the global one if the subject has none.")


@_on(
    "GET",
    "/config/{subject}",
    right=RegistryCall.may_read,
    summary="The level of a subject.",
    parameters=(_DEFAULT,),
    answer=dict[str, Any],
)
async def subject_config(call: RegistryCall) -> dict[str, Any]:
    return call.registry.settings.config(call.subject, default=call.flag("defaultToGlobal"))


@_on(
    "PUT",
    "/config/{subject}",
    right=RegistryCall.may_administer,
    summary="Set the level of a subject.",
    request=Config,
    answer=dict[str, Any],
)
async def set_subject_config(call: RegistryCall) -> dict[str, Any]:
    return await call.registry.settings.set_config(call.subject, call.json(dict[str, Any]))


@_on(
    "DELETE",
    "/config/{subject}",
    right=RegistryCall.may_administer,
    summary="Reset the level of a subject.",
    answer=dict[str, Any],
)
async def delete_subject_config(call: RegistryCall) -> dict[str, Any]:
    return await call.registry.settings.delete_config(call.subject)


@_on("GET", "/mode", summary="The global mode.", answer=ModeBody)
async def mode(call: RegistryCall) -> ModeBody:
    return ModeBody(call.registry.settings.mode(_whole(call)))


_FORCE: Final = _flag("force", "To IMPORT although there are schemas.")


@_on(
    "PUT",
    "/mode",
    right=_may_administer_all,
    summary="Set the global mode.",
    parameters=(_FORCE,),
    request=ModeBody,
    answer=ModeBody,
)
async def set_mode(call: RegistryCall) -> ModeBody:
    wanted = call.json(ModeBody).mode
    return ModeBody(await call.registry.settings.set_mode(_whole(call), wanted, force=call.flag("force")))


@_on("DELETE", "/mode", right=_may_administer_all, summary="Reset the global mode.", answer=ModeBody)
async def delete_mode(call: RegistryCall) -> ModeBody:
    return ModeBody(await call.registry.settings.delete_mode(_whole(call)))


@_on(
    "GET",
    "/mode/{subject}",
    right=RegistryCall.may_read,
    summary="The mode of a subject.",
    parameters=(_DEFAULT,),
    answer=ModeBody,
)
async def subject_mode(call: RegistryCall) -> ModeBody:
    return ModeBody(call.registry.settings.mode(call.subject, default=call.flag("defaultToGlobal")))


@_on(
    "PUT",
    "/mode/{subject}",
    right=_may_set_mode,
    summary="Set the mode of a subject.",
    parameters=(_FORCE,),
    request=ModeBody,
    answer=ModeBody,
)
async def set_subject_mode(call: RegistryCall) -> ModeBody:
    wanted = call.json(ModeBody).mode
    return ModeBody(await call.registry.settings.set_mode(call.subject, wanted, force=call.flag("force")))


@_on(
    "DELETE",
    "/mode/{subject}",
    right=RegistryCall.may_administer,
    summary="Reset the mode of a subject.",
    answer=ModeBody,
)
async def delete_subject_mode(call: RegistryCall) -> ModeBody:
    return ModeBody(await call.registry.settings.delete_mode(call.subject))


@_on("GET", "/contexts", summary="The contexts.", answer=list[str])
async def contexts(call: RegistryCall) -> list[str]:
    seen = filter(call.sees, call.registry.names(":*:", deleted=True))
    return sorted({CONTEXT, *map(context_of, seen)})


@_on("GET", "/v1/metadata/id", summary="The cluster, which has no name here.", answer=dict[str, Any])
async def cluster_id(call: RegistryCall) -> dict[str, Any]:
    return {"scope": {"path": [], "clusters": {}}, "id": ""}


@_on("GET", "/v1/metadata/version", summary="The version of the API.", answer=dict[str, str])
async def api_version(call: RegistryCall) -> dict[str, str]:
    return {"version": "8.0.0", "commitId": ""}


async def _nothing(call: RegistryCall) -> dict[str, Any]:
    """That a registry is there."""
    return {}


for _method in ("GET", "POST"):
    _on(_method, "", summary="That a registry is here.", answer=dict[str, Any])(_nothing)
    _on(_method, "/", summary="That a registry is here.", answer=dict[str, Any])(_nothing)


def _whole(call: RegistryCall) -> str | None:
    """What a setting without a subject is of: the context, or everything."""
    return None if call.context == CONTEXT else f":{call.context}:"


def _seen(call: RegistryCall) -> SubjectVersion:
    """A version with the id in the path that the caller may know."""
    subject = call.text("subject")
    found = call.registry.by_id(call.context, call.id, qualified(call.context, subject) if subject else None)
    if not call.sees(found.subject):
        every = call.registry.versions_of(call.context, call.id, deleted=True)
        seen = next((one for one in every if call.sees(one.subject)), None)
        if seen is None:
            raise ConfluentError(SCHEMA_NOT_FOUND, f"Schema {call.id} not found")
        return seen
    return found


def _holders(call: RegistryCall) -> list[SubjectVersion]:
    subject = call.text("subject")
    _seen(call)
    found = call.registry.versions_of(call.context, call.id, deleted=call.flag("deleted"))
    return [one for one in found if call.sees(one.subject) and subject in ("", one.subject)]


def _formatted(call: RegistryCall, found: SubjectVersion) -> str | None:
    """The text in the `format` that was asked for; None: as it is stored."""
    match call.text("format"), found.definition.schema_type:
        case "", _:
            return None
        case "resolved", "AVRO":
            return call.registry.resolved(found)
        case "serialized", "PROTOBUF":
            return call.registry.serialized(found)
        case _:
            return None


def _text(call: RegistryCall, found: SubjectVersion) -> Answer:
    text = _formatted(call, found)
    content = found.definition.schema if text is None else text
    return Answer(raw=content.encode())


# Those of contexts are the same again.
OPERATIONS: Final[tuple[Operation, ...]] = tuple(
    operation
    for operation in table
    if "{context}" not in operation.path
    and not (operation.handler is _nothing and (operation.method == "POST" or operation.path.endswith("/")))
)
