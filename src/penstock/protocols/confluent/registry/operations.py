"""The schema registry's API below `/registry`, and without that prefix on a port of its own (docs/schema-registry.md).

Errors, codes and content types are Confluent's. Unknown parameters and fields are ignored, as clients of several versions send them.
"""

from typing import Any, Final

from penstock.model.confluent import ConfluentError
from penstock.model.subjects import CONTEXT, SCHEMA_NOT_FOUND, SubjectVersion, context_of, qualified
from penstock.protocols.http.answers import Answer
from penstock.protocols.http.operations import Operation
from penstock.protocols.http.params import Parameter

from . import setting_operations
from .call import RegistryCall
from .shapes import Compatible, GivenSchema, RegisteredSchema, SchemaId, VersionOfId
from .table import Handler, flag, may_compare, may_register, on, table

__all__ = ["OPERATIONS", "setting_operations"]

_SUBJECT: Final = "/subjects/{subject}"
_VERSION: Final = f"{_SUBJECT}/versions/{{version}}"
_DELETED: Final = flag("deleted", "Also softly deleted versions.")
_NORMALIZE: Final = flag("normalize", "Compare and store the normalized schema.")
_FORMAT: Final = Parameter(
    "format", "`resolved` (AVRO): with its references; `serialized` (PROTOBUF): a descriptor in base64."
)


def knows(call: RegistryCall) -> bool:
    """Whether a request asks for the schema with an id that is known here: an id always means the same."""
    if "id" not in call.names or call.text("subject").startswith(":.") or call.flag("fetchMaxId"):
        return False
    path = call.exchange.scope["path"].rstrip("/")
    return not path.endswith(("/subjects", "/versions")) and call.registry.has(call.context, call.id)


@on("GET", "/schemas/types", summary="The types of schemas.", answer=list[str])
async def types(call: RegistryCall) -> list[str]:
    return list(call.registry.types)


@on(
    "GET",
    "/schemas/ids/{id}",
    summary="A schema by its id.",
    parameters=(
        Parameter("subject", "One that has it, for its context."),
        _FORMAT,
        flag("fetchMaxId", "Also the greatest id."),
    ),
    answer=RegisteredSchema,
)
async def by_id(call: RegistryCall) -> RegisteredSchema:
    found = _seen(call)
    answer = RegisteredSchema.of(found, _formatted(call, found), named=False)
    if call.flag("fetchMaxId"):
        answer.max_id = call.registry.greatest_id(call.context)
    else:
        call.shown = found.subject
    return answer


@on("GET", "/schemas/ids/{id}/schema", summary="The text of a schema.", answer=Any)
async def text_by_id(call: RegistryCall) -> Answer:
    found = _seen(call)
    call.shown = found.subject
    return _text(call, found)


@on(
    "GET",
    "/schemas/ids/{id}/subjects",
    summary="The subjects that have an id.",
    parameters=(_DELETED,),
    answer=list[str],
)
async def subjects_of(call: RegistryCall) -> list[str]:
    return sorted({one.subject for one in _holders(call)})


@on(
    "GET",
    "/schemas/ids/{id}/versions",
    summary="The versions that have an id.",
    parameters=(_DELETED,),
    answer=list[VersionOfId],
)
async def versions_of(call: RegistryCall) -> list[VersionOfId]:
    return [VersionOfId(one.subject, one.version) for one in _holders(call)]


@on(
    "GET",
    "/schemas",
    summary="All schemas.",
    parameters=(
        Parameter("subjectPrefix", "How their subjects begin."),
        _DELETED,
        flag("latestOnly", "The newest version of each subject."),
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


@on(
    "GET",
    "/subjects",
    summary="The subjects.",
    parameters=(
        Parameter("subjectPrefix", "How they begin; `:*:` for those of all contexts."),
        _DELETED,
        flag("deletedOnly", "Only those whose versions are all deleted softly."),
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


@on(
    "GET",
    f"{_SUBJECT}/versions",
    right=RegistryCall.may_read,
    summary="The versions of a subject.",
    parameters=(_DELETED, flag("deletedOnly", "Only softly deleted versions.")),
    answer=list[int],
)
async def versions(call: RegistryCall) -> list[int]:
    found = call.registry.versions(
        call.subject, deleted=call.flag("deleted"), only_deleted=call.flag("deletedOnly")
    )
    return call.page([one.version for one in found])


@on(
    "POST",
    f"{_SUBJECT}/versions",
    right=may_register,
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


@on(
    "POST",
    _SUBJECT,
    right=may_compare,
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


@on(
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


@on(
    "GET",
    f"{_VERSION}/schema",
    right=RegistryCall.may_read,
    summary="The text of a version.",
    parameters=(_DELETED,),
    answer=Any,
)
async def text(call: RegistryCall) -> Answer:
    return _text(call, call.registry.version(call.subject, call.version, deleted=call.flag("deleted")))


@on(
    "GET",
    f"{_VERSION}/referencedby",
    right=RegistryCall.may_read,
    summary="The ids of schemas that use a version.",
    answer=list[int],
)
async def referenced_by(call: RegistryCall) -> list[int]:
    return call.registry.users(call.subject, call.version)


@on(
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


_PERMANENT: Final = flag("permanent", "Delete for good what is deleted softly.")


@on(
    "DELETE",
    _SUBJECT,
    right=RegistryCall.may_administer,
    summary="Delete a subject.",
    parameters=(_PERMANENT,),
    answer=list[int],
)
async def delete_subject(call: RegistryCall) -> list[int]:
    return await call.registry.delete_subject(call.subject, permanent=call.flag("permanent"))


@on(
    "DELETE",
    _VERSION,
    right=RegistryCall.may_administer,
    summary="Delete a version.",
    parameters=(_PERMANENT,),
    answer=int,
)
async def delete_version(call: RegistryCall) -> int:
    return await call.registry.delete_version(call.subject, call.version, permanent=call.flag("permanent"))


_VERBOSE: Final = flag("verbose", "Say why not.")


@on(
    "POST",
    "/compatibility/subjects/{subject}/versions/{version}",
    right=may_compare,
    summary="Whether a schema may follow a version.",
    parameters=(_NORMALIZE, _VERBOSE),
    request=GivenSchema,
    answer=Compatible,
)
async def compatible_with(call: RegistryCall) -> Compatible:
    return _compatible(call, call.version)


@on(
    "POST",
    "/compatibility/subjects/{subject}/versions",
    right=may_compare,
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


@on("GET", "/contexts", summary="The contexts.", answer=list[str])
async def contexts(call: RegistryCall) -> list[str]:
    seen = filter(call.sees, call.registry.names(":*:", deleted=True))
    return sorted({CONTEXT, *map(context_of, seen)})


@on("GET", "/v1/metadata/id", summary="The cluster, which has no name here.", answer=dict[str, Any])
async def cluster_id(call: RegistryCall) -> dict[str, Any]:
    return {"scope": {"path": [], "clusters": {}}, "id": ""}


@on("GET", "/v1/metadata/version", summary="The version of the API.", answer=dict[str, str])
async def api_version(call: RegistryCall) -> dict[str, str]:
    return {"version": "8.0.0", "commitId": ""}


async def _nothing(call: RegistryCall) -> dict[str, Any]:
    """That a registry is there."""
    return {}


for _method in ("GET", "POST"):
    on(_method, "", summary="That a registry is here.", answer=dict[str, Any])(_nothing)
    on(_method, "/", summary="That a registry is here.", answer=dict[str, Any])(_nothing)


def _seen(call: RegistryCall) -> SubjectVersion:
    """A version with the id in the path that the caller may know."""
    subject = call.text("subject")
    found = call.registry.by_id(call.context, call.id, qualified(call.context, subject) if subject else None)
    if not call.sees(found.subject):
        every = call.registry.versions_of(context_of(found.subject), call.id, deleted=True)
        seen = next((one for one in every if call.sees(one.subject)), None)
        if seen is None:
            raise ConfluentError(SCHEMA_NOT_FOUND, f"Schema {call.id} not found")
        return seen
    return found


def _holders(call: RegistryCall) -> list[SubjectVersion]:
    subject = qualified(call.context, call.text("subject"))
    context = context_of(subject)
    _seen(call)
    found = call.registry.versions_of(context, call.id, deleted=call.flag("deleted"))
    every = qualified(context, "")  # a context without a name in it
    return [one for one in found if call.sees(one.subject) and subject in (every, one.subject)]


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
