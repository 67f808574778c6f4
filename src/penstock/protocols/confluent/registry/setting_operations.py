"""The operations of levels and modes."""

from typing import Any, Final

from penstock.model.subjects import CONTEXT

from .call import RegistryCall
from .shapes import Config, ModeBody
from .table import flag, may_administer_all, may_set_mode, on


@on("GET", "/config", summary="The global level.", answer=dict[str, Any])
async def config(call: RegistryCall) -> dict[str, Any]:
    return call.registry.settings.config(_whole(call))


@on(
    "PUT",
    "/config",
    right=may_administer_all,
    summary="Set the global level.",
    request=Config,
    answer=dict[str, Any],
)
async def set_config(call: RegistryCall) -> dict[str, Any]:
    return await call.registry.settings.set_config(_whole(call), call.json(dict[str, Any]))


@on("DELETE", "/config", right=may_administer_all, summary="Reset the global level.", answer=dict[str, Any])
async def delete_config(call: RegistryCall) -> dict[str, Any]:
    return await call.registry.settings.delete_config(_whole(call))


_DEFAULT: Final = flag("defaultToGlobal", "Answer the global one if the subject has none.")


@on(
    "GET",
    "/config/{subject}",
    right=RegistryCall.may_read,
    summary="The level of a subject.",
    parameters=(_DEFAULT,),
    answer=dict[str, Any],
)
async def subject_config(call: RegistryCall) -> dict[str, Any]:
    return call.registry.settings.config(call.subject, default=call.flag("defaultToGlobal"))


@on(
    "PUT",
    "/config/{subject}",
    right=RegistryCall.may_administer,
    summary="Set the level of a subject.",
    request=Config,
    answer=dict[str, Any],
)
async def set_subject_config(call: RegistryCall) -> dict[str, Any]:
    return await call.registry.settings.set_config(call.subject, call.json(dict[str, Any]))


@on(
    "DELETE",
    "/config/{subject}",
    right=RegistryCall.may_administer,
    summary="Reset the level of a subject.",
    answer=dict[str, Any],
)
async def delete_subject_config(call: RegistryCall) -> dict[str, Any]:
    return await call.registry.settings.delete_config(call.subject)


@on("GET", "/mode", summary="The global mode.", answer=ModeBody)
async def mode(call: RegistryCall) -> ModeBody:
    return ModeBody(call.registry.settings.mode(_whole(call)))


_FORCE: Final = flag("force", "To IMPORT although there are schemas.")


@on(
    "PUT",
    "/mode",
    right=may_administer_all,
    summary="Set the global mode.",
    parameters=(_FORCE,),
    request=ModeBody,
    answer=ModeBody,
)
async def set_mode(call: RegistryCall) -> ModeBody:
    wanted = call.json(ModeBody).mode
    return ModeBody(await call.registry.settings.set_mode(_whole(call), wanted, force=call.flag("force")))


@on("DELETE", "/mode", right=may_administer_all, summary="Reset the global mode.", answer=ModeBody)
async def delete_mode(call: RegistryCall) -> ModeBody:
    return ModeBody(await call.registry.settings.delete_mode(_whole(call)))


@on(
    "GET",
    "/mode/{subject}",
    right=RegistryCall.may_read,
    summary="The mode of a subject.",
    parameters=(_DEFAULT,),
    answer=ModeBody,
)
async def subject_mode(call: RegistryCall) -> ModeBody:
    return ModeBody(call.registry.settings.mode(call.subject, default=call.flag("defaultToGlobal")))


@on(
    "PUT",
    "/mode/{subject}",
    right=may_set_mode,
    summary="Set the mode of a subject.",
    parameters=(_FORCE,),
    request=ModeBody,
    answer=ModeBody,
)
async def set_subject_mode(call: RegistryCall) -> ModeBody:
    wanted = call.json(ModeBody).mode
    return ModeBody(await call.registry.settings.set_mode(call.subject, wanted, force=call.flag("force")))


@on(
    "DELETE",
    "/mode/{subject}",
    right=RegistryCall.may_administer,
    summary="Reset the mode of a subject.",
    answer=ModeBody,
)
async def delete_subject_mode(call: RegistryCall) -> ModeBody:
    return ModeBody(await call.registry.settings.delete_mode(call.subject))


def _whole(call: RegistryCall) -> str | None:
    """What a setting without a subject is of: the context, or everything."""
    return None if call.context == CONTEXT else f":{call.context}:"
